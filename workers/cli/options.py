"""Options that several commands share."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

#: The largest count, and the largest number of an event, that the database can hold.
COUNT_MAX = 2**31 - 1
NUMBER_MAX = 2**63 - 1
Function = TypeVar("Function", bound=Callable[..., Any])


def json_option(function: Function) -> Function:
    """Add --json to a command."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


#: In the context of a command: the app that it reads, which must exist.
APP_READ = "workers.cli.app_read"
#: There: the user that it reads, of whom the app must hold something.
USER_READ = "workers.cli.user_read"
#: There: the app counts as existing with keys, webhooks, tools, instructions, corpora or styles of facts alone.
APP_MAY_BE_SET_UP = "workers.cli.app_may_be_set_up"
#: There: the app counts as existing with entries of the audit log alone.
APP_MAY_BE_LOGGED = "workers.cli.app_may_be_logged"


def known_app(context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Have it checked that the app exists, once the database is open: the callback of an --app that is read."""
    if value is not None:
        context.meta[APP_READ] = value
    return value


def known_user(context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Have it checked that the app, if it is named too, has the user: the callback of a --user that is read."""
    if value is not None:
        context.meta[USER_READ] = value
    return value


def known_or_set_up_app(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """As `known_app`, for what is made before an app's first session."""
    context.meta[APP_MAY_BE_SET_UP] = True
    return known_app(context, option, value)


def known_or_logged_app(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """As `known_or_set_up_app`, for what stays of an app when all else of it is gone."""
    context.meta[APP_MAY_BE_LOGGED] = True
    return known_or_set_up_app(context, option, value)


_CALLBACKS = {"app": known_app, "user": known_user}


#: Adds --agent to a command that runs a writer.
agents_option = click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NAME=MODULE:ATTRIBUTE",
    help="Run this agent: a function of a RunContext, or an agent of Google ADK; see HIPPOCAMPUS_AGENTS.",
)


def confirm(question: str) -> None:
    """Ask before something is done for good, for a command with --yes.

    Raises:
        click.Abort: the answer is no.
        click.UsageError: standard input ended before the answer.
    """
    try:
        click.confirm(question, abort=True, err=True)
    except click.Abort as abort:
        if not isinstance(abort.__context__, EOFError) or sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise click.UsageError(
            "Standard input ended before the answer, so nothing was changed: add --yes to do it without being asked."
        ) from None


def filter_options(*names: str) -> Callable[[Function], Function]:
    """Add --app, --user or --session to a command, by which it filters."""

    def decorate(function: Function) -> Function:
        for name in reversed(names):
            function = click.option(f"--{name}", help=f"Only of this {name}.", callback=_CALLBACKS.get(name))(function)
        return function

    return decorate


app_filter = filter_options("app")


def bundled(name: str, record: type[Any], *options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Add options to a command, which receives their values as one argument: a dataclass with a field for each."""
    fields = [field.name for field in dataclasses.fields(record)]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **values: Any) -> Any:
            given = {field: values.pop(field) for field in fields}
            return function(*arguments, **values, **{name: record(**given)})

        for option in reversed(options):
            call = option(call)
        return call

    return decorate
