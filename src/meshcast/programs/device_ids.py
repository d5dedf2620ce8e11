"""Devices that a program's explicit collectives name: all there is to count by where the module states no number."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshcast.base import InputError
from meshcast.programs.mlir import ir

_GROUPS = "replica_groups"
_ATTRIBUTES = {
    "stablehlo.all_gather": _GROUPS,
    "stablehlo.all_reduce": _GROUPS,
    "stablehlo.all_to_all": _GROUPS,
    "stablehlo.collective_broadcast": _GROUPS,
    "stablehlo.collective_reduce": _GROUPS,
    "stablehlo.reduce_scatter": _GROUPS,
    "stablehlo.collective_permute": "source_target_pairs",
}


def count_devices(module: Any, *, stated: int | None, where: str) -> int:
    """Devices that the collectives of a module name, in loops and called functions too: the largest id and one.

    Args:
        module: The MLIR module.
        stated: How many devices the module says it is for; None where it does not say.
        where: The module's origin, for messages.

    Raises:
        InputError: A collective names devices beyond those stated, or all of them where nothing says how many.
    """
    count = 1
    everyone = None
    for operation in _collectives(module):
        ids = _device_ids(operation)
        if ids is None:
            continue
        if ids.size == 0:
            everyone = everyone or (operation if _ATTRIBUTES[operation.name] == _GROUPS else None)
            continue
        last = int(ids.max())
        if stated is not None and last >= stated:
            raise InputError(
                f"{operation.name} runs in groups of {ids.shape[-1]} up to device {last}, "
                f"and the program is for {stated} device{'s' if stated > 1 else ''}",
                where=_place(operation, where),
                fix="make the mesh, or mhlo.num_partitions and mhlo.num_replicas, agree with the collective's groups",
            )
        count = max(count, last + 1)
    if everyone is not None and stated is None and count == 1:
        raise InputError(
            f"{everyone.name} runs over all devices, and nothing says how many there are",
            where=_place(everyone, where),
            fix="state it: mhlo.num_partitions or mhlo.num_replicas on the module (in HLO's header, replica_count)",
        )
    return count


def may_name_devices(text: str) -> bool:
    """Whether MLIR text can have a collective that names devices: the name of the attribute stands there, or is escaped."""
    return "\\" in text or any(name in text for name in set(_ATTRIBUTES.values()))


def _collectives(module: Any) -> list[Any]:
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        if operation.name in _ATTRIBUTES:
            found.append(operation)  # judged later: an error raised inside a walk loses its type
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _device_ids(operation: Any) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """The ids that a collective lists, unequal groups' filling (-1) included; None where it names mesh axes."""
    attribute = operation.attributes[_ATTRIBUTES[operation.name]]
    if not isinstance(attribute, (ir.DenseIntElementsAttr, ir.DenseElementsAttr)):
        return None
    return np.asarray(ir.DenseElementsAttr(attribute))


def _place(operation: Any, where: str) -> str:
    """The line of the op in a text, else the name that its debug location gives it."""
    location = operation.location
    line = getattr(location, "start_line", 0)
    if line and getattr(location, "filename", "") == "-":
        return f"{where}:{line}"
    name = getattr(location, "name_str", "")
    return f"{where} at {name}" if name else where
