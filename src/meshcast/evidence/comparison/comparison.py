"""`Comparison`: targets x devices x fidelities, and what the table says: ratios, orders, agreement."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from meshcast.base import VERSION
from meshcast.evidence.comparison.agreement import Agreement, Swap, Times, agreement
from meshcast.evidence.comparison.cell import Ask, Cell
from meshcast.evidence.comparison.gains import Gains, gains_of
from meshcast.hardware import Price

SCHEMA = "meshcast.comparison/1"
# From coarse to fine. Fidelities of outsiders stand before these: nobody said that they are better than anything.
LADDER = ("roofline", "analytical", "simulated", "profiled", "compiled", "auto")
BUG = 1


def ladder_place(fidelity: str) -> int:
    """Where a fidelity stands between coarse and fine."""
    return LADDER.index(fidelity) if fidelity in LADDER else -1


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The answers of several fidelities for several targets on several devices.

    Attributes:
        targets: Names of the targets, as asked for.
        on: Devices and clusters.
        fidelities: Fidelities, from the one to be shown first.
        named: Those that were asked for by their own name, not by `all`: one of them that answers nothing is a mistake.
        cells: All answers, by target, then device, then fidelity; fewer than there are questions when interrupted.
        named_by: By target, what it was named by; the same where nothing was tried of it.
        tried: By target, what was tried of it (`plan`, `batch`, `stack`, ...), as it was written.
        prices: By device, what one costs an hour, where that is known.
    """

    targets: tuple[str, ...]
    on: tuple[str, ...]
    fidelities: tuple[str, ...]
    cells: tuple[Cell, ...] = field(repr=False)
    named: frozenset[str] = frozenset()
    named_by: Mapping[str, str] = field(default_factory=dict)
    tried: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    prices: Mapping[str, Price] = field(default_factory=dict)

    @cached_property
    def _by_ask(self) -> dict[Ask, Cell]:
        return {cell.ask: cell for cell in self.cells}

    @property
    def not_run(self) -> int:
        """Questions without an answer yet."""
        return len(self.targets) * len(self.on) * len(self.fidelities) - len(self.cells)

    def cell(self, target: str, on: str, fidelity: str) -> Cell | None:
        """The answer to one question; None where it was not reached."""
        return self._by_ask.get(Ask(target=target, on=on, fidelity=fidelity))

    def times(self, fidelity: str) -> Times:
        """Step times that are a fidelity's own, by target and device; a program that does nothing has none to compare."""
        own = ((cell, cell.own_time_s) for cell in self.cells if cell.ask.fidelity == fidelity)
        return {(cell.ask.target, cell.ask.on): time for cell, time in own if time}

    def ratio_to_best(self, cell: Cell) -> float | None:
        """A cell's step time over that of the fastest device, for the same target in the same fidelity."""
        rivals = [self.cell(cell.ask.target, on, cell.ask.fidelity) for on in self.on]
        times = [rival.step_time_s for rival in rivals if rival is not None and rival.step_time_s is not None]
        return cell.step_time_s / min(times) if cell.step_time_s is not None and min(times) > 0 else None

    @property
    def varied(self) -> bool:
        """Whether anything besides devices and fidelities was tried."""
        return any(self.tried.values())

    def gains(self, cell: Cell) -> Gains:
        """What a cell gets done, and what that costs."""
        return gains_of(cell, self.prices.get(cell.ask.on))

    def finest(self, target: str, on: str) -> Cell | None:
        """The finest fidelity's own answer for a target on a device."""
        found = [self.cell(target, on, fidelity) for fidelity in self.fidelities]
        own = [cell for cell in found if cell is not None and cell.own_time_s is not None]
        return max(own, key=lambda cell: ladder_place(cell.ask.fidelity), default=None)

    def ratio_to_finest(self, cell: Cell) -> float | None:
        """A cell's step time over that of the finest fidelity, for the same target on the same device."""
        finest = self.finest(cell.ask.target, cell.ask.on)
        if finest is None or not finest.step_time_s or cell.step_time_s is None:
            return None
        return cell.step_time_s / finest.step_time_s

    def order(self, target: str, fidelity: str) -> tuple[tuple[str, float], ...]:
        """Devices with their step times, the fastest first; those without an answer of the fidelity's own are missing."""
        times = [(on, time) for (name, on), time in self.times(fidelity).items() if name == target]
        return tuple(sorted(times, key=lambda item: item[1]))

    @cached_property
    def agreements(self) -> tuple[Agreement, ...]:
        """Every pair of fidelities."""
        times = {fidelity: self.times(fidelity) for fidelity in self.fidelities}
        return tuple(agreement((a, b), times[a], times[b]) for a, b in itertools.combinations(self.fidelities, 2))

    @property
    def swaps(self) -> tuple[Swap, ...]:
        """All pairs of devices that change places between two fidelities, the plainest first."""
        found = [swap for pair in self.agreements for swap in pair.swaps]
        return tuple(sorted(found, key=lambda swap: -swap.weight))

    @property
    def exit_code(self) -> int:
        """0 when every target and every fidelity asked for by name was answered somewhere; a bug is always 1.

        A device that a program does not fit on, or that a fidelity does not know, is what a comparison is there to
        show. Where nothing at all was answered for a target, or by a named fidelity, the gravest of its reasons counts.
        """
        groups = [[c for c in self.cells if c.ask.target == target] for target in self.targets]
        groups += [[c for c in self.cells if c.ask.fidelity == fidelity] for fidelity in self.named]
        codes = [cell.exit_code for cells in groups if not any(c.status == "answered" for c in cells) for cell in cells]
        return BUG if any(cell.exit_code == BUG for cell in self.cells) else max(codes, default=0)

    def table(self) -> list[dict[str, Any]]:
        """One flat row a cell, for data frames and CSV: `pandas.DataFrame(comparison.table())`."""
        return [self._row(cell) for cell in self.cells]

    def _row(self, cell: Cell) -> dict[str, Any]:
        finest = self.finest(cell.ask.target, cell.ask.on)
        memory = (cell.prediction or {}).get("memory_bytes") or {}
        served = (cell.prediction or {}).get("serving") or {}
        done = (cell.prediction or {}).get("throughput") or {}
        low, high = cell.interval_s or (None, None)
        return {
            "target": cell.ask.target,
            "on": cell.ask.on,
            "fidelity": cell.ask.fidelity,
            "status": cell.status,
            "step_time_s": cell.step_time_s,
            "step_time_low_s": low,
            "step_time_high_s": high,
            "ratio_to_best": self.ratio_to_best(cell),
            "ratio_to_finest": self.ratio_to_finest(cell),
            "finest": finest.ask.fidelity if finest is not None else None,
            "answered_by": cell.answered_by,
            "own": cell.own,
            "memory_peak_bytes": memory.get("peak"),
            "memory_capacity_bytes": memory.get("capacity"),
            "energy_j": (cell.prediction or {}).get("energy_j"),
            "mfu": (cell.prediction or {}).get("mfu"),
            "ttft_s": served.get("ttft_s"),
            "tpot_s": served.get("tpot_s"),
            "throughput_unit": done.get("unit"),
            "throughput_per_s": done.get("per_s"),
            "throughput_per_device_s": done.get("per_device_s"),
            "reason": cell.reason or None,
            **self.gains(cell).to_json(),
            **{f"try.{name}": value for name, value in self.tried.get(cell.ask.target, {}).items()},
        }

    def cell_json(self, cell: Cell) -> dict[str, Any]:
        """A cell's object with its ratios to other cells."""
        finest = self.finest(cell.ask.target, cell.ask.on)
        return {
            **cell.to_json(),
            "tried": dict(self.tried.get(cell.ask.target, {})),
            **self.gains(cell).to_json(),
            "ratio_to_best": self.ratio_to_best(cell),
            "ratio_to_finest": self.ratio_to_finest(cell),
            "finest": finest.ask.fidelity if finest is not None else None,
        }

    def to_json(self) -> dict[str, Any]:
        """The summary object: the last line of `compare --json`."""
        statuses = [cell.status for cell in self.cells]
        return {
            "schema": SCHEMA,
            "targets": list(self.targets),
            "on": list(self.on),
            "fidelities": list(self.fidelities),
            "cells": len(self.cells),
            "not_run": self.not_run,
            "statuses": {s: statuses.count(s) for s in ("answered", "infeasible", "unsupported", "failed")},
            "orders": {
                target: {
                    fidelity: [{"on": on, "step_time_s": time} for on, time in self.order(target, fidelity)]
                    for fidelity in self.fidelities
                }
                for target in self.targets
            },
            "prices": {
                on: {"usd_per_device_hour": price.usd_per_hour, "said": price.said} for on, price in self.prices.items()
            },
            "agreements": [pair.to_json() for pair in self.agreements],
            "tool": {"version": VERSION},
        }

    def __str__(self) -> str:
        from meshcast.evidence.comparison.tables import comparison_text

        return comparison_text(self)

    def _repr_html_(self) -> str:
        from meshcast.evidence.comparison.tables import comparison_html

        return comparison_html(self)
