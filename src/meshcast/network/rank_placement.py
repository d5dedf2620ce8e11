"""Which device runs which rank: given in a file, or searched for.

Ranks are numbered as a mesh numbers them; devices as the cluster does, densely: 0 to 7 share the first node of eight. A
placement maps one to the other. The search permutes the digits of ranks: every collective's groups, and the sizes of the
levels, cut the number of a rank into digits (as a mesh cuts it into axes), and any order of these digits numbers the
devices. That covers every order of mesh axes, axes split into blocks, and it keeps groups strided, so that the closed
form can judge them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from meshcast.base import Group, InputError, UsageError
from meshcast.hardware import Cluster
from meshcast.network.spread import Ints
from meshcast.workload import Collective

FINALISTS = 6  # placements that a whole step may decide between
MOST_ORDERS = 5040  # orders that are tried one by one: seven digits


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlacement:
    """`devices[rank]` is the device of a rank."""

    devices: tuple[int, ...]

    def of(self, ranks: Ints) -> Ints:
        """Devices of some ranks."""
        if ranks.max() >= len(self.devices):
            raise UsageError(
                f"a group has rank {ranks.max()}, the placement has {len(self.devices)} ranks",
                fix="place as many ranks as the mesh has",
            )
        placed: Ints = np.asarray(self.devices, np.int64)[ranks]
        return placed

    @property
    def dense(self) -> bool:
        """Whether every rank is on the device of its own number."""
        return self.devices == tuple(range(len(self.devices)))


def read_placement(path: Path, ranks: int, devices: int) -> RankPlacement:
    """The placement in a file with one device number for each rank, in the order of ranks; # starts a comment.

    Raises:
        InputError: The file cannot be read, or is no map of so many ranks to different devices.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(
            f"cannot read the placement: {reason}", where=str(path), fix="name a text file, a device a line"
        ) from None
    found: list[int] = []
    seen: dict[int, int] = {}
    for number, line in enumerate(lines, start=1):
        for word in line.split("#")[0].split():
            where = f"{path}:{number}"
            if not (word.isascii() and word.isdecimal()):
                raise InputError(f"expected a device number, got {word!r}", where=where, fix="one number for each rank")
            device = int(word)
            if device >= devices:
                raise InputError(
                    f"rank {len(found)} is on device {device}, there are {devices}", where=where,
                    fix=f"devices are 0 to {devices - 1}",
                )  # fmt: skip
            if device in seen:
                raise InputError(
                    f"ranks {seen[device]} and {len(found)} are both on device {device}", where=where,
                    fix="give every rank a device of its own",
                )  # fmt: skip
            seen[device] = len(found)
            found.append(device)
    if len(found) != ranks:
        raise InputError(f"{len(found)} devices for {ranks} ranks", where=str(path), fix="one number for each rank")
    return RankPlacement(devices=tuple(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementChoice:
    """The best placement found, its seconds, and those of ranks placed in their own order.

    `finalists` are the best few, the best first, without those that are equal to one another for every collective.
    """

    placement: RankPlacement
    seconds: float
    dense_s: float
    tried: int
    finalists: tuple[RankPlacement, ...] = ()


def optimise_placement(
    collectives: Sequence[Collective],
    devices: int,
    cluster: Cluster,
    seconds: Callable[[Collective], float],
    counts: Sequence[int] | None = None,
) -> PlacementChoice:
    """The order of digits with the least sum of `seconds` over all collectives; the ranks' own order among equals.

    `counts` says how often each collective runs; once, without it.

    Where there are more than `MOST_ORDERS` orders, digits are moved one at a time as long as that helps.

    Raises:
        UsageError: A group does not fit the number of devices.
    """
    digits = _digits(collectives, devices, cluster)
    count = len(digits)
    own = tuple(range(count))
    costs: dict[tuple[int, ...], float] = {}

    def cost(order: tuple[int, ...]) -> float:
        if order not in costs:
            strides = _strides(digits, order)
            costs[order] = math.fsum(
                count * seconds(replace(collective, group=_moved(collective.group, digits, strides)))
                for collective, count in zip(collectives, counts or [1] * len(collectives), strict=True)
            )
        return costs[order]

    best = own
    if math.factorial(count) <= MOST_ORDERS:
        best = min(itertools.permutations(own), key=lambda order: (cost(order), order != own, order))
    else:
        while True:
            moves = [best, *(_taken(best, old, new) for old in own for new in own if old != new)]
            better = min(moves, key=lambda order: (cost(order), order != best, order))
            if better == best:
                break
            best = better
    distinct = {seconds: order for order, seconds in sorted(costs.items(), key=lambda item: (-item[1], item[0]))}
    leading = sorted(distinct)[:FINALISTS]
    return PlacementChoice(
        placement=_placed(digits, _strides(digits, best)), seconds=cost(best), dense_s=cost(own), tried=len(costs),
        finalists=tuple(_placed(digits, _strides(digits, distinct[seconds])) for seconds in leading),
    )  # fmt: skip


def _taken(order: tuple[int, ...], old: int, new: int) -> tuple[int, ...]:
    without = [digit for position, digit in enumerate(order) if position != old]
    return (*without[:new], order[old], *without[new:])


def _digits(collectives: Sequence[Collective], devices: int, cluster: Cluster) -> tuple[tuple[int, int], ...]:
    """(size, stride) of the digits of a rank, least significant first.

    Cuts are where a group's dimension starts or ends, and inside of these where a level's domain ends, as far as cuts
    divide each other: a cut that does not is left out, unless a group needs it.
    """
    cuts = {1, devices}
    for collective in collectives:
        for size, stride in collective.group.dims:
            cuts |= {stride, stride * size}
    ordered = sorted(cuts)
    for low, high in itertools.pairwise(ordered):
        if high % low or high > devices:
            raise UsageError(
                f"groups of {devices} devices with strides {ordered} do not nest, so ranks cannot be placed by axes",
                fix="give a placement file",
            )
    for level in cluster.levels:
        after = min((cut for cut in ordered if cut > level.size), default=devices)
        before = max(cut for cut in ordered if cut <= level.size)
        if level.size < devices and level.size % before == 0 and after % level.size == 0:
            ordered = sorted({*ordered, level.size})
    return tuple((high // low, low) for low, high in itertools.pairwise(ordered))


def _strides(digits: Sequence[tuple[int, int]], order: Sequence[int]) -> dict[int, int]:
    """Where each digit (by its stride among ranks) counts among devices; `order` is least significant first."""
    found: dict[int, int] = {}
    stride = 1
    for digit in order:
        size, old = digits[digit]
        found[old] = stride
        stride *= size
    return found


def _moved(group: Group, digits: Sequence[tuple[int, int]], strides: dict[int, int]) -> Group:
    """The group among devices: each of its dimensions as the digits that it covers, outermost first."""
    dims: list[tuple[int, int]] = []
    for size, stride in group.dims:
        covered = [digit for digit in digits if stride <= digit[1] < stride * size]
        dims += [(count, strides[old]) for count, old in reversed(covered)]
    return replace(group, dims=tuple(dims))


def _placed(digits: Sequence[tuple[int, int]], strides: dict[int, int]) -> RankPlacement:
    devices = math.prod(size for size, _ in digits)
    rank = np.arange(devices)
    device = sum((rank // old % size * strides[old] for size, old in digits), start=np.zeros(devices, np.int64))
    return RankPlacement(devices=tuple(int(number) for number in device))
