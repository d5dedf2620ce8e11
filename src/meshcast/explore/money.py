"""Days, money, energy and carbon dioxide of a whole training run, from its tokens and the step of one point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshcast.base import UsageError
from meshcast.explore.point import Outcome
from meshcast.hardware import Price, world_grid

DAY_S, HOUR_S, KWH_J = 86400.0, 3600.0, 3.6e6
_SCALES = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRun:
    """A whole training run.

    Attributes:
        days: How long it takes.
        usd: What its devices cost; None without a price.
        energy_kwh: What its devices draw; None where that is not known.
        carbon_kg: What that stands for; None likewise.
    """

    days: float
    usd: float | None
    energy_kwh: float | None
    carbon_kg: float | None

    def to_json(self) -> dict[str, Any]:
        """The object of a point."""
        return {"days": self.days, "cost_usd": self.usd, "energy_kwh": self.energy_kwh, "carbon_kg": self.carbon_kg}


def whole_run(outcome: Outcome, tokens: float, price: Price | None, kg_per_kwh: float | None = None) -> WholeRun | None:
    """A run over so many tokens, images or samples, at the rate of one point; None where that has none.

    seconds = tokens / rate; dollars = seconds x devices x price; joules = those of a step x steps. Devices alone are counted:
    hosts, network, cooling and time that is lost to failures come on top.

    Args:
        outcome: The point's.
        tokens: How many.
        price: Of a device and hour.
        kg_per_kwh: Carbon dioxide of electricity; None: the world's on average (`hardware.world_grid`).
    """
    if not outcome.units_per_s or not outcome.step_time_s:
        return None
    seconds = tokens / outcome.units_per_s
    energy = outcome.energy_j * seconds / outcome.step_time_s / KWH_J if outcome.energy_j is not None else None
    grid = world_grid().kg_per_kwh if kg_per_kwh is None else kg_per_kwh
    usd = price.usd_per_hour * (outcome.devices or 0) * seconds / HOUR_S if price is not None else None
    carbon = energy * grid if energy is not None else None
    return WholeRun(days=seconds / DAY_S, usd=usd, energy_kwh=energy, carbon_kg=carbon)


def usd_per_million(usd_per_hour: float, devices: int, seconds: float, units: float) -> float:
    """Dollars of a million tokens, images or samples, of which so many take so long: `price x devices x hours / units x 10^6`."""
    return usd_per_hour * devices * seconds / HOUR_S / units * 1e6


def count_of(text: str, *, where: str) -> float:
    """A large number as people write it: `15T`, `300B`, `1.5e12`.

    Raises:
        UsageError: It is none.
    """
    scale = _SCALES.get(text[-1:], 1.0)
    try:
        value = float(text[:-1] if scale != 1.0 else text) * scale
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UsageError(f"{text!r} is no number of tokens", where=where, fix="such as 15T, 300B or 1.5e12")
    return value
