"""`meshcast completion SHELL`: the script that completes verbs, flags and names, as the parser's own library writes it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable
from typing import Annotated, Literal

import typer

VARIABLE = "_MESHCAST_COMPLETE"
"""The environment variable that a shell asks for completions by."""
# Where shells put the words that are typed so far.
_TYPED = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")

# A file of $fpath is run when something is first to be completed: it has to complete that, beside saying who does from then on.
_ZSH_LAST = "compdef _meshcast_completion meshcast"
_ZSH_BOTH = f"""\
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _meshcast_completion "$@"
else
  {_ZSH_LAST}
fi"""
Names = Callable[[], Iterable[str]]


def completed(names: Names) -> Callable[[str], list[str]]:
    """What a shell is offered for a word: names that begin with it; of a list with commas, for the last of it."""

    def begun(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last)]

    return begun


def hardware_names() -> list[str]:
    """Devices and clusters of the catalogue."""
    from meshcast.hardware import cluster_names, device_names

    return [*device_names(), *cluster_names()]


def model_names() -> list[str]:
    """Models of the zoo, and those with embedding tables."""
    from meshcast.jobs import SHIPPED
    from meshcast.zoo import models

    return [*models(), *SHIPPED]


def traced_names() -> list[str]:
    """What may stand behind `trace`: a model, or the second word of a verb that has two."""
    return ["link", "share", *model_names()]


def completion_command(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="bash|zsh|fish", help="The shell.")],
) -> None:
    """Prints the script that completes verbs, flags and names in a shell.

    bash: save it as ~/.local/share/bash-completion/completions/meshcast. zsh: as _meshcast in a folder of $fpath.
    fish: as ~/.config/fish/completions/meshcast.fish.
    """
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="meshcast", complete_var=VARIABLE, shell=shell)
    if shell == "zsh":
        script = script.replace(_ZSH_LAST, _ZSH_BOTH)
    typer.echo(script)


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
