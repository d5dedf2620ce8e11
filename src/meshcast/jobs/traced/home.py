"""The device that a trace is of: named by what exported it, or by the driver's own name in what was recorded there."""

from __future__ import annotations

from collections.abc import Mapping

from meshcast.chakra import RECORDED_ON, Attribute
from meshcast.hardware import device_of_driver


def home_of(metadata: Mapping[str, Attribute]) -> str | None:
    """The catalogue's name of the device that a trace is of; None where it does not say, or the catalogue has none like it."""
    said = metadata.get("device")
    if said is not None:
        return str(said)
    found = device_of_driver(str(metadata.get(RECORDED_ON, "")))
    return None if found is None else found.name
