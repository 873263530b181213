"""`hippocampus tools`: an app's tools, where they come from, and what became of their calls."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click

from pulse.tools.records import EXECUTION_STATUSES, ExecutionStatus, SourceChange, Tool, ToolError, ToolExecution
from workers import settings
from workers.cli import databases, output
from workers.cli.groups import Listing
from workers.cli.options import json_option, known_or_set_up_app
from workers.cli.paging import Paged, PageOptions, page_options

if TYPE_CHECKING:
    from pulse.database import Pool
    from pulse.sandbox.service import Sandbox
    from pulse.tools.registry import ToolRegistry

Result = TypeVar("Result")

_COLUMNS = ("name", "kind", "source", "version", "active", "calls", "mean ms", "description")
_CALL_COLUMNS = ("time", "tool", "version", "user", "status", "code", "ms", "call", "id")
_SHOWN = 60

app_option = click.option("--app", required=True, help="The app whose tools these are.")
_read_app_option = click.option(
    "--app", required=True, callback=known_or_set_up_app, help="The app whose tools these are."
)
name_argument = click.argument("name")


@click.group(cls=Listing, epilog="Example:  hippocampus tools add pets pets.yaml --app shop")
def command() -> None:
    """Tools of an app's agents: from OpenAPI documents and MCP servers."""


@command.command("list", epilog="Example:  hippocampus tools list --app shop")
@_read_app_option
@click.option("--all", "inactive", is_flag=True, help="Also those that are disabled, or gone from their source.")
@page_options(100)
def list_(app: str, inactive: bool, options: PageOptions) -> None:
    """List tools by their names."""

    async def work(pool: Pool) -> Paged[Tool]:
        pages = options.of("tools", app, str(inactive))
        registry = _registry(pool, app)
        found = await registry.list_tools(inactive=inactive, limit=options.limit, after=pages.begin(str))
        return pages.full(found, lambda each: each.name)

    empty = "There are no tools: see `hippocampus tools add --help`."
    options.write(databases.run(work), _COLUMNS, _row, empty=empty)


@command.command(epilog="Example:  hippocampus tools add pets https://example.org/openapi.json --app shop")
@click.argument("source")
@click.argument("document")
@app_option
@click.option("--mcp", is_flag=True, help="DOCUMENT is the URL of an MCP server.")
@click.option("--base-url", help="Instead of the document's servers.")
@click.option(
    "--credential",
    "credentials",
    multiple=True,
    metavar="SCHEME=REFERENCE",
    help="Of a security scheme: env:TOOL_NAME or file:/run/secrets/name. Of an MCP server: bearer=… Repeatable.",
)
@click.option("--permissions", default="{}", help='Of all its tools, as JSON: {"rate_limit": 60}.')
@click.option("--allow-network", "networks", multiple=True, help="A private network that it may reach. Repeatable.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, 3600, min_open=True),
    metavar="SECONDS",
    help="Of each call; 30 by default, and 60 of an MCP server.",
)
@json_option
def add(
    source: str,
    document: str,
    app: str,
    mcp: bool,
    base_url: str | None,
    credentials: tuple[str, ...],
    permissions: str,
    networks: tuple[str, ...],
    timeout: float | None,
    as_json: bool,
) -> None:
    """Make tools of an OpenAPI document (a file or a URL), or of an MCP server; again: replace them."""
    references = dict(each.partition("=")[::2] for each in credentials)
    rules = _json_object("--permissions", permissions)
    if mcp and (base_url is not None or not set(references) <= {"bearer"}):
        raise click.UsageError("An MCP server has no --base-url, and one --credential: bearer=….")

    more = {} if timeout is None else {"timeout_seconds": timeout}

    async def work(registry: ToolRegistry) -> SourceChange:
        if mcp:
            return await registry.put_mcp(
                source,
                document,
                credential=references.get("bearer"),
                permissions=rules,
                allowed_networks=",".join(networks),
                **more,
            )
        where: str | Path = document if document.startswith(("http://", "https://")) else Path(document)
        return await registry.put_openapi(
            source,
            where,
            base_url=base_url,
            credentials=references,
            permissions=rules,
            allowed_networks=",".join(networks),
            **more,
        )

    change = _on(app, work)
    if as_json:
        output.write_json(output.plain(change))
        return
    counts = ((change.added, "added"), (change.changed, "changed"), (change.gone, "gone"))
    for names, what in counts:
        for name in names:
            click.echo(f"{what}  {name}")
    for where, why in change.skipped.items():
        click.echo(f"skipped {where}: {why}", err=True)
    if not any(names for names, _ in counts):
        click.echo("Nothing changed.")


@command.command(epilog="""Example:  hippocampus tools call list_pets '{"limit": 3}' --app shop --user ann""")
@name_argument
@click.argument("params", default="{}")
@_read_app_option
@click.option("--user", default="", help="On whose behalf.")
@json_option
def call(name: str, params: str, app: str, user: str, as_json: bool) -> int:
    """Call a tool of an OpenAPI document, an MCP server or the sandbox, and print its result."""
    given = _json_object("PARAMS", params)
    outcome = _on(app, lambda registry: registry.call(name, given, user_id=user))
    if as_json:
        output.write_json(output.plain(outcome))
    elif outcome.is_error:
        raise click.ClickException(f"{outcome.error_code}: {outcome.error}")
    else:
        output.write_json(outcome.value)
    return 1 if outcome.is_error else 0


