"""`Point`: one thing to predict, as plain values; `Outcome`: what came of it, as one row of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

Status = Literal["answered", "infeasible", "unsupported", "failed"]
# Parts of a step, as predictions have them, by what they are called in rows.
PARTS = ("compute", "memory", "exposed_communication", "overhead", "idle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A target with options, all of them texts and numbers: it is the same in a file, and in another process.

    Attributes:
        number: Its place in the space.
        target: A model's name, or a file.
        asked: Options by their flat names; `settings` is a table.
    """

    number: int
    target: str
    asked: Mapping[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, str]:
        """What is set of the model."""
        return dict(self.asked.get("settings", {}))

    @property
    def plan(self) -> str | None:
        """Its plan."""
        return self.asked.get("plan")

    def columns(self) -> dict[str, Any]:
        """What it asks for, flat: a setting is `set.NAME`."""
        flat = {name: value for name, value in self.asked.items() if name != "settings"}
        return {"target": self.target, **flat, **{f"set.{name}": text for name, text in self.settings.items()}}

    def to_json(self) -> dict[str, Any]:
        """The object that `from_json` reads."""
        return {"number": self.number, "target": self.target, "asked": dict(self.asked)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Point:
        """The point of an object."""
        return cls(number=data["number"], target=data["target"], asked=data["asked"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a point.

    Attributes:
        status: Whether there is a step, and if not, why.
        step_time_s: Seconds of a step.
        units_per_s: Tokens, images or samples a second, of all devices.
        unit: Which of them.
        mfu: The model's share of the peak FLOP/s.
        devices: How many run it.
        device: What each of them is.
        memory_bytes: What the fullest device must hold.
        capacity_bytes: What a device can hold.
        energy_j: Of a step, of all devices.
        breakdown_s: Parts of the step by `PARTS`; they add up to it.
        fidelity: Where most of the computing time comes from.
        error: Why there is no step.
        code: The error's code.
        seconds: That the answer took.
        alone: Why it was not worked out with others that differ in their hardware alone; None where that was not tried, or done.
    """

    status: Status
    step_time_s: float | None = None
    units_per_s: float | None = None
    unit: str | None = None
    mfu: float | None = None
    devices: int | None = None
    device: str | None = None
    memory_bytes: int | None = None
    capacity_bytes: int | None = None
    energy_j: float | None = None
    breakdown_s: Mapping[str, float] = field(default_factory=dict)
    fidelity: str | None = None
    error: str | None = None
    code: str | None = None
    seconds: float = 0.0
    alone: str | None = None

    @property
    def answered(self) -> bool:
        """Whether there is a step."""
        return self.step_time_s is not None

    @property
    def watts(self) -> float | None:
        """Average power of all devices."""
        return self.energy_j / self.step_time_s if self.energy_j is not None and self.step_time_s else None

    @property
    def memory_share(self) -> float | None:
        """The share of a device's memory that is needed; above 1 where it does not fit."""
        return (
            self.memory_bytes / self.capacity_bytes if self.memory_bytes is not None and self.capacity_bytes else None
        )

    @property
    def binds(self) -> str | None:
        """The part of a step that takes most of its time, in words."""
        if not self.breakdown_s or not self.step_time_s:
            return "memory capacity" if self.status == "infeasible" and self.memory_bytes else None
        part = max(self.breakdown_s, key=lambda name: self.breakdown_s[name])
        words = {"memory": "moving data", "exposed_communication": "communication", "idle": "idle (bubble)"}
        return f"{words.get(part, part)} {self.breakdown_s[part] / self.step_time_s:.0%}"

    def columns(self) -> dict[str, Any]:
        """The row without nested tables."""
        flat = {name: value for name, value in asdict(self).items() if name not in ("breakdown_s", "alone")}
        parts = {f"{part}_s": self.breakdown_s.get(part) for part in PARTS}
        return {**flat, **parts, "memory_share": self.memory_share, "watts": self.watts, "binds": self.binds}

    def to_json(self) -> dict[str, Any]:
        """The object that `from_json` reads."""
        told = {**asdict(self), "breakdown_s": dict(self.breakdown_s)}
        return told if self.alone is not None else {name: value for name, value in told.items() if name != "alone"}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        """The outcome of an object; what a later version has besides is passed over."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})
