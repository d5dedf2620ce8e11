"""The suite: every family's probes in one order, of which any beginning covers all families and sizes."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Collection
from types import ModuleType

from meshcast.calibrate.probe import Body, Probe, probe
from meshcast.errors import UsageError, nearest

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
)
# Families whose products XLA tunes by compiling and timing many kernels: seconds each instead of a tenth.
_TUNED = frozenset({"gemm", "convolution", "attention", "blocks", "vision"})


def _module(family: str) -> ModuleType:
    if family not in FAMILIES:
        raise UsageError(f"no family of probes is called {family!r}", fix=nearest(family, FAMILIES))
    return importlib.import_module(f"meshcast.calibrate.families.{family}")


def build(item: Probe) -> Body:
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
    assert isinstance(body, Body)
    return body


def is_slow(item: Probe) -> bool:
    """Whether compiling it takes seconds: XLA tunes its products or convolutions on the device."""
    fused_call = ("impl", "cudnn") in item.settings
    if item.family in ("convolution", "vision"):
        return True
    return item.family in _TUNED and not item.library and not fused_call


def suite(families: Collection[str] = ()) -> list[Probe]:
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
