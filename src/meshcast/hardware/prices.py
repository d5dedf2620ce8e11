"""What a device costs an hour: dated list prices with their sources; and what a kilowatt-hour stands for in carbon dioxide."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshcast.hardware.device import Device, Source

_FILE = Path(__file__).parent / "catalogue" / "prices.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPrice:
    """What one device costs.

    Attributes:
        usd_per_hour: US dollars of a device and hour.
        offer: Whose price it is, and of what.
        date: Of when.
        source: Where it stands.
    """

    usd_per_hour: float
    offer: str
    date: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """What electricity stands for.

    Attributes:
        kg_per_kwh: Kilograms of carbon dioxide of a kilowatt-hour.
        date: Of when.
        note: What it is an average of.
        source: Where it stands.
    """

    kg_per_kwh: float
    date: str
    note: str
    source: Source


def list_price(device: Device) -> ListPrice | None:
    """The list price of a device, or of the one that it is based on; None where the catalogue has none."""
    known = _data()["devices"]
    base = device.name.partition("+")[0]  # a what-if device is rented as what it starts from
    name = next((each for each in (device.name, base, *device.bases) if each in known), None)
    if name is None:
        return None
    found = known[name]
    return ListPrice(
        usd_per_hour=float(found["usd_per_hour"]),
        offer=found["offer"],
        date=found["date"],
        source=_source(found["source"]),
    )


def world_grid() -> Grid:
    """The world's electricity on average."""
    found = _data()["grid"]
    return Grid(
        kg_per_kwh=float(found["kg_per_kwh"]),
        date=found["date"],
        note=found["note"],
        source=_source(found["source"]),
    )


def priced_devices() -> tuple[str, ...]:
    """The devices that the catalogue has a list price of."""
    return tuple(_data()["devices"])


def _source(name: str) -> Source:
    found = _data()["sources"][name]
    return Source(title=found["title"], url=found["url"])


@functools.cache
def _data() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))
