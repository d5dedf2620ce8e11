"""One collective as nccl-tests measures it: what its sizes and bandwidths mean.

With n devices and a size of S bytes, `algbw = S / t` and `busbw = algbw * factor`, where the factor is what the busiest
link of a ring carries per byte of S (nccl-tests, doc/PERFORMANCE.md): `2 (n - 1) / n` for an all-reduce, `(n - 1) / n`
for all-gather, reduce-scatter and all-to-all, 1 for the others. S is the whole buffer: what an all-gather leaves on
each device, what a reduce-scatter starts from, what each device sends to all others (its own part counted) in an
all-to-all.
"""

from __future__ import annotations

import re

from meshcast.base import Dimension, Group, InputError, UsageError, nearest, parse_quantity
from meshcast.workload import Collective

# Spellings of nccl-tests, JAX, MPI and StableHLO beside our own.
KINDS: dict[str, str] = {
    "all_reduce": "all_reduce",
    "psum": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "psum_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "collective_permute": "collective_permute",
    "permute": "collective_permute",
    "ppermute": "collective_permute",
    "send_recv": "collective_permute",
    "broadcast": "collective_broadcast",
    "collective_broadcast": "collective_broadcast",
    "reduce": "collective_reduce",
    "collective_reduce": "collective_reduce",
}
_SPELLED = {name.replace("_", ""): kind for name, kind in KINDS.items()}


def kind_named(text: str) -> str:
    """The collective that a name means, with hyphens, underscores or neither.

    Raises:
        UsageError: No collective has that name.
    """
    kind = known_kind(text)
    if kind is None:
        raise UsageError(f"no collective {text!r}", where="KIND", fix=nearest(text, tuple(KINDS)))
    return kind


def known_kind(text: str) -> str | None:
    """The kind of collective with this name; None where there is none."""
    return _SPELLED.get(re.sub(r"[^a-z]", "", text.lower()))


def collective_of(kind: str, size: int, group: Group) -> Collective:
    """A collective of nccl-tests' size S in each of its groups."""
    share = -(-size // group.size)
    return Collective(
        kind=kind,
        group=group,
        input_bytes=share if kind == "all_gather" else size,
        output_bytes=share if kind == "reduce_scatter" else size,
    )


def bus_factor(kind: str, devices: int) -> float:
    """`busbw / algbw`."""
    if kind == "all_reduce":
        return 2 * (devices - 1) / devices
    return (devices - 1) / devices if kind in ("all_gather", "reduce_scatter", "all_to_all") else 1.0


def parse_sizes(text: str, flag: str, *, several: bool = True) -> tuple[int, ...]:
    """Bytes from `1048576`, `1MiB`, a list `1KiB,1MiB`, or a sweep by doubling `1KiB..8GiB`.

    Raises:
        UsageError: It is none of these, or more than one where `several` says that one is wanted.
    """
    if not several and ("," in text or ".." in text):
        raise UsageError(f"{text!r} is more than one size", where=flag, fix="give one size, such as 1MiB")
    found: list[int] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        size, end = _bytes(first, flag), _bytes(last if dots else first, flag)
        if end < size:
            raise UsageError(f"the sweep {part!r} ends before it begins", where=flag, fix="write FIRST..LAST")
        while size <= end:
            found.append(size)
            size *= 2
    return tuple(found)


def _bytes(text: str, flag: str) -> int:
    plain = re.fullmatch(r"\s*(\d{1,18})\s*", text)
    try:
        spaced = re.sub(r"(?<=\d)(?=[A-Za-z])", " ", text.strip())
        size = float(plain[1]) if plain else parse_quantity(spaced, Dimension.BYTES)
    except InputError as error:
        raise UsageError(error.message, where=flag, fix="write a size like 1048576 or 1MiB") from None
    if size < 1 or size != int(size) or size > 2**60:
        raise UsageError(
            f"{text!r} is not a whole number of bytes from 1 to 2^60", where=flag, fix=f"write {flag} 1MiB"
        )
    return int(size)
