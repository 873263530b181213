"""`hippocampus completion SHELL`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_HIPPOCAMPUS_COMPLETE"


@click.command(
    epilog="Examples:  hippocampus completion bash > ~/.local/share/bash-completion/completions/hippocampus;"
    "  hippocampus completion zsh > ~/.zfunc/_hippocampus;"
    "  hippocampus completion fish > ~/.config/fish/completions/hippocampus.fish"
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script by which a shell completes commands, options and their values."""
    completion = get_completion_class(shell)
    assert completion is not None  # noqa: S101 - click has all three
    click.echo(completion(context.find_root().command, {}, "hippocampus", VARIABLE).source())
