"""Cells with given times, without any prediction behind them."""

from __future__ import annotations

from typing import Any

from meshcast.base.errors import MeshcastError
from meshcast.evidence.comparison import Cell, Comparison
from meshcast.evidence.comparison.cell import Ask, refused_cell

Times = dict[str, dict[str, float | MeshcastError]]


def answered(target: str, on: str, fidelity: str, seconds: float, *, by: str | None = None) -> Cell:
    """A cell with a time; `by` names the fidelity that stood in."""
    prediction: dict[str, Any] = {
        "step_time_s": seconds,
        "step_time_interval_s": [0.9 * seconds, 1.1 * seconds],
        "fidelity": by or fidelity,
        "infeasible": None,
    }
    ask = Ask(target=target, on=on, fidelity=fidelity)
    return Cell(ask=ask, status="answered", exit_code=0, prediction=prediction, own=by is None)


def infeasible(target: str, on: str, fidelity: str, *, demand: float, bound: float) -> Cell:
    """A cell of a program that does not fit."""
    problem = {"resource": "memory_bytes", "demand": demand, "bound": bound, "gap": demand - bound, "levers": []}
    prediction = {"step_time_s": None, "step_time_interval_s": None, "fidelity": fidelity, "infeasible": problem}
    ask = Ask(target=target, on=on, fidelity=fidelity)
    return Cell(ask=ask, status="infeasible", exit_code=3, prediction=prediction)


def compared(times: dict[str, Times], *, named: frozenset[str] = frozenset()) -> Comparison:
    """A comparison of `{target: {fidelity: {device: seconds or an error}}}`."""
    targets = tuple(times)
    fidelities = tuple(dict.fromkeys(f for found in times.values() for f in found))
    on = tuple(dict.fromkeys(d for found in times.values() for devices in found.values() for d in devices))
    cells = []
    for target in targets:
        for device in on:
            for fidelity in fidelities:
                value = times[target].get(fidelity, {}).get(device)
                if isinstance(value, MeshcastError):
                    cells.append(refused_cell(Ask(target=target, on=device, fidelity=fidelity), value))
                elif value is not None:
                    cells.append(answered(target, device, fidelity, value))
    return Comparison(targets=targets, on=on, fidelities=fidelities, named=named, cells=tuple(cells))
