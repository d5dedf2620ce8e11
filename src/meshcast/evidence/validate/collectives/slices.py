"""TPUs as a source's words have them: a slice by its shape or its number of chips, several slices joined by the DCN."""

from __future__ import annotations

import math
import re

from meshcast.base import Group, UnsupportedError
from meshcast.evidence.validate.collectives.rows import CollectiveRow
from meshcast.evidence.validate.collectives.system import System
from meshcast.evidence.validate.collectives.words import network_said, number_of, shape_said
from meshcast.hardware import Cluster, load_cluster
from meshcast.network import shaped, slice_shape

# Slices whose name counts TensorCores, two a chip: "v4-128" has 64 chips (Cloud TPU documentation).
_NAMED_BY_CORES = {"TPU v3": 2, "TPU v4": 2, "TPU v5p": 2}
_ACROSS = re.compile(r"dcn|(?:across|between) slices", re.IGNORECASE)


def slice_system(row: CollectiveRow, name: str, label: str) -> System:
    """The system of a row on TPUs.

    Raises:
        UnsupportedError: Its numbers do not go together, or the slice cannot be described.
    """
    if not row.devices or row.devices < 2:
        raise UnsupportedError("a collective of TPUs needs its number of devices, 2 or more", where=row.id)
    cluster, devices = load_cluster(name), row.devices
    inner = cluster.levels[0].size if len(cluster.levels) > 2 else 1  # devices of a chip
    slices = number_of(row.hardware, "slices?") or (2 if re.search(r"\bdual[- ]slice", row.hardware.lower()) else None)
    shape = shape_said(row.hardware)
    named = _named_chips(row.hardware, label)
    chips = math.prod(shape) if shape else named
    if named and named != chips:
        raise UnsupportedError(f"{row.hardware!r} names {named} chips, its shape has {chips}", where=row.id)
    dcn = network_said(row.hardware) == "dcn" or (slices or 1) > 1
    if dcn:
        return _joined(row, cluster, label, inner=inner, slices=slices, chips=chips, shape=shape)
    if chips and devices > chips * inner:
        raise UnsupportedError(
            f"{devices} devices are more than the {chips * inner} of {row.hardware!r}, {inner} a chip",
            where=row.id, fix="say how many slices there are: (2 slices)",
        )  # fmt: skip
    if shape:
        cluster = shaped(cluster, shape, inner, alone=True)
    if chips and inner > 1 and devices <= chips:
        # A group has one device of every chip; the chips' other devices have groups of their own beside it.
        group, spanned = Group(dims=((devices, inner),), devices=chips * inner), chips * inner
    elif chips and devices < chips * inner:
        if chips * inner % devices:
            raise UnsupportedError(f"groups of {devices} do not fill {chips * inner} devices", where=row.id)
        # Along a side of the slice; the others have groups of their own beside it.
        group, spanned = Group(dims=((devices, 1),), devices=chips * inner), chips * inner
    else:
        group, spanned = Group(dims=((devices, 1),)), devices
    return System(cluster=cluster.for_devices(spanned), devices=devices, group=group, hardware_class=label)


def _named_chips(hardware: str, label: str) -> int | None:
    """Chips of the slice in "v6e-256" or "v4-128"."""
    if label == "TPU v7":  # its names count chips in one place and TensorCores in another
        return None
    found = re.search(r"\bv\d ?(?:e|p|lite ?(?:pod)?)?-(\d+)\b", hardware.lower())
    if not found:
        return None
    cores = _NAMED_BY_CORES.get(label, 1)
    return max(1, int(found[1]) // cores)


def _joined(
    row: CollectiveRow, cluster: Cluster, label: str, *, inner: int, slices: int | None, chips: int | None,
    shape: tuple[int, ...] | None,
) -> System:  # fmt: skip
    """Several slices: the group goes over the DCN alone where the collective is said to, else over all devices."""
    devices = row.devices or 0
    if slices is None and chips and devices % (chips * inner) == 0:
        slices = devices // (chips * inner)
    if slices is None or slices < 2:
        raise UnsupportedError(
            f"{row.hardware!r} with {devices} devices does not say how many slices the DCN joins",
            where=row.id, fix="write (2 slices)",
        )  # fmt: skip
    across = _ACROSS.search(row.collective) is not None
    if devices == slices and (chips or 0) * inner != 1:
        across, devices = True, slices * (chips or 1) * inner  # one device of each slice
    if devices % slices or (chips and devices != slices * chips * inner):
        held = f"slices of {chips * inner} devices" if chips else "equal slices"
        raise UnsupportedError(f"{devices} devices make no {slices} {held}", where=row.id)
    per = devices // slices
    ici = cluster.levels[-2]
    if per % inner or per > ici.size:
        raise UnsupportedError(f"a slice of {per} devices is none of {cluster.name}", where=row.id)
    sides = shape or slice_shape(ici, per // inner, ici.size // inner)
    cluster = shaped(cluster, sides, inner, alone=False)
    # One chip of every slice: all the chips of a slice do this at once.
    group = Group(dims=((slices, per),), devices=devices) if across else Group(dims=((devices, 1),))
    return System(
        cluster=cluster.for_devices(devices), devices=slices if across else devices, group=group, hardware_class=label
    )
