"""One collective as nccl-tests measures it: what its sizes and bandwidths mean.

With n devices and a size of S bytes, `algbw = S / t` and `busbw = algbw * factor`, where the factor is what the busiest
link of a ring carries per byte of S (nccl-tests, doc/PERFORMANCE.md): `2 (n - 1) / n` for an all-reduce, `(n - 1) / n`
for all-gather, reduce-scatter and all-to-all, 1 for the others. S is the whole buffer: what an all-gather leaves on
each device, what a reduce-scatter starts from, what each device sends to all others (its own part counted) in an
all-to-all.
"""

from __future__ import annotations

from meshcast.errors import UsageError, nearest
from meshcast.mesh import Group
from meshcast.workload.graph import Collective

# Spellings of nccl-tests, MPI and StableHLO beside our own.
KINDS: dict[str, str] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "alltoall": "all_to_all",
    "collective_permute": "collective_permute",
    "permute": "collective_permute",
    "send_recv": "collective_permute",
    "sendrecv": "collective_permute",
    "broadcast": "collective_broadcast",
    "collective_broadcast": "collective_broadcast",
    "reduce": "collective_reduce",
    "collective_reduce": "collective_reduce",
}


def kind_named(text: str) -> str:
    """The collective that a name means, with hyphens or underscores.

    Raises:
        UsageError: No collective has that name.
    """
    kind = KINDS.get(text.strip().lower().replace("-", "_"))
    if kind is None:
        raise UsageError(f"no collective {text!r}", where="KIND", fix=nearest(text, tuple(KINDS)))
    return kind


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
