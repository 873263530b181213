"""`hippocampus webhooks`: the addresses that receive an app's events, and what became of the deliveries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click

from hippocampus.webhooks.service import (
    DELIVERY_STATUSES,
    EVENT_TYPES,
    OVERLAP,
    OVERLAP_MAX,
    DeliveryStatus,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookService,
)
from workers.cli import databases, output
from workers.cli.groups import Listing
from workers.cli.moments import MOMENT, Seconds
from workers.cli.options import json_option, known_or_set_up_app
from workers.cli.paging import Paged, PageOptions, page_options

if TYPE_CHECKING:
    from pulse.database import Pool

Result = TypeVar("Result")

_COLUMNS = ("id", "app", "events", "url", "status", "description")
_DELIVERY_COLUMNS = ("id", "event", "type", "status", "attempts", "response", "error", "next attempt", "ended")

endpoint_argument = click.argument("endpoint_id", metavar="ENDPOINT", type=click.UUID)


@click.group(cls=Listing, epilog="Example:  hippocampus webhooks add https://example.org/hook --app shop")
def command() -> None:
    """Report an app's events to addresses, by the Standard Webhooks specification."""


@command.command(epilog="Example:  hippocampus webhooks add https://example.org/hook --app shop --type fact.changed")
@click.argument("url")
@click.option("--app", required=True, help="The app whose events are sent.")
@click.option(
    "--type", "types", type=click.Choice(EVENT_TYPES), multiple=True, help="Repeatable; every type by default."
)
@click.option("--description", default="", help="A note for people.")
@json_option
def add(url: str, app: str, types: tuple[str, ...], description: str, as_json: bool) -> None:
    """Add an endpoint. Its secret is printed only this once."""
    made = databases.run(lambda pool: WebhookService(pool).add(app, url, event_types=types, description=description))
    if as_json:
        output.write_json({**output.plain(made.endpoint), "secret": made.secret})
        return
    click.echo(made.secret)
    click.echo(f"Endpoint {made.endpoint.id}. Store its secret now: it is not shown again.", err=True)


@command.command("list", epilog="Example:  hippocampus webhooks list --app shop")
@click.option("--app", callback=known_or_set_up_app, help="Only the endpoints of this app.")
@page_options(100)
def list_(app: str | None, options: PageOptions) -> None:
    """List endpoints, the oldest first."""

    async def work(pool: Pool) -> Paged[WebhookEndpoint]:
        pages = options.of("webhooks", app)
        found = await WebhookService(pool).list(app, limit=options.limit, after=pages.begin(UUID))
        return pages.full(found, lambda each: each.id)

    empty = "There are no webhook endpoints: see `hippocampus webhooks add --help`."
    options.write(databases.run(work), _COLUMNS, _row, empty=empty)


@command.command(epilog="Example:  hippocampus webhooks show 01900000-0000-7000-8000-000000000000")
@endpoint_argument
@json_option
def show(endpoint_id: UUID, as_json: bool) -> None:
    """Show an endpoint, without its secret."""
    found = databases.run(lambda pool: WebhookService(pool).get(endpoint_id))
    output.write_record(output.plain(found), as_json=as_json)


@command.command(epilog="Example:  hippocampus webhooks rotate 01900000-0000-7000-8000-000000000000")
@endpoint_argument
@click.option(
    "--overlap",
    type=Seconds(0, OVERLAP_MAX.total_seconds()),
    default=OVERLAP.total_seconds(),
    show_default=True,
    help="Seconds for which former secrets still sign.",
)
@json_option
def rotate(endpoint_id: UUID, overlap: float, as_json: bool) -> None:
    """Give an endpoint a new secret, which is printed only this once. Both sign for a while."""
    secret = _on(endpoint_id, lambda hooks, app: hooks.rotate(app, endpoint_id, overlap=timedelta(seconds=overlap)))
    if as_json:
        output.write_json({"secret": secret})
    else:
        click.echo(secret)
        click.echo("Store it now: it is not shown again.", err=True)


@command.command(epilog="Example:  hippocampus webhooks disable 01900000-0000-7000-8000-000000000000")
@endpoint_argument
@json_option
def disable(endpoint_id: UUID, as_json: bool) -> None:
    """Send nothing more to an endpoint. Its events are still stored, and can be replayed."""
    found = _on(endpoint_id, lambda hooks, app: hooks.disable(app, endpoint_id))
    output.write_record(output.plain(found), as_json=as_json)


