"""`Space`: what is searched over, as axes of plain values and the plans of each combination; counted and walked, never held.

Combinations of axes come in order, the last axis fastest; where plans are searched over, each combination has the plans of
its model, devices and batch, in the order of `PlanSpace`. Points are numbered in this order.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from meshcast.base import UsageError
from meshcast.explore.plans import PlanSpace
from meshcast.explore.point import Point
from meshcast.explore.shape import ModelShape, model_shape, named_model
from meshcast.hardware import Cluster, named_with_changes, resolve
from meshcast.zoo import Plan

SEARCHES = ("best", "exhaustive", "tpe", "nsga2")  # ways to search a space
MODEL, SETTING, HARDWARE = "model", "set.", "hardware."


@functools.lru_cache(maxsize=4096)
def parsed_plan(text: str) -> Plan:
    """The plan of a text: points of a sweep have few different ones."""
    return Plan.parse(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceAxis:
    """Something with several values.

    Attributes:
        name: `model`; an option by its flat name (`on`, `devices`, `fidelity`, `plan`, ...); `set.NAME`, a setting of the model;
            or `hardware.KEY`, a number of the device or of a level of its network, as in `--on NAME+KEY=VALUE`.
        values: In order.
    """

    name: str
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise UsageError(f"{self.name} has no values", where="space", fix="give it one or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One value of each axis.

    Attributes:
        target: The model.
        asked: Options by their flat names, without a plan where plans are searched over.
        values: By the names of the axes.
        device_on: The name of hardware that has the same device: that of all points of which only the network differs.
    """

    target: str
    asked: Mapping[str, Any]
    values: Mapping[str, Any]
    device_on: str | None = None

    @property
    def shape(self) -> ModelShape:
        """The model's shape."""
        return model_shape(self.target, self.asked.get("settings", {}))

    @property
    def batch(self) -> int:
        """The global batch.

        Raises:
            UsageError: It is not set.
        """
        batch = self.shape.batch
        if batch is None:
            raise UsageError(
                "plans share out a global batch, and none is set", where="--set batch", fix="such as --set batch=1024"
            )
        return batch

    @property
    def devices(self) -> int:
        """How many devices there are.

        Raises:
            UsageError: Nobody says.
        """
        devices = self.asked.get("devices")
        if devices is None:
            raise UsageError(
                "plans are made for a number of devices, and none is given",
                where="--devices",
                fix="such as --devices 64",
            )
        return int(devices)

    def counted(self) -> tuple[int, float]:
        """The devices of its points, and what a step of them gets done, as far as is said."""
        plan = self.asked.get("plan")
        devices = self.asked.get("devices") or (parsed_plan(plan).devices if plan else 1)
        if named_model(self.target) is None:
            return int(devices), 1.0
        shape = self.shape
        return int(devices), float(shape.units(shape.batch) if shape.batch is not None else 1)

    def point(self, number: int, plan: Plan | None = None) -> Point:
        """The point with a plan."""
        asked = dict(self.asked) if plan is None else {**self.asked, "plan": str(plan)}
        return Point(number=number, target=self.target, asked=asked)


@dataclass(frozen=True, kw_only=True)
class Space:
    """What is searched over.

    Attributes:
        model: The model, where that is no axis.
        asked: Options that all points have, by their flat names; `settings` is a table.
        axes: What has several values.
        plans: Values of keys of plans, in place of the usual ones, where plans are searched over; None where they are not.
    """

    model: str | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)
    axes: tuple[SpaceAxis, ...] = ()
    plans: Mapping[str, tuple[Any, ...]] | None = None

    def __post_init__(self) -> None:
        names = [axis.name for axis in self.axes]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"{twice} is an axis twice", where="space", fix="give all of its values at once")
        if (self.model is None) == (MODEL not in names):
            raise UsageError("a space has one model, or an axis of models", where="space", fix="give model once")

    @cached_property
    def combinations(self) -> int:
        """How many combinations of values there are."""
        return math.prod(len(axis.values) for axis in self.axes)

    def walk(self) -> Iterator[Combination]:
        """Every combination of values."""
        for values in itertools.product(*(axis.values for axis in self.axes)):
            yield self._combination(dict(zip((axis.name for axis in self.axes), values, strict=True)))

    def _combination(self, values: dict[str, Any]) -> Combination:
        asked = {**self.asked, "settings": dict(self.asked.get("settings", {}))}
        changes: list[tuple[str, str]] = []
        for name, value in values.items():
            if name == MODEL:
                continue
            if name.startswith(SETTING):
                asked["settings"][name.removeprefix(SETTING)] = str(value)
            elif name.startswith(HARDWARE):
                changes.append((name.removeprefix(HARDWARE), str(value)))
            else:
                asked[name] = value
        device_on = asked.get("on")
        if changes:
            on = str(device_on)
            if on not in self._machines:
                self._machines[on] = resolve(on)
            machine = self._machines[on]
            levels = {level.name for level in machine.levels}
            asked["on"] = _with(on, machine, changes)
            of_device = [change for change in changes if change[0].partition(".")[0] not in levels]
            device_on = on if not of_device else asked["on"] if of_device == changes else _with(on, machine, of_device)
        return Combination(target=str(values.get(MODEL, self.model)), asked=asked, values=values, device_on=device_on)

    @cached_property
    def _machines(self) -> dict[str, Cluster]:
        """Hardware that numbers are changed of, by its name, looked up once."""
        return {}

    def plans_of(self, combination: Combination) -> PlanSpace | None:
        """The plans of a combination; None where plans are not searched over."""
        if self.plans is None:
            return None
        return PlanSpace(
            shape=combination.shape, devices=combination.devices, batch=combination.batch, choices=self.plans
        )

    def points(self) -> Iterator[Point]:
        """Every point, in order."""
        number = itertools.count()
        for combination in self.walk():
            plans = self.plans_of(combination)
            if plans is None:
                yield combination.point(next(number))
                continue
            for plan in plans:
                yield combination.point(next(number), plan)

    def __len__(self) -> int:
        """How many points there are; they are counted, not held."""
        if self.plans is None:
            return self.combinations
        return sum(1 for combination in self.walk() for _ in self.plans_of(combination) or ())


def _with(on: str, machine: Cluster, changes: list[tuple[str, str]]) -> str:
    """The name of a machine with changes."""
    told = ",".join(f"{key}={value}" for key, value in changes)
    return named_with_changes(on, machine, told, where="hardware")
