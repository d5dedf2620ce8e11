"""What an answer gets done for its energy and its money, from a prediction and a price.

With u units (tokens, images, samples) of a device and second, a step of t seconds, e joules of a device and step, and p dollars
of a device and hour:

    joules a unit = e / (u t)        dollars of a million units = 1e6 p / (3600 u)

Devices alone are counted: hosts, network and cooling come on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshcast.evidence.comparison.cell import Cell
from meshcast.hardware import Price

_HOUR_S, _MILLION = 3600.0, 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """Figures of one answer; None where there is no answer, no rate or no price.

    Attributes:
        mfu: The model's FLOPs over the device's peak.
        memory_share: Peak memory over the device's.
        joules_per_unit: Of all devices.
        usd_per_million: Of all devices, for a million units.
    """

    mfu: float | None = None
    memory_share: float | None = None
    joules_per_unit: float | None = None
    usd_per_million: float | None = None

    def to_json(self) -> dict[str, Any]:
        """What a cell's object has of them besides the prediction."""
        return {
            "memory_share": self.memory_share,
            "joules_per_unit": self.joules_per_unit,
            "usd_per_million_units": self.usd_per_million,
        }


def gains_of(cell: Cell, price: Price | None) -> Gains:
    """The figures of a cell, by the price of one of its devices."""
    prediction = cell.prediction
    if prediction is None:
        return Gains()
    memory = prediction.get("memory_bytes") or {}
    share = memory["peak"] / memory["capacity"] if memory.get("capacity") and memory.get("peak") is not None else None
    done, seconds = prediction.get("throughput") or {}, cell.step_time_s
    rate, energy = done.get("per_device_s"), prediction.get("energy_j")
    joules = cost = None
    if rate and seconds:
        joules = energy / (rate * seconds) if energy is not None else None
        cost = _MILLION * price.usd_per_hour / (_HOUR_S * rate) if price is not None else None
    mfu = prediction.get("mfu") if seconds else None
    return Gains(mfu=mfu, memory_share=share, joules_per_unit=joules, usd_per_million=cost)
