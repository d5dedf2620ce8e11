"""XLA:GPU's priority fusion: which ops become kernels, decided in the order in which XLA decides it.

After priority_fusion.cc, gpu_performance_model.cc and gpu_hlo_cost_analysis.cc (openxla/xla, August 2026). Every op that may be
computed inside its readers waits in a queue. Its priority is the time that it saves there,

    launch + t(op) + sum over readers r of (t(r) - t(r with the op inside)),

to a quarter of a nanosecond; the later op goes first where two save alike. The first is fused into all of its readers, whose
times and those of all that they read are then worked out anew; what would save less than nothing stays out, unless its readers
change. What is left in the end are the kernels. So a cheap op is repeated in each of its readers before anything dear is behind
it, and what is dear stops where it would have to be computed twice.

A fusion asks for a value at places: where its root is computed, and at every value that an op inside takes elsewhere than element
by element (slices, broadcasts, reductions). Arithmetic that is asked for at the same places loads its operands once; places count
for themselves (FusionCalculateUtilizations). `cost_model` has what a kernel's time is made of. Normalisation diamonds are
kernels before the queue begins (softmax_rewriter_triton.cc), and take in more than others do (`row_programs`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Mapping, Sequence, Set

from meshcast.lower.fusion.candidates import LARGE_CODE, ROOT, FusionCandidate, beside, is_too_large, joined, total_of
from meshcast.lower.fusion.coalescing import ORDERLY, Loaded
from meshcast.lower.fusion.cost_model import (
    BYTES_PER_S,
    LAUNCH_S,
    MAX_VALUES,
    Rates,
    again_rate,
    cycles_of,
    kernel_seconds,
    root_rates,
)
from meshcast.lower.fusion.growing_fusions import is_index
from meshcast.lower.fusion.overwritten_reads import is_overwritten, note_target, take_in
from meshcast.lower.fusion.row_programs import gain_by_rows, is_tiled, take_in_by_rows
from meshcast.lower.fusion.rules import IN_PLACE
from meshcast.lower.graph.constants import KnownValues
from meshcast.workload import Op, OpKind, Reduction, Tensor, Window

_TICKS_PER_S = 4e9  # absl::Duration's
_NARROW = 4  # bytes of an element, below which columns are reduced four at a time
_STARTED = frozenset({OpKind.REDUCE, OpKind.WINDOW})


def kept_ops(
    ops: Sequence[Op],
    operands: Sequence[tuple[int, ...]],
    fusible: Collection[int],
    readers: Mapping[int, Sequence[int]],
    known: KnownValues,
    diamonds: Mapping[int, int],
    spoiled: Mapping[int, Loaded],
    tensors: Sequence[Tensor],
    least: Callable[[int], int],
) -> Set[int]:
    """The places of the ops, of those that may be computed inside their readers, that stay kernels of their own.

    Args:
        ops: A block's ops in order.
        operands: Theirs, views resolved.
        fusible: Places of the ops, of one result each, that all of their readers could compute.
        readers: Places of the ops that read a value and may compute it on the way in.
        known: Values that are known before a run, or are one element spread over all.
        diamonds: Places of the reductions of normalisation diamonds, and of the ops that these end with.
        spoiled: Places of transposes that spoil a loop's reads.
        tensors: Types of all values.
        least: How many elements it takes to have a value.
    """
    if not fusible:
        return frozenset()
    queue = _FusionQueue(ops, operands, fusible, readers, known, spoiled, tensors, least)
    if diamonds:
        queue.close(diamonds)
    return queue.run()


class _FusionQueue:
    def __init__(
        self,
        ops: Sequence[Op],
        operands: Sequence[tuple[int, ...]],
        fusible: Collection[int],
        readers: Mapping[int, Sequence[int]],
        known: KnownValues,
        spoiled: Mapping[int, Loaded],
        tensors: Sequence[Tensor],
        least: Callable[[int], int],
    ) -> None:
        self._ops, self._operands, self._tensors, self._known = ops, operands, tensors, known
        self._spoiled, self._least = spoiled, least
        self._sizes: dict[int, tuple[float, float]] = {}  # value -> bytes of an element, and of all that is in memory
        self._waiting = set(fusible)
        self._maker = {ops[place].results[0]: place for place in fusible}
        self._readers: dict[int, set[int]] = {value: set(readers[value]) for value in self._maker}
        self._cycles: dict[tuple[int, str, bool], float] = {}
        self._loop_rates: dict[int, Rates] = {}
        counted = {value for op in ops if op.cost.kind is OpKind.GENERATE for value in op.results} - known.constants
        members = sorted(self._waiting.union(*self._readers.values()))
        self._kernels = {place: self._kernel(place, counted) for place in members}
        self._next = len(ops)

    def _kernel(self, place: int, counted: Set[int]) -> FusionCandidate:
        """An op alone; `counted` are values that count up, which are read from nowhere."""
        op, operands, tensors = self._ops[place], self._operands[place], self._tensors
        cost = op.cost
        kind = cost.kind
        elements = space = max([tensors[value].elements for value in op.results], default=1) or 1
        reduction = kind is OpKind.REDUCE and isinstance(cost.geometry, Reduction)
        if isinstance(cost.geometry, Reduction) and reduction:
            space = math.prod(cost.geometry.shape)
        elif kind in IN_PLACE:
            space = max([tensors[value].elements for value in operands[1:]], default=1)
            operands = operands[1:]
        by_constant = len(operands) == 2 and operands[1] in self._known.constants
        alike = (id(cost), op.name, by_constant)
        cycles = self._cycles.get(alike)
        if cycles is None or kind is OpKind.MOVE:  # a join's goes by its shape
            cycles = self._cycles[alike] = cycles_of(op, tensors, by_constant=by_constant)
        if isinstance(cost.geometry, Window):
            cycles *= math.prod(cost.geometry.window)
        narrow = reduction and any([self._width(value) < _NARROW for value in operands])
        rates = self._loop_rates.get(space) if not reduction else None
        if rates is None:
            rates = root_rates(op, space, self._least, tensors, narrow=narrow)
            if not reduction:
                self._loop_rates[space] = rates
        kernel = FusionCandidate(place, elements, cycles * space, rates, cost.written_bytes / BYTES_PER_S)
        if reduction and not narrow:
            kernel.narrow = root_rates(op, space, self._least, tensors, narrow=True)
        kernel.tiled, kernel.reduces = is_tiled(op, tensors), reduction
        kernel.loaded = self._spoiled.get(place, ORDERLY).alone
        note_target(kernel, op, self._operands[place])
        kernel.copies += sum(map(int.__ne__, op.operands, self._operands[place]))  # views between are instructions, too
        asked, places = kernel.asked, kernel.places
        for value in operands:
            if value in counted:
                kernel.copies += 1
                continue
            self._width(value)
            if kind is OpKind.ELEMENTWISE:
                asked[value] = elements
            else:
                count = self._asked(op, place, value, space, elements)
                before = places.get(value, {value: (0.0, 0.0)})[value]
                places[value] = {value: (before[0] + count, before[1] + 1)}
                asked[value] = before[0] + count
        self._settle(kernel)
        return kernel

    def _width(self, value: int) -> float:
        """Bytes of an element of a value, whose sizes are known from now on."""
        found = self._sizes.get(value)
        if found is None:
            tensor = self._tensors[value]
            width = tensor.bytes / tensor.elements if tensor.elements else 0.0
            found = self._sizes[value] = width, width if value in self._known.splats else tensor.bytes
        return found[0]

    def _asked(self, op: Op, place: int, value: int, space: int, elements: int) -> int:
        """How many elements of an operand an op that is no arithmetic asks for."""
        kind, whole = op.cost.kind, self._tensors[value].elements
        if kind in _STARTED and whole == 1:
            return elements  # what it starts with, once for every result
        if kind is OpKind.REDUCE:
            return space
        if kind in IN_PLACE:
            return whole
        if kind is OpKind.MOVE and self._is_widened(op):
            return elements
        if kind is OpKind.MOVE or (kind is OpKind.GATHER and is_index(value, self._operands[place], self._tensors)):
            return min(elements, whole)
        window = op.cost.geometry
        return elements * math.prod(window.window) if isinstance(window, Window) else elements

    def _is_widened(self, op: Op) -> bool:
        """Whether windows alone read a pad: XLA pads inside the window then, and counts what it pads as if it were asked for."""
        readers = self._readers.get(op.results[0], ()) if op.name.endswith("pad") else ()
        return bool(readers) and all([self._ops[reader].cost.kind is OpKind.WINDOW for reader in readers])

    def close(self, diamonds: Mapping[int, int]) -> None:
        """Makes one kernel of the reduction of each diamond and what follows it up to its end: all of a row is at hand there."""
        following: dict[int, list[int]] = {}
        for place, kernel in self._kernels.items():
            for value in kernel.asked:
                following.setdefault(value, []).append(place)
        for reduction, end in diamonds.items():
            place = reduction
            while place != end:
                value = self._ops[place].results[0]
                reading = [reader for reader in following.get(value, ()) if value in self._kernels[reader].asked]
                if len(reading) != 1:
                    break
                (reader,) = reading
                rows = self._tensors[self._ops[reduction].results[0]].elements
                if place in self._kernels:
                    self._close(place, value, reader, rows)
                    for other in self._kernels[reader].asked:
                        following[other] = [reader if each == place else each for each in following[other]]
                else:  # a reduction of what nobody computes, such as an argument: what follows it is one kernel all the same
                    self._kernels[reader].rows = rows
                place = reader

    def _close(self, place: int, value: int, reader: int, rows: int) -> None:
        kernel, into = self._kernels.pop(place), self._kernels[reader]
        into.rows = rows
        into.asked.pop(value)
        into.places.pop(value, None)
        for other, count in kernel.asked.items():
            into.asked[other] = max(count, into.asked.get(other, 0.0))
            into.places.pop(other, None)
            if other in self._readers:
                self._readers[other].discard(place)
                self._readers[other].add(reader)
        into.cycles += kernel.cycles
        into.row_cycles += kernel.row_cycles
        into.copies += kernel.copies
        self._settle(into)
        self._forget(place, value)

    def _forget(self, place: int, value: int) -> None:
        self._waiting.discard(place)
        self._maker.pop(value, None)
        self._readers.pop(value, None)

    def run(self) -> Set[int]:
        """Fuses until nothing is gained any more; what is still waiting then."""
        current: dict[int, tuple[int, int]] = {}
        heap: list[tuple[int, int, int]] = []
        for place in self._waiting:
            self._kernels[place].ask_all(self._readers[self._ops[place].results[0]])
        self._enqueue(self._waiting, current, heap)
        kernels, readers, maker = self._kernels, self._readers, self._maker
        while heap:
            first, order, place = heapq.heappop(heap)
            if current.get(place) != (first, order):
                continue
            del current[place]
            kernel, value = kernels.pop(place), self._ops[place].results[0]
            into = sorted(readers[value])
            self._forget(place, value)
            changed: set[int] = set()
            for reader in into:
                self._fuse(place, kernel, value, reader)
                for other in kernels[reader].asked:
                    if (made := maker.get(other)) is not None:
                        kernels[made].ask(reader)
                        changed.add(made)
                if reader in self._waiting:
                    kernels[reader].ask_all(readers[self._ops[reader].results[0]])
                    changed.add(reader)
            for other in kernel.asked:
                if other in readers:
                    readers[other].discard(place)
                    readers[other].update(into)
                    kernels[maker[other]].forget(place)
            self._enqueue(changed, current, heap)
        return self._waiting

    def _enqueue(
        self, places: Collection[int], current: dict[int, tuple[int, int]], heap: list[tuple[int, int, int]]
    ) -> None:
        for place in places:
            priority = self._priority(place)
            if priority is None or priority < 0:
                current.pop(place, None)
                continue
            key = (-priority, -self._kernels[place].order)
            if current.get(place) != key:
                current[place] = key
                heapq.heappush(heap, (*key, place))

    def _priority(self, place: int) -> int | None:
        """What is saved if an op is inside all of its readers, in ticks; None where one of them cannot take it in."""
        kernel, value = self._kernels[place], self._ops[place].results[0]
        into = self._readers[value]
        if not into:
            return None
        while kernel.unknown and not kernel.barred:
            reader = kernel.unknown.pop()
            gain = self._gain(place, kernel, value, self._kernels[reader])
            if gain is None:
                kernel.gains[reader] = None
                kernel.barred += 1
            else:
                kernel.gains[reader] = ticks = round(gain * _TICKS_PER_S)
                kernel.gained += ticks
        if kernel.barred:
            return None
        return round((LAUNCH_S + kernel.seconds) * _TICKS_PER_S) + kernel.gained

    def _gain(self, place: int, kernel: FusionCandidate, value: int, into: FusionCandidate) -> float | None:
        """Seconds that a reader gains if an op is inside it; None where that cannot be."""
        if into.target is not None and is_overwritten(kernel, value, into, self._ops, self._operands, self._tensors):
            return None
        if into.rows or kernel.rows or kernel.reduces:
            return gain_by_rows(kernel, value, into, self._sizes)
        asked, times, places = into.asked, into.times, into.places
        where, count = places.get(value), asked[value]
        copies = kernel.copies if where is None else kernel.copies * sum([times for _, times in where.values()])
        if into.copies + copies > LARGE_CODE and is_too_large(kernel, value, into, self._known.constants):
            return None
        rates = into.rates if into.narrow is None else self._rates(kernel.asked, into)
        loaded = self._loaded(place, kernel, into) if kernel.loaded > 1 or place in self._spoiled else into.loaded
        anew = rates is not into.rates or loaded > into.loaded
        reads_s = 0.0 if anew else into.reads_s - times[value]
        from_memory, cached, sizes = rates[1] / loaded, rates[2], self._sizes
        share, more = count / kernel.elements, -1
        for other, own in kernel.asked.items():
            before, inside = asked.get(other), kernel.places.get(other)
            if inside is None:
                if before is None:
                    total = count
                elif where is None and other not in places and not anew:
                    continue  # both ask for it where the root is, as mostly
                else:
                    total = beside(where, count, other, into)
            elif ROOT in inside:
                total = beside(where, count, other, into) + (own - inside[ROOT][0]) * share
            else:
                total = own * share
            if before is None:
                more += 1
            elif total or anew:
                total += before
                reads_s -= 0.0 if anew else times[other]
            else:
                continue
            width, size = sizes[other]
            total *= width
            if total <= size:
                reads_s += total / from_memory
            else:
                reads_s += size / from_memory + (total - size) / again_rate(size, cached, from_memory)
        if len(asked) + more > MAX_VALUES:
            return None
        if anew:
            for other, own in asked.items():
                if other != value and other not in kernel.asked:
                    reads_s += self._read_s(other, own, rates, loaded)
        return into.seconds - kernel_seconds((kernel.cycles * share + into.cycles) / rates[0], reads_s + into.written_s)

    def _rates(self, found: Collection[int], into: FusionCandidate) -> Rates:
        """The rates of a kernel that also reads these."""
        if into.narrow is not None and any([self._sizes[value][0] < _NARROW for value in found]):
            return into.narrow
        return into.rates

    def _loaded(self, place: int, kernel: FusionCandidate, into: FusionCandidate) -> float:
        """Bytes that a kernel loads for one that it needs once an op is inside it."""
        return max(self._spoiled[place].inside if place in self._spoiled else kernel.loaded, into.loaded)

    def _fuse(self, place: int, kernel: FusionCandidate, value: int, reader: int) -> None:
        into = self._kernels[reader]
        into.tiled = into.tiled and kernel.tiled
        take_in(kernel, into)
        if into.order < len(self._ops):  # the first that is fused into it makes a fusion of it, a new instruction
            self._next += 1
            into.order = self._next
        if into.rows or kernel.rows:
            take_in_by_rows(kernel, value, into, self._tensors)
            self._settle(into)
            return
        found, share, copies = joined(kernel, value, into)
        rates, loaded = self._rates(found, into), self._loaded(place, kernel, into)
        if anew := rates is not into.rates or loaded > into.loaded:
            into.rates, into.loaded = rates, loaded
            into.narrow = None if rates is into.narrow else into.narrow
        del into.asked[value], into.times[value]
        into.places.pop(value, None)
        for other, where in found.items():
            total = into.asked[other] = total_of(where)
            into.times[other] = self._read_s(other, total, rates, loaded)
            if len(where) == 1 and ROOT in where:
                into.places.pop(other, None)
            else:
                into.places[other] = where
        into.cycles += kernel.cycles * share
        into.row_cycles += kernel.row_cycles
        into.copies += kernel.copies * copies
        self._settle(into, anew=anew)

    def _settle(self, kernel: FusionCandidate, *, anew: bool = True) -> None:
        """Works out a kernel's time; `anew`: with those of all that it reads."""
        if anew:
            rates, loaded = kernel.rates, kernel.loaded
            kernel.times = {value: self._read_s(value, count, rates, loaded) for value, count in kernel.asked.items()}
        kernel.reads_s = sum(kernel.times.values())
        kernel.seconds = kernel_seconds(kernel.cycles / kernel.rates[0], kernel.reads_s + kernel.written_s)

    def _read_s(self, value: int, count: float, rates: Rates, loaded: float) -> float:
        """Seconds to load so many elements: each of the array's bytes once from memory, what is loaded again from a cache."""
        width, size = self._sizes[value]
        total, from_memory = count * width, rates[1] / loaded
        if total <= size:
            return total / from_memory
        return size / from_memory + (total - size) / again_rate(size, rates[2], from_memory)
