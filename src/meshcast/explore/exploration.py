"""`Exploration`: what a search has found: the best points, the front, and its JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshcast.base import MeshcastError
from meshcast.explore.bounds import PlanBound
from meshcast.explore.measures import Constraints, Known, Objective
from meshcast.explore.money import usd_per_million, whole_run
from meshcast.explore.point import Outcome, Point
from meshcast.explore.search import Found, Tally
from meshcast.explore.sensitivity import Sensitivity
from meshcast.explore.space import HARDWARE
from meshcast.hardware import Price, rented_as, swept_numbers, world_grid
from meshcast.zoo import Plan

SCHEMA = "meshcast.exploration/1"
POINT_SCHEMA = "meshcast.exploration-point/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """What a run over many tokens is counted with.

    Attributes:
        tokens: Tokens, images or samples of a whole run; None where none is asked for.
        prices: Of a device and hour, by the name of what it is rented as.
        kg_per_kwh: Carbon dioxide of electricity; None: the world's on average.
    """

    tokens: float | None = None
    prices: dict[str, Price] = field(default_factory=dict)
    kg_per_kwh: float | None = None

    def price(self, device: str | None) -> Price | None:
        """The price of a device."""
        return self.prices.get(rented_as(device or ""))

    def grid(self) -> dict[str, Any] | None:
        """What carbon dioxide is counted with, and who says so; None where none is."""
        if self.tokens is None:
            return None
        world = world_grid()
        value, said = (
            (world.kg_per_kwh, world.source.title) if self.kg_per_kwh is None else (self.kg_per_kwh, "as given")
        )
        return {"kg_per_kwh": value, "said": said}

    def told(self, outcome: Outcome) -> dict[str, Any]:
        """What a point costs: its whole run where that is asked for, and otherwise a million of what it gets done."""
        price = self.price(outcome.device)
        if self.tokens is not None:
            run = whole_run(outcome, self.tokens, price, self.kg_per_kwh)
            return run.to_json() if run is not None else {}
        if price is None or not outcome.units_per_s or not outcome.devices:
            return {}
        return {"usd_per_million": usd_per_million(price.usd_per_hour, outcome.devices, 1.0, outcome.units_per_s)}

    def to_json(self) -> dict[str, Any]:
        """The object that `from_json` reads."""
        prices = {name: {"usd_per_hour": each.usd_per_hour, "said": each.said} for name, each in self.prices.items()}
        return {"tokens": self.tokens, "prices": prices, "kg_per_kwh": self.kg_per_kwh, "grid": self.grid()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Accounts:
        """The accounts of an object."""
        given = data.get("prices", {}).items()
        prices = {name: Price(usd_per_hour=float(each["usd_per_hour"]), said=str(each["said"])) for name, each in given}
        return cls(tokens=data.get("tokens"), prices=prices, kg_per_kwh=data.get("kg_per_kwh"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """What came of a search.

    Attributes:
        found: Points that were predicted, in the order of the space.
        tally: How many there are, and what became of them.
        objectives: What was wanted; the first decides what is best.
        top: How many points were wanted.
        per: Axes whose values have best points of their own.
        accounts: What whole runs are counted with.
        constraints: What points must keep to.
        left_out: Plans that were not predicted, with the last bound of each.
        failed: Points that went wrong, of all that were predicted; of many points `found` has some alone.
        interrupted: Whether it was ended before its end.
        again: The best points looked at again with other options, in the same order.
        then: These options.
        sensitivity: Numbers of the best point's hardware, each a tenth better, what helps most first.
    """

    found: tuple[Found, ...]
    tally: Tally
    objectives: tuple[Objective, ...]
    top: int = 5
    per: tuple[str, ...] = ()
    accounts: Accounts = field(default_factory=Accounts)
    constraints: Constraints = field(default_factory=Constraints)
    left_out: tuple[tuple[Plan, PlanBound], ...] = field(default=(), repr=False)
    failed: int = 0
    interrupted: bool = False
    again: tuple[Found, ...] = ()
    then: dict[str, Any] = field(default_factory=dict)
    sensitivity: tuple[Sensitivity, ...] = ()

    @property
    def allowed(self) -> list[Found]:
        """Points that run and keep to the constraints, the best first; of equal ones the first of the space."""
        chosen = [each for each in self.found if each.allowed]
        return sorted(chosen, key=lambda each: (self.value(each), each.point.number))

    def value(self, found: Found, objective: Objective | None = None) -> float:
        """What a point has of an objective; less is better."""
        return (objective or self.objectives[0]).of(found.outcome, found.known)

    @property
    def best(self) -> list[Found]:
        """The best points; with `per`, of each group, groups in the order of their best."""
        return [each for members in grouped(self.allowed, self.per) for each in members[: self.top]]

    @property
    def swaps(self) -> list[tuple[Found, Found]]:
        """Pairs of the best points whose order the second look turns round: first those that lead at first."""
        times = [each.outcome.step_time_s for each in self.again]
        found = []
        for first, mine in enumerate(times):
            for second in range(first + 1, len(times)):
                other = times[second]
                if mine is not None and other is not None and other < mine:
                    found.append((self.again[first], self.again[second]))
        return found

    @property
    def pareto(self) -> list[Found]:
        """Points that no other is as good as in everything and better in something, in the order of the first objective."""
        return front(self.allowed, lambda each: [self.value(each, objective) for objective in self.objectives])

    def row(self, found: Found) -> dict[str, Any]:
        """A point as one flat row."""
        return self._row(found.point, found.outcome, found.known, allowed=found.allowed)

    def row_of(self, point: Point, outcome: Outcome) -> dict[str, Any]:
        """A finished point of a run folder, held or not, as one flat row: the same as `row` gives."""
        price = self.accounts.price(outcome.device)
        known = Known(
            devices=outcome.devices or 1,
            units=1.0,  # where the outcome has no rate
            capacity_bytes=float(outcome.capacity_bytes or math.inf),
            price=price.usd_per_hour if price is not None else None,
        )
        return self._row(point, outcome, known, allowed=outcome.answered and self.constraints.allow(outcome))

    def _row(self, point: Point, outcome: Outcome, known: Known, *, allowed: bool) -> dict[str, Any]:
        row = {"number": point.number, **point.columns(), **outcome.columns()}
        if allowed:
            # An earlier run may have come to hardware whose price this one, which was interrupted, never looked up.
            counted = [each for each in self.objectives if each.name != "cost" or known.price is not None]
            row |= {f"objective.{each.name}": each.shown(each.of(outcome, known)) for each in counted}
        return row | self.accounts.told(outcome) | _numbers(point)

    def to_json(self) -> dict[str, Any]:
        """The summary, the contract's object."""
        tally = self.tally
        return {
            "schema": SCHEMA,
            "space": tally.space,
            "evaluated": tally.evaluated,
            "infeasible": tally.infeasible,
            "left_out": tally.bounded,
            "probes": tally.probes,
            "below_bounds": tally.below_bounds,
            **({"alone": dict(tally.alone)} if tally.alone else {}),
            "objectives": [each.name for each in self.objectives],
            "best": [self.row(each) for each in self.best],
            "pareto": [self.row(each) for each in self.pareto],
            **(
                {"accounts": self.accounts.to_json()}
                if self.accounts.prices or self.accounts.tokens is not None
                else {}
            ),
            "failed": self.failed,
            "interrupted": self.interrupted,
            **({"again": [self.row(each) for each in self.again], "then": self.then} if self.then else {}),
            **({"swaps": [[a.point.number, b.point.number] for a, b in self.swaps]} if self.then else {}),
            **({"sensitivity": [each.to_json() for each in self.sensitivity]} if self.sensitivity else {}),
        }

    def point_lines(self, finished: Iterable[tuple[Point, Outcome]] = ()) -> Iterator[dict[str, Any]]:
        """The object of each point that was predicted, in the order of the space.

        Args:
            finished: All of them, as a run folder has them: of many points `found` has some alone.
        """
        held = {each.point.number: self.row(each) for each in self.found}
        rows: Iterable[dict[str, Any]] = held.values()
        if len(held) < self.tally.evaluated:
            rows = (held.get(point.number) or self.row_of(point, outcome) for point, outcome in finished)
        for row in rows:
            yield {"schema": POINT_SCHEMA, **row}


