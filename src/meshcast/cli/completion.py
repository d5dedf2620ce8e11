"""`meshcast completion SHELL`: the script that completes verbs and flags, as the parser's own library writes it."""

from __future__ import annotations

import os
import shlex
from typing import Annotated, Literal

import typer

VARIABLE = "_MESHCAST_COMPLETE"
"""The environment variable that a shell asks for completions by."""
# Where shells put the words that are typed so far.
_TYPED = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")


def completion_command(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="bash|zsh|fish", help="The shell.")],
) -> None:
    """Prints the script that completes verbs and flags in a shell.

    bash: save it as ~/.local/share/bash-completion/completions/meshcast. zsh: as _meshcast in a folder of $fpath.
    fish: as ~/.config/fish/completions/meshcast.fish.
    """
    from typer._completion_shared import get_completion_script

    typer.echo(get_completion_script(prog_name="meshcast", complete_var=VARIABLE, shell=shell))


def words_typed() -> set[str]:
    """Words of the line that a shell wants to have completed, which then knows its answer's form; none where we are run."""
    if VARIABLE not in os.environ:
        return set()
    from typer._completion_classes import completion_init

    completion_init()
    line = next((os.environ[name] for name in _TYPED if name in os.environ), "")
    try:
        return set(shlex.split(line))
    except ValueError:  # a quote that is not closed yet
        return set(line.split())
