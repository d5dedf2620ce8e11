"""Run folders of `meshcast compare` in the list of runs: what was compared, on what, and the fastest of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from meshcast.report import COMPARED

_BYTES = 64 * 2**20  # of a table that is read; one of thousands of cells has some
_SAID = 3  # names of a kind that are told one by one


def comparison_listed(folder: Path) -> dict[str, Any]:
    """A comparison as the list of runs has it; of a damaged table what is known without it."""
    cells = [cell for cell in _cells(folder / COMPARED) if isinstance(cell, dict)]
    timed = [cell for cell in cells if isinstance(cell.get("step_time_s"), (int, float))]
    # A coarse fidelity is faster by what it leaves out: the fastest is that of the finest, as in its report.
    finest = [cell for cell in timed if cell.get("finest") in (None, cell.get("fidelity"))] or timed
    best = min(finest, key=lambda cell: float(cell["step_time_s"]), default={})
    targets, machines, fidelities = ([cell.get(name) for cell in cells] for name in ("target", "on", "fidelity"))
    title = (
        f"{_several(targets, 'targets')} on {_several(machines, 'machines')} by {_several(fidelities, 'fidelities')}"
    )
    return {
        "name": folder.name,
        "kind": "comparison",
        "state": "done" if cells else "stopped",
        "changed": changed_at(folder),
        "title": title if cells else "",
        "evaluated": len(timed),
        "best": {"plan": None, **{name: best.get(name) for name in ("on", "devices", "step_time_s", "mfu")}},
    }


def changed_at(folder: Path) -> str:
    """When something in a folder has changed last."""
    changed = max((each.stat().st_mtime for each in folder.iterdir()), default=folder.stat().st_mtime)
    return datetime.fromtimestamp(changed, UTC).isoformat(timespec="seconds")


def _cells(table: Path) -> list[Any]:
    try:
        if table.stat().st_size > _BYTES:
            return []
        found = json.loads(table.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    cells = found.get("table") if isinstance(found, dict) else None
    return cells if isinstance(cells, list) else []


def _several(names: Iterable[Any], what: str) -> str:
    known = list(dict.fromkeys(Path(str(name)).name for name in names if name))
    return ", ".join(known) if len(known) <= _SAID else f"{len(known)} {what}"
