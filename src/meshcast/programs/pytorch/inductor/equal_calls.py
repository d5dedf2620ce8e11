"""Calls that compute what another one has computed: AOTAutograd runs them once (`fx_graph_cse`, `torch/_functorch`).

Autocast casts an activation for every product that reads it, and masks are made for every layer: a compiled step does so once.

Free of torch.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from meshcast.programs.pytorch.recording.calls import AtenOp, View


class SameLoops:
    """The elementwise calls seen so far, and the storages that stand for others."""

    def __init__(self) -> None:
        self._first: dict[Hashable, tuple[View, ...]] = {}
        self._keys: dict[int, Hashable] = {}  # of the calls that made storages
        self._stand_ins: dict[int, int] = {}

    def reading(self, op: AtenOp) -> AtenOp:
        """A call that reads the first of each storage that is computed several times; what it writes is its own from here on."""
        takes = tuple(
            replace(view, storage=self._stand_ins[view.storage]) if view.storage in self._stand_ins else view
            for view in op.takes
        )
        for view in op.gives:
            self._stand_ins.pop(view.storage, None)
            self._first.pop(
                self._keys.pop(view.storage, None), None
            )  # what is written over stands for nothing any more
        return op if takes == op.takes else replace(op, takes=takes)

    def known(self, op: AtenOp, makers: Sequence[int]) -> bool:
        """Whether the same was computed before in the same pass from the same values, which then stands for it.

        Args:
            op: An elementwise call, or one that makes a single number.
            makers: For each tensor it takes, which write of it the call reads.
        """
        if op.name.endswith("_") or not (op.takes or op.gives[0].elements == 1):
            return False
        if {view.storage for view in op.gives} & {view.storage for view in op.takes}:
            return False
        told = tuple(sorted((name, str(value)) for name, value in op.told.items()))
        shapes = tuple((view.shape, view.strides, view.dtype) for view in op.gives)
        key = (op.name, op.phase, op.takes, tuple(makers), told, shapes)
        first = self._first.setdefault(key, op.gives)
        if first is op.gives:
            self._keys.update((view.storage, key) for view in op.gives)
            return False
        self._stand_ins.update({mine.storage: theirs.storage for mine, theirs in zip(op.gives, first, strict=True)})
        return True
