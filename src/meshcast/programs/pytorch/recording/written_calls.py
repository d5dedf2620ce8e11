"""ATen calls written down by hand, where a model's layers are known and no PyTorch is there to record it; free of torch.

What `recording` finds by running a module, `CallWriter` is told call by call. Storages are given back after the last call that
looks at them, as Python gives them back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from meshcast.programs.files import from_bytes
from meshcast.programs.program import Program
from meshcast.programs.pytorch.launches.recorded_program import program_text
from meshcast.programs.pytorch.recording.calls import BYTES, AtenOp, Phase, Recording, View


class CallWriter:
    """Writes one step; `phase` and `casting` hold for what is written next."""

    def __init__(self) -> None:
        self.ops: list[AtenOp] = []
        self.sizes: dict[int, int] = {}
        self.held: dict[int, str] = {}
        self.phase: Phase = "forward"
        self.casting = False
        self._modules = 0

    def tensor(self, *shape: int, dtype: str = "float32", held: str | None = None) -> View:
        """A new tensor; `held`: what it is, where it is there before the step (`parameter`, `state`, `input`)."""
        number = len(self.sizes)
        self.sizes[number] = math.prod(shape) * BYTES[dtype]
        if held is not None:
            self.held[number] = held
        return View(number, shape, strides_of(shape), dtype)

    def module(self, count: int = 1) -> None:
        """Modules are called before what is written next."""
        self._modules += count

    def call(
        self, name: str, takes: Sequence[View], gives: Sequence[View], *, place: Sequence[str] = (), **told: Any
    ) -> View:
        """A call that launches; its first result is returned."""
        self._note(name, takes, gives, told, shares=False, place=tuple(place))
        return gives[0]

    def new(self, name: str, takes: Sequence[View], *shape: int, dtype: str | None = None, **told: Any) -> View:
        """A call with one new result, of its first operand's dtype unless told."""
        return self.call(name, takes, [self.tensor(*shape, dtype=dtype or takes[0].dtype)], **told)

    def alike(self, name: str, *takes: View, dtype: str | None = None, **told: Any) -> View:
        """An elementwise call."""
        return self.new(name, takes, *takes[0].shape, dtype=dtype, **told)

    def look(
        self, name: str, view: View, shape: Sequence[int], strides: Sequence[int] | None = None, offset: int = 0
    ) -> View:
        """Another view of a tensor, which launches nothing."""
        made = View(view.storage, tuple(shape), tuple(strides or strides_of(shape)), view.dtype, view.offset + offset)
        self._note(name, [view], [made], {}, shares=True)
        return made

    def turned(self, view: View) -> View:
        """A matrix, or each of a batch, turned."""
        *outer, m, n = view.shape
        *steps, a, b = view.strides
        return self.look("t" if not outer else "transpose", view, (*outer, n, m), (*steps, b, a))

    def nothing(self, name: str, count: int = 1) -> None:
        """Calls that launch nothing and look at nothing that counts."""
        for _ in range(count):
            self._note(name, [], [], {}, shares=True)

    @contextmanager
    def autocast(self, on: bool) -> Iterator[None]:
        """What is written inside is under autocast."""
        before, self.casting = self.casting, on
        yield
        self.casting = before

    def _note(
        self, name: str, takes: Sequence[View], gives: Sequence[View], told: dict[str, Any], *, shares: bool,
        place: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.ops.append(
            AtenOp(
                name=name,
                phase=self.phase,
                takes=tuple(takes),
                gives=tuple(gives),
                told=told,
                shares=shares,
                place=place,
                modules=self._modules,
                cast=self.casting,
            )
        )
        self._modules = 0

    def recording(self, *returned: View, label: str) -> Recording:
        """The step that was written."""
        last: dict[int, int] = {}
        for number, op in enumerate(self.ops):
            last.update((view.storage, number) for view in (*op.takes, *op.gives))
        frees: dict[int, list[int]] = {}
        kept = {view.storage for view in returned}
        for storage, number in last.items():
            if storage not in self.held and storage not in kept:
                frees.setdefault(number + 1, []).append(storage)
        ops = tuple(replace(op, frees=tuple(frees.get(number, ()))) for number, op in enumerate(self.ops))
        return Recording(ops=ops, sizes=self.sizes, held=self.held, returned=returned, label=label)


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a tensor whose elements lie one after the other."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def eager_program(recording: Recording) -> Program:
    """The program of the kernels that eager PyTorch launches for a recording."""
    source = f"calls:{recording.label} (eager)"
    text = program_text(recording, compiled=False)
    return replace(from_bytes(text.encode(), name=recording.label, where=source), source=source)
