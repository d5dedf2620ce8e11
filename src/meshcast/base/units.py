"""Quantities with units, at the edge where people read and write them.

Inside meshcast every number is in SI base units (seconds, bytes, FLOP, joules, hertz) and carries no unit object.
Files say "3.35 TB/s"; `parse_quantity` turns that into a float once, and the `format_*` functions turn floats back for people.
GB is 1e9 bytes and GiB is 2**30. Bits are spelled "bit" ("400 Gbit/s"): "Gb" and "Gbps" are refused, because half
of the world reads them as bytes.
"""

from __future__ import annotations

import functools
import re
from decimal import Decimal
from enum import StrEnum

from meshcast.base.errors import InputError


class Dimension(StrEnum):
    """What a quantity measures; the value is the SI unit of the float that `parse_quantity` returns."""

    BYTES = "bytes"
    BANDWIDTH = "bytes/s"
    COMPUTE = "FLOP/s"
    FREQUENCY = "Hz"
    TIME = "s"
    POWER = "W"
    ENERGY_PER_FLOP = "J/FLOP"
    ENERGY_PER_BYTE = "J/byte"
    COUNT = "1"
    SHARE = "of one"

    @property
    def quantity(self) -> str:
        """The word for what is measured: "energy per byte"."""
        return self.name.lower().replace("_", " ")


# Decimal, so that "66.9 TFLOP/s" is 66.9e12 to the last bit.
_LARGE = {prefix: Decimal(1000) ** power for power, prefix in enumerate(("", *"kMGTPE"))}
_BINARY = {prefix + "i": Decimal(1024) ** power for power, prefix in enumerate("KMGT", start=1)}
# Both the micro sign (U+00B5) and the Greek mu (U+03BC) are what keyboards produce.
_POWERS = {"": 0, "m": -3, "u": -6, "µ": -6, "μ": -6, "n": -9, "p": -12}
_SMALL = {prefix: Decimal(10) ** power for prefix, power in _POWERS.items()}
_ONE = Decimal(1)
_COUNTED = (
    "SM", "CU", "core", "cores", "TensorCore", "TensorCores",
    "cells", "arrays", "rows", "lanes", "ALUs", "link", "links", "device", "devices",
    "node", "nodes", "port", "ports", "rail", "rails", "socket", "sockets",
    "partition", "partitions", "bit", "bits", "columns", "thread", "threads", "register", "registers",
)  # fmt: skip

# dimension: (an example for messages, prefixes that make sense, {base unit: its size in SI})
_GRAMMAR: dict[Dimension, tuple[str, dict[str, Decimal], dict[str, Decimal]]] = {
    Dimension.BYTES: ("80 GB", _LARGE | _BINARY, {"B": _ONE, "byte": _ONE, "bytes": _ONE}),
    Dimension.BANDWIDTH: ("3.35 TB/s", _LARGE | _BINARY, {"B/s": _ONE, "bytes/s": _ONE, "bit/s": _ONE / 8}),
    Dimension.COMPUTE: ("989.4 TFLOP/s", _LARGE, dict.fromkeys(("FLOP/s", "FLOPS", "OP/s", "OPS"), _ONE)),
    Dimension.FREQUENCY: ("1.98 GHz", _LARGE, {"Hz": _ONE}),
    Dimension.TIME: ("5 us", _SMALL, {"s": _ONE}),
    Dimension.POWER: ("700 W", _LARGE, {"W": _ONE}),
    Dimension.ENERGY_PER_FLOP: ("0.8 pJ/FLOP", _SMALL, {"J/FLOP": _ONE, "J/OP": _ONE}),
    Dimension.ENERGY_PER_BYTE: ("50 pJ/byte", _SMALL, {"J/byte": _ONE, "J/B": _ONE, "J/bit": Decimal(8)}),
    Dimension.SHARE: ("83 %", {"": _ONE}, {"%": _ONE / 100}),
    Dimension.COUNT: ("132 SM", {"": _ONE}, dict.fromkeys(_COUNTED, _ONE)),
}
# Every spelling of every dimension, flat, so that a known unit of the wrong dimension can be told from a typo.
_UNITS: dict[Dimension, dict[str, Decimal]] = {
    dimension: {prefix + unit: scale * size for prefix, scale in prefixes.items() for unit, size in units.items()}
    for dimension, (_, prefixes, units) in _GRAMMAR.items()
}
# The least that is more than nothing, and the most, in SI units: wider than any hardware by many orders, and narrow enough that
# products of a few quantities stay finite and whole numbers stay exact.
RANGES: dict[Dimension, tuple[float, float]] = {
    Dimension.BYTES: (1e-3, 2.0**63),
    Dimension.BANDWIDTH: (1e-3, 1e24),
    Dimension.COMPUTE: (1e-3, 1e27),
    Dimension.FREQUENCY: (1e-3, 1e18),
    Dimension.TIME: (1e-18, 1e9),
    Dimension.POWER: (1e-6, 1e12),
    Dimension.ENERGY_PER_FLOP: (1e-24, 1e3),
    Dimension.ENERGY_PER_BYTE: (1e-24, 1e3),
    Dimension.COUNT: (1e-3, 2.0**31),
    Dimension.SHARE: (1e-9, 1e6),
}
_ROUNDED_UP = 0.9995  # of a unit: from here on three digits of a number are its 1
_SPELLED = 1e6  # numbers with units
_COUNTED_OUT = 10**15  # numbers of things: a step of a million million kernels is still one that can be asked for
_QUANTITY = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)\s*(?P<unit>\S.*?)?\s*")