@command.command(epilog="Example:  hippocampus webhooks enable 01900000-0000-7000-8000-000000000000")
@endpoint_argument
@json_option
def enable(endpoint_id: UUID, as_json: bool) -> None:
    """Send to an endpoint again what happens from now on."""
    found = _on(endpoint_id, lambda hooks, app: hooks.enable(app, endpoint_id))
    output.write_record(output.plain(found), as_json=as_json)


@command.command(epilog="Example:  hippocampus webhooks remove 01900000-0000-7000-8000-000000000000")
@endpoint_argument
@json_option
def remove(endpoint_id: UUID, as_json: bool) -> None:
    """Remove an endpoint, its secrets and its deliveries."""
    _on(endpoint_id, lambda hooks, app: hooks.remove(app, endpoint_id))
    if as_json:
        output.write_json({"removed": str(endpoint_id)})
    else:
        click.echo(f"Removed endpoint {endpoint_id}.")


@command.command(
    epilog="Example:  hippocampus webhooks deliveries 01900000-0000-7000-8000-000000000000 --status failed"
)
@endpoint_argument
@click.option("--status", type=click.Choice(DELIVERY_STATUSES), help="Only deliveries of this status.")
@page_options(50)
def deliveries(endpoint_id: UUID, status: DeliveryStatus | None, options: PageOptions) -> None:
    """List the deliveries to an endpoint, the newest first."""

    async def work(pool: Pool) -> Paged[WebhookDelivery]:
        pages = options.of("webhook deliveries", str(endpoint_id), status)
        hooks = WebhookService(pool)
        app = (await hooks.get(endpoint_id)).app_name
        found = await hooks.deliveries(app, endpoint_id, status=status, limit=options.limit, before=pages.begin(UUID))
        return pages.full(found, lambda each: each.id)

    empty = "There are no such deliveries: try `hippocampus webhooks ping`."
    options.write(databases.run(work), _DELIVERY_COLUMNS, _delivery_row, empty=empty)


@command.command(
    epilog="Example:  hippocampus webhooks replay 01900000-0000-7000-8000-000000000000 --since 2026-05-01T12:00:00Z"
)
@endpoint_argument
@click.option("--event", "event_id", type=click.UUID, help="One event, by its webhook-id.")
@click.option("--since", type=MOMENT, help="Events from this time on.")
@click.option("--until", type=MOMENT, help="Events before this time; now by default.")
@json_option
def replay(
    endpoint_id: UUID, event_id: UUID | None, since: datetime | None, until: datetime | None, as_json: bool
) -> None:
    """Send stored events to an endpoint again, under their former ids."""
    if (event_id is None) == (since is None):
        raise click.UsageError("Name an event with --event, or a range with --since; not both.")
    count = _on(
        endpoint_id,
        lambda hooks, app: hooks.replay(app, endpoint_id, event_id=event_id, since=since, until=until),
    )
    if as_json:
        output.write_json({"replayed": count})
    else:
        click.echo(f"{count} events are sent again." if count != 1 else "1 event is sent again.")


@command.command(epilog="Example:  hippocampus webhooks ping 01900000-0000-7000-8000-000000000000")
@endpoint_argument
@json_option
def ping(endpoint_id: UUID, as_json: bool) -> None:
    """Send a test event. `hippocampus webhooks deliveries` shows what became of it."""
    delivery = _on(endpoint_id, lambda hooks, app: hooks.ping(app, endpoint_id))
    if as_json:
        output.write_json({"delivery_id": str(delivery)})
    else:
        click.echo(f"Delivery {delivery} waits for a worker.")


def _on(endpoint_id: UUID, work: Callable[[WebhookService, str], Awaitable[Result]]) -> Result:
    """Run a call on an endpoint, whichever app it belongs to."""

    async def run(pool: Pool) -> Result:
        hooks = WebhookService(pool)
        return await work(hooks, (await hooks.get(endpoint_id)).app_name)

    return databases.run(run)


def _row(each: WebhookEndpoint) -> tuple[Any, ...]:
    status = "disabled" if each.disabled_at else f"{each.failures_in_row} failures" if each.failures_in_row else "good"
    return each.id, each.app_name, ",".join(each.event_types) or "every type", each.url, status, each.description


def _delivery_row(each: WebhookDelivery) -> tuple[Any, ...]:
    return (
        each.id,
        each.event_id,
        each.event_type,
        each.status,
        each.attempts,
        each.response_status,
        each.error_code,
        each.next_attempt_at,
        each.ended_at,
    )
