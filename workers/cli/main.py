"""The entry point of the command line: which commands exist, and what becomes of their errors.

Nothing that a command needs is imported before the command is called.
"""

from __future__ import annotations

import importlib
import keyword
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import click

from pulse.process import gc_pause
from workers.cli.exit_codes import INTERRUPTED
from workers.cli.groups import Verbs

#: The commands with their help, in the order in which a newcomer meets them. Each is `command` in the module of its
#: name in `workers.cli.commands`.
COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "demo": "Show the whole path on a conversation: append, consolidate, search.",
        "up": "Start every role, and an embedded PostgreSQL if needed, until Ctrl-C.",
        "down": "Stop what `up` runs, in a terminal or detached.",
        "ingest": "Append files of conversations to sessions.",
        "export": "Write sessions with their events and states as JSONL.",
        "import": "Store sessions that `export` wrote.",
        "import-adk": "Copy sessions, events and states of Google ADK's own database.",
        "search": "Search memories, facts and turns.",
        "context": "Pack a context window for the next turn.",
        "recall": "Print what is known for a query: facts, passages with dates.",
        "ask": "Answer a question from the memory, with citations.",
        "profile": "Print what is known of a user, on one page.",
        "memories": "List memories, or show one.",
        "memory": "Trace, pin, restore, export and import memories.",
        "facts": "List facts about a user; histories, candidates, merged keys.",
        "instructions": "Show and change the instructions of an app's agents.",
        "replay": "Extract memories again, and show what would change.",
        "users": "List users, or show one.",
        "sessions": "List sessions; show, finalize, delete one.",
        "runs": "List a session's runs; show, cancel one.",
        "jobs": "List, show, enqueue, retry and cancel consolidation jobs.",
        "traces": "List what was done, and show one trace as a waterfall.",
        "policies": "List, show, set and reset apps' policies.",
        "retention": "Archive weak memories, or show what would be archived, when and why.",
        "forget": "Erase a user, a session, events or a memory for good.",
        "keys": "Create, list, show and revoke keys of the HTTP API.",
        "audit": "List and export who did what in administration.",
        "webhooks": "Report an app's events to addresses; list and replay deliveries.",
        "tools": "List, add, call, disable and roll back an app's tools; list the calls.",
        "knowledge": "Add, search, list, show and remove documents of an app's corpora.",
        "pulse": "Run the autonomic layer; stage, promote and roll back its rules.",
        "mcp": "Serve a user's memory to an MCP client on standard input and output.",
        "move": "Move an app to another cell, an installation with its own database.",
        "status": "Show which roles run, which jobs wait, and what failed.",
        "doctor": "Check the installation, and name the fix for each problem.",
        "migrate": "Bring the database to this program's schema.",
        "grant-roles": "Create roles of PostgreSQL with the least that each process needs.",
        "completion": "Print the script by which a shell completes commands.",
        "writer": "Run the session writer: the HTTP API.",
        "worker": "Run a worker of a pool.",
    }
)

#: A longer word is cut to this many characters in an error message.
WORD_CHARS_SHOWN = 80
_LONG_WORD = re.compile(r"\S{200,}")
#: Lone surrogates: how Python represents bytes that are not valid UTF-8.
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Commands(Verbs):
    """A group whose commands are loaded when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in their order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command."""
        if cmd_name not in COMMANDS:
            return None
        module = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name.replace("-", "_")
        with gc_pause.paused():
            command: click.Command = importlib.import_module(f"workers.cli.commands.{module}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _show_version(context: click.Context, _option: click.Parameter, requested: bool) -> None:
    if requested and not context.resilient_parsing:
        import importlib.metadata

        try:
            version = importlib.metadata.version("pg-hippocampus")
        except importlib.metadata.PackageNotFoundError:
            version = "of a checkout that is not installed"
        click.echo(f"hippocampus {version}")
        context.exit()


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Without DATABASE_URL, an embedded PostgreSQL below HIPPOCAMPUS_HOME is used. Exit codes: 0 done,"
    " 1 failed, 2 wrong usage or configuration, 130 interrupted.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def root() -> None:
    """Sessions and long-term memory for agents, on one PostgreSQL.

    Start with:  hippocampus demo
    """
    from workers.process import logs

    # Until here the program was imported, which an interrupt ends at once; from here on it is cleaned up after.
    if getattr(signal.getsignal(signal.SIGINT), "__name__", "") == "end_quietly":
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A command's output is its answer; a role configures its own log.
    logs.configure("error", "console")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. An expected error is one sentence on standard error."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _require_text(words)
        outcome = root.main(args=words, prog_name="hippocampus", standalone_mode=False, obj=tuple(words))
        sys.stdout.flush()
    except click.exceptions.Exit as exit_:
        return int(exit_.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stderr.write(f"{error.format_message()}\n")
        return error.exit_code
    except click.ClickException as error:
        return _complain(_sentence(error), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _complain("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader has closed the pipe, as `| head` does. What is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        from workers.cli import errors

        if _is_interrupt(error):
            return _complain("interrupted", INTERRUPTED)
        explained = errors.explain(error)
        if explained is None:
            raise
        return _complain(*explained)
    return outcome if isinstance(outcome, int) else 0


def _is_interrupt(error: BaseException) -> bool:
    """Whether an error is what a KeyboardInterrupt became, as in the middle of an import."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        if isinstance(each, KeyboardInterrupt):
            return True
        seen.add(id(each))
        each = each.__cause__ or each.__context__
    return False


def _require_text(words: Sequence[str]) -> None:
    """Refuse words that PostgreSQL cannot hold: no row has them. A file may have any name."""
    for word in words:
        if "\0" in word:
            raise click.UsageError(f"{word!r} contains a NUL character, which PostgreSQL cannot store: remove it.")
        if not word.isascii() and _SURROGATE.search(word) and not Path(word).exists():
            raise click.UsageError(f"{word!r} is not valid UTF-8: check the encoding of the terminal (LANG).")


def _sentence(error: click.ClickException) -> str:
    """Return click's message on one line, without the usage."""
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if not isinstance(error, click.UsageError) or context is None:
        return message
    return f"{message}{'' if message.endswith(('.', '?', '!')) else '.'} See `{context.command_path} --help`."


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"hippocampus: {_LONG_WORD.sub(_cut, message)}\n")
    return code


def _cut(word: re.Match[str]) -> str:
    return f"{word[0][:WORD_CHARS_SHOWN]}…"
