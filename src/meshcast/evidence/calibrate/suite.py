"""The suite: every family's probes in one order, of which any beginning covers all families and sizes."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Collection
from enum import Enum
from types import ModuleType

from meshcast.base import UsageError, nearest
from meshcast.evidence.calibrate.probe import Probe, ProbeBody, probe

VERSION = 1
# In the order of `--list`; a module each. Imported when asked for: they need jax.
FAMILIES = (
    "gemm",
    "convolution",
    "attention",
    "rows",
    "elementwise",
    "movement",
    "transpose",
    "indexed",
    "blocks",
    "vision",
    "ordering",
    "scans",
    "fourier",
    "functions",
    "narrow",
    "joins",
    "picks",
    "small_products",
    "draws",
    "filters",
)
_PRODUCTS = frozenset({"gemm", "attention", "blocks", "small_products"})


class Compiling(Enum):
    """Classes of compile time on a GPU, where XLA compiles and times candidates for each product and convolution."""

    QUICK = "quick"  # a fraction of a second: nothing is tuned, or the library's own choice is taken
    TUNED = "tuned"  # seconds: one or two ops are
    LONG = "long"  # up to minutes: many are


def _module(family: str) -> ModuleType:
    if family not in FAMILIES:
        raise UsageError(f"no family of probes is called {family!r}", fix=nearest(family, FAMILIES))
    return importlib.import_module(f"meshcast.evidence.calibrate.families.{family}")


def build(item: Probe) -> ProbeBody:
    """The program of a probe.

    Raises:
        UsageError: There is no such family, or it has no such setting.
    """
    module = _module(item.family)
    try:
        body = module.build(**item.arguments)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"cannot be built: {type(error).__name__}: {error}", where=item.id, fix="see meshcast calibrate --list"
        ) from error
    assert isinstance(body, ProbeBody)
    return body


def compiling(item: Probe) -> Compiling:
    """How long XLA:GPU takes to compile it."""
    settings = dict(item.settings)
    if item.family == "vision":
        return Compiling.LONG
    if item.family in ("convolution", "filters"):
        return Compiling.TUNED
    if item.family not in _PRODUCTS or item.library or settings.get("impl") == "cudnn":
        return Compiling.QUICK
    return Compiling.LONG if item.family == "blocks" or settings.get("grad") else Compiling.TUNED


def probe_suite(families: Collection[str] = ()) -> list[Probe]:
    """All probes of the families (all of them by default), interleaved.

    The i-th of a family's n probes, in the order of a hash of their ids, stands at (i + 1/2) / n of the list: each
    beginning has the same share of every family, and within a family no order of sizes.
    """
    placed: list[tuple[float, str, Probe]] = []
    for family in families or FAMILIES:
        unique = {item.id: item for item in (probe(family, **settings) for settings in _module(family).probes())}
        hashed = sorted(unique.values(), key=lambda item: hashlib.sha256(item.id.encode()).digest())
        placed += [((i + 0.5) / len(hashed), item.id, item) for i, item in enumerate(hashed)]
    return [item for _, _, item in sorted(placed, key=lambda entry: entry[:2])]
