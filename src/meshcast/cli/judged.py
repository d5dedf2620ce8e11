"""Rows of a validation as they come: counted for a person, printed for a program, and kept when Ctrl-C ends it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import typer

from meshcast.cli.flags import runs
from meshcast.cli.patience import INTERRUPTED, counted


class Printed(Protocol):
    """A row that has a JSON form."""

    def to_json(self) -> dict[str, Any]:
        """The row's object."""
        ...


R = TypeVar("R", bound=Printed)
# Options that no verb has which judges programs, with the reasons.
JUDGED = {
    "devices": "programs run on as many as they were measured on",
    "durations": "programs are no traces",
    "levers": "predictions are judged as they are",
    "what_if": "hardware is as it was measured",
}
# The clocks of measured programs are known as well.
MEASURED = JUDGED | {"clocks": "short runs are compared at burst clocks, energies and long ones at sustained clocks"}
# And those of rows which name hardware of their own.
ROWS = JUDGED | {
    "on": "every row names its hardware",
    "placement": "it is of one program's devices",
    "fabric": "it is of one program's devices",
    "beside": "it is of one program's devices",
    "conditions": "rows were measured on healthy devices",
}


# A verb that judges programs of a folder: what of options it has flags for.
runs_programs = functools.partial(runs, "lowering", "estimate", "network", "run", besides=("indices", "approximate"))


def judged(rows: Iterable[R], total: int, what: str, *, json: bool) -> tuple[list[R], bool]:
    """(the rows that were done, whether Ctrl-C ended it before the others)."""
    from meshcast.cli.app import emit_json

    done: list[R] = []
    try:
        for row in counted(rows, total, what):
            done.append(row)
            if json:
                emit_json(row.to_json())
    except KeyboardInterrupt:
        return done, True
    return done, False


def end_judgement(summary: dict[str, Any], printed: Callable[[], None], *, json: bool, interrupted: bool) -> None:
    """Tells the summary of what was judged: as an object, or printed for a person; where Ctrl-C ended it, exits with 130."""
    from meshcast.cli.app import emit_json

    if json:
        emit_json(summary)
    else:
        printed()
    if interrupted:
        raise typer.Exit(INTERRUPTED)
