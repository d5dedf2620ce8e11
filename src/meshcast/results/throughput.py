"""What a step gets done: tokens, images or samples a second, and the model's arithmetic behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshcast.base import format_rate
from meshcast.zoo import Unit

DAY_S = 86_400.0
# Of the peak: clocks go up to 8 % above those that data sheets state peaks at (1.98 to 1.83 GHz, H100).
_ABOVE_THE_DATA_SHEET = 1.1
_SCALES = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """What all devices together get done in seconds of a step: `per_s = units / seconds`.

    Attributes:
        unit: What is counted.
        units: How many of them, on all devices.
        seconds: How long they take: a step, or where a model answers whole requests.
        devices: How many devices share the work.
        model_flops: The model's own matrix FLOPs of a device in `seconds`, none recomputed or repeated; None where unknown.
        requests: Requests that are answered in `seconds`; None where a step answers none to its end.
    """

    unit: Unit
    units: float
    seconds: float
    devices: int
    model_flops: float | None
    requests: int | None = None

    @property
    def per_s(self) -> float:
        """Units per second of all devices."""
        return self.units / self.seconds

    @property
    def per_device_s(self) -> float:
        """Units per second of each device."""
        return self.per_s / self.devices

    @property
    def per_day(self) -> float:
        """Units of all devices in 24 hours without a pause."""
        return self.per_s * DAY_S

    @property
    def model_flops_per_device_s(self) -> float | None:
        """FLOP/s of the model on each device: of a step MFU times the peak, of requests over both of their passes."""
        return None if self.model_flops is None else self.model_flops / self.seconds

    def to_json(self) -> dict[str, Any]:
        """Under `throughput` of a prediction."""
        return {
            "unit": self.unit,
            "per_s": self.per_s,
            "per_device_s": self.per_device_s,
            "per_day": self.per_day,
            "model_flops_per_device_s": self.model_flops_per_device_s,
            **({"requests_per_s": self.requests / self.seconds} if self.requests is not None else {}),
        }

    def rows(self) -> list[tuple[str, str]]:
        """For people: one line."""
        said = f"{format_count(self.per_s)} {self.unit}/s"
        said += f", {format_count(self.per_device_s)} per device" if self.devices > 1 else ""
        said += f", {format_count(self.per_day)} per day"
        if self.requests is not None:
            said += f", {format_count(self.requests / self.seconds)} requests/s"
        if self.model_flops_per_device_s:
            said += f"; model {format_rate(self.model_flops_per_device_s, 'FLOP/s')} per device"
        return [("throughput", said)]


def within_peak(share: float) -> bool:
    """Whether a device can reach such a share of its peak: an estimator of times alone, such as a constant, need not know it."""
    return share <= _ABOVE_THE_DATA_SHEET


def format_count(number: float) -> str:
    """A number for people, three digits of it: "287,000", "24.8 billion", "0.42"."""
    for size, name in _SCALES:
        if number >= 0.9995 * size:
            return f"{format_count(number / size)} {name}" if number / size >= 999.5 else f"{number / size:.3g} {name}"
    if number >= 999.5:
        digits = 10 ** (len(str(round(number))) - 3)
        return f"{round(number / digits) * digits:,}"
    return f"{number:.3g}"
