"""Groups of commands: the command that a noun alone stands for, and suggestions for a mistyped word."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Verbs(click.Group):
    """A group that suggests a command for a mistyped word."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest one."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            raise click.UsageError(f"There is no command {args[0]!r}: {_suggestion(args[0], known)}", ctx)
        return super().resolve_command(ctx, args)


class Listing(Verbs):
    """A noun: `hippocampus jobs --failed` is `hippocampus jobs list --failed`."""

    listing = "list"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the command where only its options are given, but not while a shell completes commands."""
        is_bare = not args and not ctx.resilient_parsing
        if is_bare or (args and args[0].startswith("-") and args[0] not in self.get_help_option_names(ctx)):
            args = [self.listing, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer the commands, and the options of the list."""
        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            known = {item.value for item in found}
            options = self.commands[self.listing].shell_complete(ctx, incomplete)
            found += [item for item in options if item.value not in known]
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the list too: they may follow the noun."""
        listed = self.commands[self.listing]
        records: list[Any] = [record for each in listed.params if (record := each.get_help_record(ctx)) is not None]
        with formatter.section("Options of the list"):
            formatter.write_dl(records)
        super().format_options(ctx, formatter)


def _suggestion(word: str, known: Iterable[str]) -> str:
    import difflib

    names = list(known)
    near = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}."
