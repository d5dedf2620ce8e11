"""Kernels of a body as a list that the metadata of its file holds: shapes, types and all else that their cost depends on."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from meshcast.export.pieces import Body, Piece
from meshcast.lower.kernel import CostKey
from meshcast.profiles.kernels import kernel_to_json


@dataclass(slots=True, kw_only=True)
class KernelTable:
    """Different kernels of a body, in the order in which they first run."""

    texts: tuple[str, ...]
    _numbers: dict[CostKey, int] = field(repr=False)

    def number(self, piece: Piece) -> int | None:
        """The place of a piece's kernel; None where it has none."""
        return None if piece.kernel is None else self._numbers[piece.kernel.cost_key]


def kernel_table(body: Body) -> KernelTable:
    """The kernels of a body."""
    numbers: dict[CostKey, int] = {}
    texts: list[str] = []
    for piece in {id(piece): piece for piece in body.pieces}.values():
        if piece.kernel is not None and piece.kernel.cost_key not in numbers:
            numbers[piece.kernel.cost_key] = len(texts)
            # Names stand on the nodes, where there are any: a kernel's cost does not depend on it.
            texts.append(json.dumps(kernel_to_json(replace(piece.kernel, name="")), separators=(",", ":")))
    return KernelTable(texts=tuple(texts), _numbers=numbers)