def _numbers(point: Point) -> dict[str, float]:
    """The numbers that a point's hardware has otherwise than what it starts from: to sort, group and plot by."""
    on = point.asked.get("on")
    try:
        return {f"{HARDWARE}{key}": value for key, value in (swept_numbers(on) if isinstance(on, str) else {}).items()}
    except MeshcastError:  # which the point says itself
        return {}


def grouped(points: Iterable[Found], per: Sequence[str]) -> list[list[Found]]:
    """Points with the same values of some axes, groups and members in the order in which they come."""
    groups: dict[tuple[Any, ...], list[Found]] = {}
    for each in points:
        groups.setdefault(tuple(each.values.get(name) for name in per), []).append(each)
    return list(groups.values())


def front(points: Iterable[Found], values_of: Callable[[Found], Sequence[float]]) -> list[Found]:
    """The points that none other dominates: as good in all values, and better in one. Less is better.

    Points are looked at in the order of their values: whoever dominates one comes before it (Kung, Luccio and Preparata 1975). Of
    equal ones the first is kept.
    """
    listed = list(points)
    values = [tuple(values_of(point)) for point in listed]
    kept: list[int] = []
    for number in sorted(range(len(listed)), key=lambda number: (values[number], number)):
        if not any(all(a <= b for a, b in zip(values[one], values[number], strict=True)) for one in kept):
            kept.append(number)
    return [listed[number] for number in kept]