@functools.lru_cache(maxsize=4096)  # a device with one number changed has all others in the words of its file
def parse_quantity(text: str, dimension: Dimension) -> float:
    """The quantity in `text` as a float in the SI unit of `dimension`.

    Raises:
        InputError: `text` is no number, has no unit, its unit measures something else, or it is beyond its range.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise _refusal(text, dimension, "it is not a non-negative number with a unit")
    unit = match["unit"]
    if unit is None:
        raise _refusal(text, dimension, "it has no unit")
    scale = _UNITS[dimension].get(unit)
    if scale is None:
        measured = next((other.quantity for other, known in _UNITS.items() if unit in known), None)
        if measured is not None:
            raise _refusal(text, dimension, f"{unit!r} measures {measured}")
        if re.fullmatch(r"[kMGTP][bB](ps|/s)", unit):
            raise _refusal(text, dimension, f"{unit!r} may be bits or bytes; write {unit[0]}bit/s or {unit[0]}B/s")
        raise _refusal(text, dimension, f"{unit!r} is not a known unit")
    value = float(Decimal(match["number"]) * scale)
    least, most = RANGES[dimension]
    if value and not least <= value <= most:
        raise _refusal(text, dimension, f"it is beyond {least:g} to {most:g} {dimension}")
    return value


def _refusal(text: str, dimension: Dimension, reason: str) -> InputError:
    return InputError(
        f"expected {dimension.quantity}, got {text!r}: {reason}", fix=f"write it like {_GRAMMAR[dimension][0]!r}"
    )


def _scaled(value: float, steps: list[tuple[float, str]]) -> str:
    """`value` in the largest unit of `steps` (descending) in which three digits of it are 1 or more: 999.7 us are 1 ms.

    Up to `_SPELLED` of the largest unit all digits before the point are written. Beyond, nobody counts them, and they would tear
    tables: three and an exponent.
    """
    size, unit = next(((size, unit) for size, unit in steps if abs(value) >= _ROUNDED_UP * size), steps[-1])
    number = value / size
    return f"{number:.0f} {unit}" if 999.5 <= abs(number) < _SPELLED else f"{number:.3g} {unit}"


def format_time(seconds: float) -> str:
    """A duration for people: "51.2 ms", "3.4 us"."""
    return _scaled(seconds, [(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")]) if seconds else "0 s"


def format_bytes(count: float) -> str:
    """A size in memory for people, in binary units: "80 GiB", "1.5 MiB"."""
    return _scaled(count, [(2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")])


def format_flops(count: float) -> str:
    """An amount of arithmetic for people: "1.1 TFLOP"."""
    return _scaled(count, [(float(scale), prefix + "FLOP") for prefix, scale in reversed(_LARGE.items())])


def format_rate(per_second: float, unit: str = "B/s") -> str:
    """A rate for people, in decimal units as datasheets have them: "3.35 TB/s", or with `unit`, "989 TFLOP/s"."""
    return _scaled(per_second, [(float(scale), prefix + unit) for prefix, scale in reversed(_LARGE.items())])


def format_energy(joules: float) -> str:
    """An energy for people: "30.6 J", "1.2 kJ"."""
    return _scaled(joules, [(1e6, "MJ"), (1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (1e-6, "uJ")])


def format_whole(count: int) -> str:
    """How many of something, for people: "12,288", and "1.07e+301" where nobody counts the digits."""
    return f"{count:,}" if abs(count) < _COUNTED_OUT else f"{Decimal(count):.3g}"