@command.command(epilog="Example:  hippocampus tools confirm 0198c6f2-… --app shop --user ann")
@click.argument("execution_id", type=click.UUID, metavar="ID")
@app_option
@click.option("--user", default="", help="On whose behalf it was asked for.")
@click.option("--deny", is_flag=True, help="Refuse it instead.")
@json_option
def confirm(execution_id: UUID, app: str, user: str, deny: bool, as_json: bool) -> int:
    """Make a call that waits for a person, with exactly its arguments, or deny it: see `tools log --status waiting`."""
    outcome = _on(app, lambda registry: registry.confirm(execution_id, user_id=user, approved=not deny))
    is_denied = deny and outcome.error_code == "denied" and "denied" in (outcome.error or "")
    if as_json:
        output.write_json(output.plain(outcome))
    elif is_denied:
        click.echo("It is denied; nothing was called.")
    elif outcome.is_error:
        raise click.ClickException(f"{outcome.error_code}: {outcome.error}")
    else:
        output.write_json(outcome.value)
    return 1 if outcome.is_error and not is_denied else 0


@command.command("log", epilog="Example:  hippocampus tools log --app shop --status failed")
@_read_app_option
@click.option("--tool", "name", help="Only calls of this tool.")
@click.option("--user", help="Only calls on behalf of this user.")
@click.option("--status", type=click.Choice(EXECUTION_STATUSES), help="Only calls of this status.")
@page_options(50)
def log(app: str, name: str | None, user: str | None, status: ExecutionStatus | None, options: PageOptions) -> None:
    """List calls, refused ones too, the newest first."""

    async def work(pool: Pool) -> Paged[ToolExecution]:
        pages = options.of("tool calls", app, name, user, status)
        found = await _registry(pool, app).executions(
            name=name, user_id=user, status=status, limit=options.limit, before=pages.begin(UUID)
        )
        return pages.full(found, lambda each: each.id)

    options.write(databases.run(work), _CALL_COLUMNS, _call_row, empty="There are no such calls.")


@command.command(epilog="Example:  hippocampus tools show list_pets --app shop")
@name_argument
@_read_app_option
@json_option
def show(name: str, app: str, as_json: bool) -> None:
    """Show a tool with its schemas."""
    found = output.plain(_on(app, lambda registry: registry.get(name)))
    hidden = ("id", "operation", "source_id", "revision")
    output.write_record({key: value for key, value in found.items() if key not in hidden}, as_json=as_json)


@command.command(epilog="Example:  hippocampus tools disable list_pets --app shop")
@name_argument
@_read_app_option
@json_option
def disable(name: str, app: str, as_json: bool) -> None:
    """Refuse further calls of a tool; those that run end."""
    _changed(_on(app, lambda registry: registry.set_active(name, is_active=False)), "is disabled", as_json=as_json)


@command.command(epilog="Example:  hippocampus tools enable list_pets --app shop")
@name_argument
@_read_app_option
@json_option
def enable(name: str, app: str, as_json: bool) -> None:
    """Allow calls of a tool again."""
    _changed(_on(app, lambda registry: registry.set_active(name, is_active=True)), "is enabled", as_json=as_json)


@command.command(epilog="Example:  hippocampus tools rollback list_pets 1 --app shop")
@name_argument
@click.argument("version", type=click.IntRange(1))
@_read_app_option
@json_option
def rollback(name: str, version: int, app: str, as_json: bool) -> None:
    """Give a tool the definition of one of its versions, as its next version."""
    tool = _on(app, lambda registry: registry.rollback(name, version))
    _changed(tool, f"is as it was in version {version}, as version {tool.version}", as_json=as_json)


def _registry(pool: Pool, app: str, sandbox: Sandbox | None = None) -> ToolRegistry:
    from pulse.tools.registry import ToolRegistry

    return ToolRegistry(pool, app, sandbox=sandbox)


def _on(app: str, work: Callable[[ToolRegistry], Awaitable[Result]]) -> Result:
    async def run(pool: Pool) -> Result:
        from pulse.sandbox.service import Sandbox
        from workers.sandboxes import make_sandbox

        sandbox = Sandbox(pool, app, make_sandbox(settings.load()))
        try:
            async with _registry(pool, app, sandbox) as registry:
                return await work(registry)
        finally:
            await sandbox.close()

    try:
        return databases.run(run)
    except ToolError as error:
        raise click.ClickException(str(error)) from None


def _changed(tool: Tool, what: str, *, as_json: bool) -> None:
    if as_json:
        output.write_json({"name": tool.name, "version": tool.version, "is_active": tool.is_active})
    else:
        click.echo(f"{tool.name} {what}.")


def _json_object(what: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise click.UsageError(f"{what} must be a JSON object.")
    return found


def _row(each: Tool) -> tuple[Any, ...]:
    described = " ".join(each.description.split())
    return (
        each.name,
        each.kind,
        each.source,
        each.version,
        each.is_active,
        each.call_count,
        round(each.avg_latency_ms, 1),
        described if len(described) <= _SHOWN else f"{described[: _SHOWN - 1]}…",
    )


def _call_row(each: ToolExecution) -> tuple[Any, ...]:
    latency = None if each.latency_ms is None else round(each.latency_ms, 1)
    code = each.error_code
    return (
        each.created_at, each.tool_name, each.tool_version, each.user_id, each.status, code, latency,
        each.tool_call_id, each.id,
    )  # fmt: skip
