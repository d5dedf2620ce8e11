"""`Traffic`: one collective with the devices of all its groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshcast.errors import UsageError
from meshcast.mesh import Group
from meshcast.network.fabric.links import Ints
from meshcast.network.plan import CollectivePlan

Groups = Ints  # a row of devices for each group
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Traffic:
    """A collective that all of its groups carry out at the same time.

    Attributes:
        plan: How it is carried out.
        groups: A row of device numbers for each group, in the order of its members.
        pairs: For a permutation: (from, to) device numbers, where it is not each member to the next.
    """

    plan: CollectivePlan
    groups: Groups
    pairs: Pairs = ()

    def __post_init__(self) -> None:
        if self.groups.ndim != 2 or not self.groups.size:
            raise UsageError(f"groups of a collective: expected a row for each group, got shape {self.groups.shape}")
        if len(np.unique(self.groups)) != self.groups.size:
            raise UsageError("a device is in a collective's groups more than once", fix="give disjoint groups")

    @classmethod
    def of(cls, plan: CollectivePlan, group: Group, placement: Sequence[int] | None = None) -> Traffic:
        """Traffic of all groups that a collective forms; `placement[rank]` is the device of a rank."""
        ranks = group.starts()[:, None] + group.offsets()
        return cls(plan=plan, groups=ranks if placement is None else np.asarray(placement, np.int64)[ranks])
