"""`FlowTraffic`: one collective with the devices of all its groups."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from meshcast.base import Group, UsageError
from meshcast.network.fabric.links import Ints
from meshcast.network.plan import CollectivePlan

Groups = Ints  # a row of devices for each group
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlowTraffic:
    """A collective that all of its groups carry out at the same time.

    Attributes:
        plan: How it is carried out.
        groups: A row of device numbers for each group, in the order of its members.
        pairs: For a permutation: (from, to) device numbers, where it is not each member to the next.
        key: Equal for equal groups and pairs; worked out once, because simulations of steps ask often.
    """

    plan: CollectivePlan
    groups: Groups
    pairs: Pairs = ()
    key: bytes = field(init=False)

    def __post_init__(self) -> None:
        if self.groups.ndim != 2 or not self.groups.size:
            raise UsageError(f"groups of a collective: expected a row for each group, got shape {self.groups.shape}")
        if len(np.unique(self.groups)) != self.groups.size:
            raise UsageError("a device is in a collective's groups more than once", fix="give disjoint groups")
        digest = hashlib.blake2b(repr((self.groups.shape, self.pairs)).encode(), digest_size=16)
        digest.update(np.ascontiguousarray(self.groups, np.int64).tobytes())
        object.__setattr__(self, "key", digest.digest())

    @classmethod
    def of(cls, plan: CollectivePlan, group: Group, placement: Sequence[int] | None = None) -> FlowTraffic:
        """Traffic of all groups that a collective forms; `placement[rank]` is the device of a rank."""
        ranks = group.starts()[:, None] + group.offsets()
        return cls(plan=plan, groups=ranks if placement is None else np.asarray(placement, np.int64)[ranks])
