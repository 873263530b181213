"""The command line's door: which commands there are, and what becomes of their errors.

Exit codes: 0 done; 1 failed (nothing found that was asked for by name, a refused change, a failed job);
2 wrong usage or configuration, nothing was tried; 130 interrupted.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import keyword
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import asyncpg
import click

from hippocampus.errors import HippocampusError
from pulse.errors import DatabaseUnreachableError, PulseError, SchemaError
from workers.cli.groups import Verbs
from workers.embedded.binaries import EmbeddedServerError
from workers.failures import DATABASE_FAULTS
from workers.pools import UnknownPoolError
from workers.process import logs
from workers.settings import SettingsError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

#: In the order in which a newcomer meets them. A role's process loads its own command alone.
COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "demo": "Show the whole path on a conversation: in, consolidated, searched.",
        "up": "Start every role, and an embedded PostgreSQL if needed, until Ctrl-C.",
        "ingest": "Append a file of conversations to sessions.",
        "export": "Write sessions with their events and states as JSONL.",
        "import": "Store sessions that `export` wrote.",
        "import-adk": "Copy sessions, events and states of Google ADK's own database.",
        "search": "Search memories, facts and recent turns.",
        "context": "Pack a context window for the next turn.",
        "memories": "List what is remembered, or show a memory.",
        "memory": "Trace, pin, restore, export and import what is remembered.",
        "facts": "List what is known of a user; histories, unsure facts, merged keys.",
        "instructions": "Show and change what an app's agents are told.",
        "replay": "Draw memories anew, and show what would change.",
        "users": "List users, or show one.",
        "sessions": "List sessions; show, finalize, delete one.",
        "runs": "List a session's runs; show, cancel one.",
        "jobs": "List, show, enqueue, retry and cancel consolidation jobs.",
        "policies": "List, show, set and reset apps' policies.",
        "retention": "Archive what became too weak, or say what would go, when and why.",
        "forget": "Forget a user, a session, events or a memory for good.",
        "keys": "Make, list, show and revoke keys of the HTTP API.",
        "status": "Show what runs, what waits, and what failed.",
        "doctor": "Check the installation, and say what to mend.",
        "migrate": "Bring the database to this program's schema.",
        "completion": "Print what makes a shell complete the commands.",
        "writer": "Run the session writer: the HTTP API.",
        "worker": "Run a worker of a pool.",
    }
)

#: Of a word that an error quotes, where it is much longer.
WORD_CHARS_SHOWN = 80
_LONG_WORD = re.compile(r"\S{200,}")
#: Half of a character: what Python makes of bytes that are no UTF-8.
_HALF = re.compile(r"[\ud800-\udfff]")

#: What the configuration, not the request, is to blame for.
_CONFIGURATION_ERRORS = (
    SettingsError,
    UnknownPoolError,
    EmbeddedServerError,
    DatabaseUnreachableError,
    SchemaError,
)


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
        command: click.Command = importlib.import_module(f"workers.cli.commands.{module}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _show_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        try:
            number = importlib.metadata.version("hippocampus")
        except importlib.metadata.PackageNotFoundError:
            number = "of a checkout that is not installed"
        click.echo(f"hippocampus {number}")
        context.exit()


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Without DATABASE_URL, an embedded PostgreSQL below HIPPOCAMPUS_HOME is used. Exit codes: 0 done,"
    " 1 failed, 2 wrong usage or configuration, 130 interrupted.",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show it.")
def root() -> None:
    """Sessions and long-term memory for agents, on one PostgreSQL.

    Begin with:  hippocampus demo
    """
    # Of a command, people read the answer; a role sets up its own log.
    logs.configure("error", "console")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Expected errors are one sentence on standard error."""
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
        return _complain("interrupted", EXIT_INTERRUPTED)
    except _CONFIGURATION_ERRORS as error:
        return _complain(error, EXIT_USAGE)
    except (PulseError, HippocampusError, TimeoutError) as error:
        return _complain(error, EXIT_FAILED)
    except BrokenPipeError:
        # The reader has seen enough, as with `| head`. What is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except asyncpg.InsufficientPrivilegeError as error:
        return _complain(f"PostgreSQL refuses ({error.args[0]}): `hippocampus doctor` names the grant.", EXIT_USAGE)
    except asyncpg.DataError as error:
        return _complain(f"{_first_line(error)}: this is more than the database holds.", EXIT_FAILED)
    except DATABASE_FAULTS as error:
        if isinstance(error, OSError) and error.filename is not None:
            return _complain(f"{error.filename} can't be used: {error.strerror}.", EXIT_FAILED)
        return _complain(f"{_first_line(error)}: see that PostgreSQL runs (`hippocampus doctor`), and try again.", 1)
    except UnicodeError as error:
        return _complain(f"This is no UTF-8 text ({error}): make it UTF-8, as with `iconv -t UTF-8`.", EXIT_FAILED)
    return outcome if isinstance(outcome, int) else 0


def _require_text(words: Sequence[str]) -> None:
    """Refuse words that PostgreSQL can't hold: no row has them. A file may have any name."""
    for word in words:
        if "\0" in word:
            raise click.UsageError(f"{word!r} holds a NUL character, which no text may: leave it out.")
        if not word.isascii() and _HALF.search(word) and not Path(word).exists():
            raise click.UsageError(f"{word!r} is no UTF-8 text: see the terminal's encoding (LANG).")


def _sentence(error: click.ClickException) -> str:
    """Return what click would say in several lines, without the usage."""
    said = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if not isinstance(error, click.UsageError) or context is None:
        return said
    return f"{said}{'' if said.endswith(('.', '?', '!')) else '.'} See `{context.command_path} --help`."


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _complain(error: object, code: int) -> int:
    sys.stderr.write(f"hippocampus: {_LONG_WORD.sub(_cut, str(error))}\n")
    return code


def _cut(word: re.Match[str]) -> str:
    return f"{word[0][:WORD_CHARS_SHOWN]}…"
