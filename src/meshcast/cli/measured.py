"""`meshcast compare TARGET --on X --measured TRACE`: printing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from meshcast.cli.patience import patience

if TYPE_CHECKING:
    from meshcast.evidence import Ask
    from meshcast.options import Options


def show_measured(
    ask: Ask, measured: list[str], options: Options, *, steps: int | None, module: str | None, json: bool
) -> None:
    """Prints a prediction beside traces; what is no trace of the program is refused after it is shown."""
    from meshcast.cli.app import emit_json
    from meshcast.evidence import compare_measured, print_reality, refuse_strangers

    asked = options.having(on=ask.on, fidelity=ask.fidelity)
    with patience(str(ask)):
        reality = compare_measured(ask.target, measured, asked, steps=steps, module=module)
    if json:
        emit_json(reality.to_json())
    else:
        print_reality(reality)
    sys.stdout.flush()
    refuse_strangers(reality)
