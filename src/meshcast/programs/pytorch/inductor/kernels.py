"""The kernels that `torch.compile` makes of a recorded step: Inductor's fusion, AOTAutograd's choice of what is kept.

- Loops are computed inside their readers, again in each of several, unless they have several and read more than a few buffers, or
  are long (`StorageBox.should_realize_on_reuse`, `has_exceeded_max_reads` in `torch/_inductor/ir.py`).
- What is left is fused where it runs over as many elements, with what it reads and with what reads the same, as long as no
  kernel comes to depend on itself (`torch/_inductor/scheduler.py`); sums of few results take further kernels over their parts
  (`split_sums`).
- Products and convolutions stay cuBLAS's and cuDNN's, images channels last around the latter where that pays
  (`image_layouts`); optimizers run eagerly.
- What the backward pass reads of the forward pass is kept, or computed again from what is kept where that is fewer bytes
  (`kept_values`), by loops of the backward pass's own (`recomputation`).

Free of torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import count

from meshcast.programs.pytorch.eager.allocator import Event, call_workspace, cublas_workspaces, rounded, told, worst
from meshcast.programs.pytorch.eager.code_shapes import CUDNN
from meshcast.programs.pytorch.eager.kernels import eager_launches
from meshcast.programs.pytorch.eager.libraries import by_cudnn, depthwise_by_cudnn, grouped_share
from meshcast.programs.pytorch.eager.table_gradients import compiled_gradient
from meshcast.programs.pytorch.eager.triton_code import (
    POINTWISE_START,
    SUM_START,
    VARIANCE_PARTS,
    arithmetic_seconds,
    drawing_seconds,
    pooling_seconds,
    streaming_share,
    summing_seconds,
)
from meshcast.programs.pytorch.inductor.image_layouts import channels_last_pays
from meshcast.programs.pytorch.inductor.kept_values import kept_results
from meshcast.programs.pytorch.inductor.padded_operands import timed_rows
from meshcast.programs.pytorch.inductor.pieces import LoopPiece, Pieces
from meshcast.programs.pytorch.inductor.recomputation import with_repeats
from meshcast.programs.pytorch.inductor.scheduler import KernelGroup, fused
from meshcast.programs.pytorch.launches.launch import Arithmetic, Launch
from meshcast.programs.pytorch.recording.calls import BYTES, OF_A_CALL, Recording, View

_READS = 4  # of a loop with several readers, more than which it gets memory of its own (`realize_reads_threshold`)
_ALL_READS = 8  # of any loop (`realize_acc_reads_threshold`)
_STEPS = 30  # operations of any loop, loads and casts counted (`realize_opcount_threshold`)
ROWS_SHARE, COLUMNS_SHARE = 0.8, 0.75  # of the memory's rate, in Triton's sums
SCATTERED_SHARE = 0.75  # of loops that read in another order than they write
_MET = 0.7e-6  # seconds beyond its bytes that a kernel over parts of sums takes (1.3 to 3.2 us in ResNet-101, BERT)
_HALF = 2  # bytes of half precision
SHORT_ROW = 0.1e-9  # seconds a row of fewer than 256 elements


class Compiled:
    """A step as Inductor runs it."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._channels_last = channels_last_pays(recording)
        pieces = Pieces(recording, channels_last=self._channels_last).all
        self._returned = {view.storage for view in (*recording.returned, *recording.passed_on)}
        self._pieces, self._kept = with_repeats(pieces, kept_results(pieces), returned=self._returned)
        self._known: dict[int, bool] = {}
        self._reads: dict[int, list[tuple[LoopPiece | None, View]]] = {}
        self._steps: dict[int, int] = {}
        self._partial = count(1 + max((v.storage for piece in self._pieces for v in piece.gives), default=0))
        self._real = {piece.number for piece in self._pieces if self._is_real(piece)}
        self.groups = fused([piece for piece in self._pieces if piece.number in self._real], self.reads)

    def _is_real(self, piece: LoopPiece) -> bool:
        """Whether a piece's results have memory of their own."""
        found = self._known.get(piece.number)
        if found is None:
            found = self._known[piece.number] = self._must_be_real(piece)
        return found

    def _must_be_real(self, piece: LoopPiece) -> bool:
        if piece.kind != "loop" or piece.fixed or piece.number in self._kept:
            return True
        if any(view.storage in self._returned for view in piece.gives):
            return True
        if not piece.users or any(user.kind == "library" for user in piece.users):
            return True
        if piece.windowed and piece.name.endswith("backward") and "max" in piece.name:
            return True  # its windows' comparisons are more than `_STEPS` operations
        reads = len(self.reads(piece))
        if reads > 1 and any(user.windowed for user in piece.users):
            return True
        long = self._steps_of(piece) > _STEPS
        return reads > _ALL_READS or long or (piece.uses > 1 and reads > _READS)

    def reads(self, piece: LoopPiece) -> list[tuple[LoopPiece | None, View]]:
        """What a piece reads from memory, loops without memory seen through."""
        found = self._reads.get(piece.number)
        if found is None:
            leaves: dict[tuple[int, int], tuple[LoopPiece | None, View]] = {}
            for maker, view in piece.reads:
                inside = self._inlined(maker, piece)
                for leaf in [(maker, view)] if inside is None else self.reads(inside):
                    leaves.setdefault((leaf[0].number if leaf[0] else -1, leaf[1].storage), leaf)
            found = self._reads[piece.number] = list(leaves.values())
        return found

    def _inlined(self, maker: LoopPiece | None, reader: LoopPiece) -> LoopPiece | None:
        """The loop that a piece computes inside itself for what it reads; None where that lies in memory."""
        if maker is None or maker.kind == "library" or maker.phase != reader.phase or self._is_real(maker):
            return None
        return maker

    def _steps_of(self, piece: LoopPiece) -> int:
        """Operations of a loop with all that is computed inside it: arithmetic, loads, casts from half precision and back."""
        found = self._steps.get(piece.number)
        if found is None:
            found = len(piece.ops) + sum(BYTES[view.dtype] == _HALF for view in piece.gives)
            for maker, view in piece.reads:
                inside = self._inlined(maker, piece)
                found += 1 + (BYTES[view.dtype] == _HALF) if inside is None else self._steps_of(inside)
            self._steps[piece.number] = found
        return found

    def _computed_in(self, piece: LoopPiece) -> list[LoopPiece]:
        """The loops that are computed inside a piece."""
        found: dict[int, LoopPiece] = {}
        waiting = [piece]
        while waiting:
            reader = waiting.pop()
            for maker, _ in reader.reads:
                inside = self._inlined(maker, reader)
                if inside is not None and inside.number not in found:
                    found[inside.number] = inside
                    waiting.append(inside)
        return list(found.values())

    def launches(self) -> list[Launch]:
        """The kernels in order: forward and backward fused, then the optimizer as it is."""
        made = [launch for group in self.groups for launch in self._launched(group)]
        for number, op in enumerate(self._recording.ops):
            if op.phase == "optimizer":
                made += eager_launches(op, number)
        return made

    def _launched(self, group: KernelGroup) -> list[Launch]:
        first = group.pieces[0]
        if first.kind == "library":
            assert first.op is not None
            if first.op.name == "embedding_dense_backward" or first.op.told.get("accumulate"):
                return list(compiled_gradient(first.op, place=first.place, storage=lambda: next(self._partial)))
            left_out = ("nchwToNhwc", "add_bias") if self._channels_last else ("add_bias",)
            return [
                _compiled_call(launch, channels_last=self._channels_last)
                for launch in eager_launches(first.op, first.place)
                if launch.name not in left_out
            ]
        inside = {piece.number for piece in group.pieces}
        takes = [view for maker, view in group.reads if maker is None or maker.number not in inside]
        gives = [view for piece in group.pieces for view in piece.gives if self._is_written(piece, inside)]
        gives = gives or list(first.gives)
        sums = [piece for piece in group.pieces if piece.kind != "loop"]
        wide = max(group.pieces, key=lambda piece: piece.elements)
        loops = [piece for piece in group.pieces if piece.kind == "loop"]
        stages = [
            Arithmetic(ops=piece.ops[:4], shape=wide.shape, reduced=piece.dims)
            for piece in sums
            if piece.shape == wide.shape
        ][:3]
        ops = tuple(op for piece in loops for op in piece.ops)[:16]
        if loops or not stages:
            stages.append(Arithmetic(ops=ops, shape=wide.shape))
        columns = any(piece.kind == "columns" for piece in sums)
        name = (
            "triton_"
            + ("red" if sums else "poi")
            + "_fused_"
            + "_".join(dict.fromkeys(piece.name for piece in group.pieces))[:60]
        )
        scattered = any(_scattered(view) for view in takes)
        rows = max((piece.left for piece in sums if piece.kind == "rows"), default=0)
        share = (COLUMNS_SHARE if columns else ROWS_SHARE if sums else 1.0) * (SCATTERED_SHARE if scattered else 1.0)
        extra = rows * SHORT_ROW if rows and wide.elements < 256 * rows else 0.0
        computed = {each.number: each for piece in group.pieces for each in (piece, *self._computed_in(piece))}
        draws = sum(piece.fixed for piece in computed.values())
        done = [op for piece in computed.values() for op in piece.ops if not piece.fixed]
        operands = len(takes) + len(gives)
        if sums:
            extra += SUM_START + draws * drawing_seconds(wide.elements)
            seconds = summing_seconds(wide.elements, done, operands=operands, variance=any(map(_varies, sums)))
        else:
            extra += POINTWISE_START
            seconds = arithmetic_seconds(wide.elements, done, draws=draws, operands=operands)
        seconds = max(seconds, sum(self._pooling(piece) for piece in computed.values() if piece.windowed))
        share = min(share, streaming_share(takes, gives, seconds))
        launch = Launch(
            name=name, form="reduce" if sums else "pointwise", takes=tuple(takes), gives=tuple(gives), stages=tuple(stages),
            share=share, extra=extra, op=first.place, renews=self._renewed(group, inside),
        )  # fmt: skip
        return [launch, *(part for piece in sums for part in self._summed_again(piece, gives))]

    def _pooling(self, piece: LoopPiece) -> float:
        """Seconds of a window over images."""
        told = self._recording.ops[piece.place].told.get("kernel_size") or (1, 1)
        taps = math.prod(told) if len(told) > 1 else told[0] ** 2
        return pooling_seconds(piece.name, piece.elements, taps, places=len(piece.gives) > 1 and bool(piece.users))

    def _renewed(self, group: KernelGroup, inside: set[int]) -> frozenset[int]:
        """What results may be written over: what the loop that makes one reads itself (`decide_inplace_update`).

        Loops of one kernel hand such a place on, as long as they have as many bytes: in half precision functions that read their
        operand twice (SiLU, GELU) read it in fp32, which is another size (MobileViT in fp32 writes over, MaxViT in bf16 not).
        """
        found: set[int] = set()
        waiting = [piece for piece in group.pieces if self._is_written(piece, inside)]
        seen: set[int] = set()
        while waiting:
            piece = waiting.pop()
            seen.add(piece.number)
            for maker, view in self.reads(piece):
                if maker is None or maker.number not in inside:
                    found.add(view.storage)
                elif maker.kind == "loop" and BYTES[view.dtype] != _HALF and maker.number not in seen:
                    waiting.append(maker)
        return frozenset(found)

    def _summed_again(self, piece: LoopPiece, gives: Sequence[View]) -> Iterator[Launch]:
        """The kernels that add up the parts of a sum that is split."""
        small = [view for view in piece.gives if view in gives] or list(piece.gives)
        for parts in piece.stages:
            for number in range(piece.separate):
                partial = View(next(self._partial), (parts * piece.left,), (1,), "float32")
                yield Launch(
                    name="triton_per_fused_sum", form="pointwise", takes=(partial,), gives=(small[number % len(small)],),
                    stages=(Arithmetic(ops=("add",)),), extra=_MET + (VARIANCE_PARTS if _varies(piece) else 0.0),
                    op=piece.place,
                )  # fmt: skip

    def _is_written(self, piece: LoopPiece, inside: set[int]) -> bool:
        """Whether a piece's results are read after the kernel that it is in."""
        if piece.number in self._kept or any(view.storage in self._returned for view in piece.gives) or not piece.users:
            return True
        return any(not readers <= inside for readers in self._readers.get(piece.number, ()))

    @cached_property
    def _readers(self) -> dict[int, list[set[int]]]:
        """By piece, the pieces of each kernel that reads its results."""
        found: dict[int, list[set[int]]] = {}
        for group in self.groups:
            members = {each.number for each in group.pieces}
            for maker, _ in group.reads:
                if maker is not None:
                    found.setdefault(maker.number, []).append(members)
        return found

    def peak(self) -> dict[str, int]:
        """Bytes of arguments, and of everything else at the worst moment: buffers go when their last reader has run."""
        recording = self._recording
        arguments = sum(rounded(recording.sizes[storage]) for storage in recording.held)
        launches = self.launches()
        last: dict[int, int] = {}
        sizes: dict[int, int] = {}
        for i, launch in enumerate(launches):
            for view in (*launch.takes, *launch.gives):
                if view.storage >= OF_A_CALL:
                    continue
                last[view.storage] = i
                sizes[view.storage] = max(
                    sizes.get(view.storage, 0), view.elements * (view.bytes // max(1, view.elements) or 1)
                )
        for view in recording.returned:
            last[view.storage] = len(launches)
        phases = [recording.ops[launch.op].phase for launch in launches]
        forward = max((i for i, phase in enumerate(phases) if phase == "forward"), default=-1)
        for view in recording.passed_on:
            last[view.storage] = max(forward, last.get(view.storage, 0))
        gone: dict[int, list[int]] = {}
        for storage, at in last.items():
            gone.setdefault(at + 1, []).append(storage)
        real = {storage: recording.sizes.get(storage, size) for storage, size in sizes.items()}
        events: list[Event] = []
        # A result that a graph passes on has a gradient of its own, zeros where nobody read it, until the first product.
        filled, multiplied = sum(rounded(view.bytes) for view in recording.passed_on if view.elements > 1), False
        for i, launch in enumerate(launches):
            made = [view.storage for view in launch.gives if view.storage < OF_A_CALL]
            freed = list(gone.get(i, []))
            if launch.form in (
                "pointwise",
                "reduce",
            ):  # a result takes the place of what its kernel is the last to read
                ending = [s for s in (view.storage for view in launch.takes) if last.get(s) == i and s in launch.renews]
                freed += [s for s in ending if any(real[s] == real[each] for each in made) and s not in made]
            op = recording.ops[launch.op]
            turned = launch.form == "convolution" and self._channels_last
            besides = 0 if turned or launch.form in ("pointwise", "reduce") else call_workspace(op)
            if phases[i] == "backward" and not multiplied:
                besides += filled
                multiplied = launch.form == "product"
            events.append((freed, made, besides))
        return told(arguments, worst(events, real, ignored=recording.held) + cublas_workspaces(recording))


def _varies(piece: LoopPiece) -> bool:
    """Whether a sum is a mean with its variance, of channels or of more than a row."""
    return "backward" not in piece.name and any(word in piece.name for word in ("batch_norm", "group_norm", "var"))


def _scattered(view: View) -> bool:
    """Whether a tensor is read in another order than it lies in."""
    return view.elements > 1 << 16 and not view.contiguous and 0 not in view.strides


def _compiled_call(launch: Launch, *, channels_last: bool) -> Launch:
    """A library's call between fused kernels: products as `padded_operands` has them, images channels last where they are all
    so.
    """
    name = f"extern_{launch.name}"
    if launch.form == "product":
        return replace(launch, name=name, told={**launch.told, "m": timed_rows(launch.told, launch.takes[0].dtype)})
    if launch.name.startswith("conv_depthwise") and launch.told and channels_last:
        return replace(depthwise_by_cudnn(launch), name=name)
    if launch.form == "convolution" and channels_last:
        # No rows of pixels that could lie badly.
        share = CUDNN[by_cudnn(launch.told, launch.takes[0], last=True)] * grouped_share(launch.told)
        return replace(launch, name=name, share=share)
    return replace(launch, name=name)
