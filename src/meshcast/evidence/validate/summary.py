"""What a validation comes to: measures per group and in all, the worst rows, and peers on the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshcast.evidence.validate.measures import Measures, measure_groups
from meshcast.evidence.validate.peers import PeerFigures
from meshcast.evidence.validate.programs import Pair, ProgramRow, in_fit

SCHEMA = "meshcast.validation/1"
WORST = 5
FITTED, HELD_OUT = "fitted", "held_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureMeasures:
    """Measures of one figure (time, memory, energy, sustained time) or of one peer."""

    all: Measures
    groups: Mapping[str, Measures]

    def to_json(self) -> dict[str, Any]:
        """All rows' measures, and each group's under `groups`."""
        return {**self.all.to_json(), "groups": {name: group.to_json() for name, group in self.groups.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The whole of a validation."""

    rows: tuple[ProgramRow, ...] = field(repr=False)
    time: FigureMeasures
    memory: FigureMeasures
    energy: FigureMeasures
    sustained: FigureMeasures
    peers: Mapping[str, FigureMeasures]
    not_run: int = 0
    halves: Mapping[str, FigureMeasures] = field(default_factory=dict)  # times by half, where that was asked for

    @property
    def failed(self) -> list[ProgramRow]:
        """Rows without a prediction."""
        return [row for row in self.rows if row.time is None]

    @property
    def worst(self) -> list[ProgramRow]:
        """The rows farthest off, by the factor between prediction and measurement."""
        return farthest(self.rows)

    @property
    def below_speed_of_light(self) -> list[ProgramRow]:
        """Rows that ran faster than their interval's lower end, farthest first."""
        return sorted((row for row in self.rows if row.below_interval), key=lambda row: -_factor(row))

    def within_interval(self, group: str | None = None) -> float | None:
        """Share of predicted rows whose measured time lies in the interval; None without such rows."""
        rows = [row for row in self.rows if row.time and group in (None, row.group)]
        return sum(row.within_interval for row in rows) / len(rows) if rows else None

    def to_json(self) -> dict[str, Any]:
        """The contract's last line; what is not in the contract stands after it."""
        time = self.time.to_json()
        for name, group in time["groups"].items():
            group["within_interval"] = self.within_interval(name)
        return {
            "schema": SCHEMA,
            "kind": "programs",
            **time,
            "within_interval": self.within_interval(),
            "below_speed_of_light": [row.id for row in self.below_speed_of_light],
            "worst": [row.id for row in self.worst],
            "memory": self.memory.to_json(),
            "energy": self.energy.to_json(),
            "sustained": self.sustained.to_json(),
            "peers": {name: peer.to_json() for name, peer in self.peers.items()},
            "not_run": self.not_run,
            **({"halves": {name: half.to_json() for name, half in self.halves.items()}} if self.halves else {}),
        }


def summarise(
    rows: Sequence[ProgramRow],
    peers: Mapping[str, PeerFigures] | None = None,
    *,
    not_run: int = 0,
    halves: bool = False,
) -> Summary:
    """The summary of rows.

    Args:
        rows: Every row of the validation, failed ones too.
        peers: What others predict, by their name.
        not_run: Rows that were asked for but not reached (Ctrl-C).
        halves: Also the two halves apart: the one that fits may be made on, and the one that is left for judging.
    """
    return Summary(
        rows=tuple(rows),
        time=compare(rows, lambda row: row.time),
        # A row without a measured figure, or without a prediction, is not a failure of this figure.
        memory=compare((row for row in rows if row.memory), lambda row: row.memory),
        energy=compare((row for row in rows if row.energy), lambda row: row.energy),
        sustained=compare((row for row in rows if row.sustained), lambda row: row.sustained),
        peers={name: _peer(rows, figures) for name, figures in (peers or {}).items()},
        not_run=not_run,
        halves=_halves(rows) if halves else {},
    )


def _halves(rows: Sequence[ProgramRow]) -> dict[str, FigureMeasures]:
    return {
        name: compare((row for row in rows if in_fit(row) is fitted), lambda row: row.time)
        for name, fitted in ((FITTED, True), (HELD_OUT, False))
    }


def compare(rows: Iterable[ProgramRow], figure: Callable[[ProgramRow], Pair | None]) -> FigureMeasures:
    """Measures of one figure of every row."""

    def pair(row: ProgramRow) -> tuple[float, float] | None:
        found = figure(row)
        return (found.predicted, found.measured) if found else None

    everything, groups = measure_groups(rows, lambda row: row.group, pair)
    return FigureMeasures(all=everything, groups=groups)


def farthest(rows: Iterable[ProgramRow]) -> list[ProgramRow]:
    """The few rows farthest off, by the factor between prediction and measurement."""
    return sorted((row for row in rows if row.time), key=lambda row: -_factor(row))[:WORST]


def _peer(rows: Sequence[ProgramRow], figures: PeerFigures) -> FigureMeasures:
    """A peer held against the times we are held against."""
    measured = [row for row in rows if row.measured is not None]

    def pair(row: ProgramRow) -> Pair | None:
        predicted = figures.get(row.id)
        return Pair(predicted=predicted, measured=row.measured) if predicted and row.measured else None

    return compare(measured, pair)


def _factor(row: ProgramRow) -> float:
    time = row.time
    return time.factor if time else 0.0
