"""What a device costs an hour: dated list prices with their sources; and what a kilowatt-hour stands for in carbon dioxide."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshcast.base import UsageError, nearest
from meshcast.hardware.device import Device, Source
from meshcast.hardware.what_if import WHAT_IF_MARK

LIST_PRICE = "list"  # `--price list`: the catalogue's
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
    name = next((each for each in (device.name, rented_as(device.name), *device.bases) if each in known), None)
    if name is None:
        return None
    found = known[name]
    return ListPrice(
        usd_per_hour=float(found["usd_per_hour"]),
        offer=found["offer"],
        date=found["date"],
        source=_source(found["source"]),
    )


def rented_as(name: str) -> str:
    """The device that one of this name is rented as: what it starts from where some numbers are others."""
    return name.partition(WHAT_IF_MARK)[0]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a device costs an hour, in US dollars, and who says so."""

    usd_per_hour: float
    said: str

    @classmethod
    def of(cls, text: str | float | None, device: Device) -> Price | None:
        """The price that is asked for: a number, or `list` for the catalogue's; None where none is.

        Behind commas devices may have prices of their own: `list,tpu-v5p=2.5`.

        Raises:
            UsageError: It is no price, or the catalogue has none of this device.
        """
        if text is None:
            return None
        first, *own = (part.strip() for part in str(text).split(","))
        by_name = dict(_own_price(part) for part in own)
        names = (device.name, rented_as(device.name), *device.bases)
        text = next((by_name[name] for name in names if name in by_name), first)
        if text == LIST_PRICE:
            found = list_price(device)
            if found is None:
                raise UsageError(
                    f"the catalogue has no list price of {device.name}",
                    where="--price",
                    fix=f"give dollars per device and hour: --price 2.5, or list,{device.name}=2.5",
                )
            said = f"{found.offer}, {found.date} ({found.source.url})"
            return cls(usd_per_hour=found.usd_per_hour, said=said)
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf"):
            raise UsageError(
                f"{text!r} is no price", where="--price", fix="dollars per device and hour, such as 2.5, or list"
            )
        return cls(usd_per_hour=value, said="as given")


def check_priced(text: str | float | None, devices: Sequence[Device]) -> None:
    """Refuses prices of devices that are not asked about: a misspelt one would be counted at another's price.

    Args:
        text: As `Price.of` takes it.
        devices: All that are asked about.

    Raises:
        UsageError: A device is none of them.
    """
    own = [_own_price(part)[0] for part in str(text or "").split(",")[1:]]
    if not own:
        return
    known = list(dict.fromkeys(name for device in devices for name in (rented_as(device.name), *device.bases)))
    for name in own:
        if name not in known:
            raise UsageError(f"a price of {name}, which is not asked about", where="--price", fix=nearest(name, known))


def _own_price(text: str) -> tuple[str, str]:
    name, equals, price = (part.strip() for part in text.partition("="))
    if not (name and equals and price):
        raise UsageError(f"{text!r} is no price of a device", where="--price", fix="write such as list,tpu-v5p=2.5")
    return name, price
