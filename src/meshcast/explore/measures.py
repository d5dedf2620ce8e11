"""What points are judged by: objectives, the best that a bound leaves them, and constraints."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from meshcast.base import UsageError, nearest
from meshcast.explore.bounds import PlanBound
from meshcast.explore.money import usd_per_million
from meshcast.explore.point import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a point before it is predicted.

    Attributes:
        devices: How many.
        units: What a step gets done.
        capacity_bytes: What a device holds.
        price: Of a device and hour; None where nobody says.
    """

    devices: int
    units: float
    capacity_bytes: float
    price: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Something to have little of.

    Attributes:
        name: What it is called.
        unit: What it is counted in.
        of: Its value for an outcome that has a step.
        least: The smallest value that a bound leaves.
        more: Whether people want much of it; its value is then negative.
    """

    name: str
    unit: str
    of: Callable[[Outcome, Known], float]
    least: Callable[[PlanBound, Known], float]
    more: bool = False

    def shown(self, value: float) -> float:
        """The value as people read it."""
        return -value if self.more else value


def _units(outcome: Outcome, known: Known) -> float:
    return outcome.units_per_s * outcome.step_time_s if outcome.units_per_s and outcome.step_time_s else known.units


def _cost(seconds: float, units: float, known: Known) -> float:
    """Of a million units."""
    if known.price is None:
        raise cost_needs_a_price()
    return usd_per_million(known.price, known.devices, seconds, units)


def cost_needs_a_price() -> UsageError:
    """Why nothing is counted in money."""
    return UsageError("cost needs a price", where="--price", fix="give --price, or a device with a list price")


OBJECTIVES: dict[str, Objective] = {
    each.name: each
    for each in (
        Objective(name="time", unit="s", of=lambda o, k: o.step_time_s or math.inf, least=lambda b, k: b.time_s),
        Objective(
            name="throughput",
            unit="units/s",
            more=True,
            of=lambda o, k: -_units(o, k) / (o.step_time_s or math.inf),
            least=lambda b, k: -k.units / b.time_s if b.time_s else -math.inf,
        ),
        Objective(
            name="energy",
            unit="J/unit",
            of=lambda o, k: (o.energy_j if o.energy_j is not None else math.inf) / _units(o, k),
            least=lambda b, k: 0.0,
        ),
        Objective(
            name="cost",
            unit="USD per million units",
            of=lambda o, k: _cost(o.step_time_s or math.inf, _units(o, k), k),
            least=lambda b, k: _cost(b.time_s, k.units, k),
        ),
        Objective(
            name="memory",
            unit="share",
            of=lambda o, k: o.memory_share or 0.0,
            least=lambda b, k: b.memory_bytes / k.capacity_bytes,
        ),
        Objective(
            name="devices",
            unit="devices",
            of=lambda o, k: float(o.devices or k.devices),
            least=lambda b, k: float(k.devices),
        ),
    )
}


def objective_named(name: str) -> Objective:
    """The objective of a name.

    Raises:
        UsageError: There is none.
    """
    if name not in OBJECTIVES:
        raise UsageError(f"no objective {name!r}", where="objectives", fix=nearest(name, OBJECTIVES))
    return OBJECTIVES[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """What a point must keep to; None where nothing is asked.

    Attributes:
        devices: At most so many.
        step_time_s: At most so many seconds a step.
        watts: At most so much power, of all devices.
        memory_share: At most such a share of a device's memory.
    """

    devices: int | None = None
    step_time_s: float | None = None
    watts: float | None = None
    memory_share: float | None = None

    def allow(self, outcome: Outcome) -> bool:
        """Whether an outcome keeps to them."""
        return all(
            limit is None or (value is not None and value <= limit)
            for limit, value in (
                (self.devices, outcome.devices),
                (self.step_time_s, outcome.step_time_s),
                (self.watts, outcome.watts),
                (self.memory_share, outcome.memory_share),
            )
        )

    def rule_out(self, bound: PlanBound, known: Known) -> bool:
        """Whether a bound says that a point cannot keep to them, or cannot run at all."""
        room = (self.memory_share if self.memory_share is not None else 1.0) * known.capacity_bytes
        return (
            bound.memory_bytes > min(room, known.capacity_bytes)
            or (self.devices is not None and known.devices > self.devices)
            or (self.step_time_s is not None and bound.time_s > self.step_time_s)
        )


def constraints_of(given: Mapping[str, float | None]) -> Constraints:
    """The constraints of a table.

    Raises:
        UsageError: One is not known.
    """
    known = Constraints.__dataclass_fields__
    for name in given:
        if name not in known:
            raise UsageError(f"no constraint {name!r}", where="constraints", fix=nearest(name, known))
    return Constraints(**given)  # type: ignore[arg-type]
