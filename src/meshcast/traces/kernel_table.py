"""Kernels of a body as a list that the metadata of its file holds: shapes, types and all else that their cost depends on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from meshcast.estimate import kernel_to_json
from meshcast.jobs import Piece, RankBody
from meshcast.lower import CostKey


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTable:
    """Different kernels of a body, in the order in which they first run."""

    kernels: tuple[dict[str, Any], ...]
    _numbers: dict[CostKey, int] = field(repr=False)

    def number(self, piece: Piece) -> int | None:
        """The place of a piece's kernel; None where it has none."""
        return None if piece.kernel is None else self._numbers[piece.kernel.cost_key]


def kernel_table(body: RankBody) -> KernelTable:
    """The kernels of a body."""
    numbers: dict[CostKey, int] = {}
    kernels: list[dict[str, Any]] = []
    for piece in {id(piece): piece for piece in body.pieces}.values():
        if piece.kernel is not None and piece.kernel.cost_key not in numbers:
            numbers[piece.kernel.cost_key] = len(kernels)
            # Names stand on the nodes, where there are any: a kernel's cost does not depend on it.
            kernels.append(kernel_to_json(replace(piece.kernel, name="")))
    return KernelTable(kernels=tuple(kernels), _numbers=numbers)
