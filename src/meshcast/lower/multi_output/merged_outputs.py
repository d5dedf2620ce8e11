"""Multi-output fusion as XLA:GPU does it: kernels that read the same, or one the other's result, become one launch.

After multi_output_fusion.cc and gpu_fusible.cc (openxla/xla, August 2026). Values are visited with readers before makers. Kernels
that read the value become one where neither waits for the other, however far they are apart in the program (`step_order`):
the updates of a parameter and of its moments, say. Then the maker of the value joins one of its readers, which hands the value on
besides its own result. Both kinds need

- loops over as many elements, in one order: those of a reduction's input, else those of the result;
- reductions of one shape along the same dimensions, no more than 8 of them, nor more than a block's shared memory has room for:
  a reduction of columns takes a cache of 32 x 129 elements, one of rows 32;
- no more operands and results than a kernel may have;
- no update in place among them, nor a row fusion (Triton's), a product or a library's call, nor a join of up to four arrays, or
  arithmetic on one, whose emitter gives one result (UseConcatenateFusion of hlo_fusion_analysis.cc);
- of a maker and its reader: that they take no longer in one kernel (`joint_kernel_times`);
- of siblings: that no collective waits for another because of them (`tied_collectives`), which is a rule of ours.

An operand of one element is nothing to share; nor is a value of which each of both reads a part of its own. A single op that is
no arithmetic (a slice, a concatenation) was never made a fusion, and joins none; but a reader of as many elements as a
slice has may hand the slice on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from meshcast.lower.fused_kernels.fetched_sectors import Member
from meshcast.lower.fused_kernels.fused_kernel import merged, without_results
from meshcast.lower.fused_kernels.kernel_flags import short_name
from meshcast.lower.fusion.cost_model import MAX_VALUES
from meshcast.lower.kernel import Kernel, KernelKind, Step
from meshcast.lower.multi_output.joint_kernel_times import is_slower_repeated, is_slower_together
from meshcast.lower.multi_output.recomputation import AskedValues, asked_of
from meshcast.lower.multi_output.step_order import StepOrder
from meshcast.lower.multi_output.tied_collectives import TiedCollectives
from meshcast.lower.schedule.step_dependencies import dependencies
from meshcast.lower.value_types import LAID_OUT_ANEW
from meshcast.workload import Reduction, Tensor

MAX_REDUCTIONS = 8
SHARED_MEMORY = 48 << 10  # bytes that a block may have without asking for more
_ROW_CACHE, _COLUMN_CACHE = 32, 32 * (4 * 32 + 1)  # elements that a reduction keeps there
# Up to so many bytes of a value may be shared by kernels that read different parts of it.
_SMALL = 1024
# Kernels over other elements, or connected ones, that are asked in vain before a kernel takes no more siblings: XLA asks all of
# them, but where a weight is read in every step of a long chain each is connected with all others.
MAX_ASKED = 48

MAX_JOINED = 4  # arrays, up to which joins have an emitter of their own

# Single ops that XLA leaves as they are until all fusion is done.
_UNFUSED = frozenset(
    {
        "slice", "dynamic_slice", "concatenate", "pad", "broadcast_in_dim", "broadcast", "iota", "gather", "reverse", "copy",
        "transpose", "dynamic_update_slice", "reshape", "dynamic_gather", "dynamic_pad", "constant",
    }
)  # fmt: skip
_CUT = frozenset({"slice", "dynamic_slice"})  # of these, what a reader of the same elements hands on

Fused = Callable[[int], "Sequence[Member] | None"]  # a kernel's result -> the ops that it is made of


def merge_outputs(
    steps: Sequence[Step], tensors: Sequence[Tensor], outputs: Sequence[int], fused: Fused = lambda _: None
) -> list[Step]:
    """The steps of a block, with kernels merged that XLA:GPU gives several results.

    Args:
        steps: In order.
        tensors: Types of all values.
        outputs: Values that somebody outside the block reads.
        fused: The ops of the kernel that makes a value; None where it is not known.
    """
    spaces = [_space(step, tensors) if isinstance(step, Kernel) else 0 for step in steps]
    joining = sum(map(bool, spaces))
    if not joining or joining + sum(isinstance(step, Kernel) and _is_cut(step) for step in steps) < 2:
        return list(steps)
    return _OutputMerging(steps, spaces, tensors, outputs, fused).result()


def _space(kernel: Kernel, tensors: Sequence[Tensor]) -> int:
    """Elements a kernel loops over; 0 for one that never merges."""
    if not kernel.writes or kernel.updates:
        return 0
    if kernel.kind is KernelKind.REDUCTION and isinstance(kernel.geometry, Reduction):
        space = math.prod(kernel.geometry.shape)
        return 0 if tensors[kernel.writes[0]].elements == space else space  # a row fusion gives what it takes
    if kernel.kind is not KernelKind.LOOP_FUSION or (len(kernel.ops) == 1 and short_name(kernel.ops[0]) in _UNFUSED):
        return 0
    if 1 < len(kernel.pieces) <= MAX_JOINED:
        return 0
    return tensors[kernel.writes[0]].elements


def _is_cut(kernel: Kernel) -> bool:
    """Whether a kernel is a single slice."""
    return len(kernel.ops) == 1 and short_name(kernel.ops[0]) in _CUT and len(kernel.writes) == 1


class _OutputMerging:
    def __init__(
        self, steps: Sequence[Step], spaces: list[int], tensors: Sequence[Tensor], outputs: Sequence[int], fused: Fused
    ) -> None:
        self._fused = fused
        self._asked: dict[int, AskedValues] = {}  # by a kernel's result, where it was asked about
        self._parts: dict[int, list[int]] = {}  # results of the kernels that a merged one is made of, by its place
        self._steps: list[Step | None] = list(steps)
        self._spaces, self._tensors = spaces, tensors
        self._kept = frozenset(outputs)
        self._sums: dict[int, int] = {}  # how many reductions a kernel has that was asked about
        self._order: StepOrder | None = None
        self._ties = TiedCollectives(steps)
        self._readers: dict[int, list[int]] = {}  # value -> steps that read it, in order
        for index, step in enumerate(steps):
            for value in dict.fromkeys(step.reads):
                self._readers.setdefault(value, []).append(index)

    def result(self) -> list[Step]:
        made = {value: index for index, step in enumerate(self._steps) if step for value in step.writes}
        # An argument stands right before its first reader; whatever reads a value was visited before it.
        places = [(float(index), value) for value, index in made.items()]
        places += [(reading[0] - 0.5, value) for value, reading in self._readers.items() if value not in made]
        for _, value in sorted(places, reverse=True):
            if self._tensors[value].elements > 1:
                self._merge_siblings(value)
            if value in made:
                self._pass_on(made[value], value)
        if self._order is None:
            return [step for step in self._steps if step is not None]
        order = self._order.places
        left = [index for index, step in enumerate(self._steps) if step is not None]
        return [step for index in sorted(left, key=order.__getitem__) if (step := self._steps[index]) is not None]

    def _kernel(self, index: int) -> Kernel:
        step = self._steps[index]
        assert isinstance(step, Kernel)
        return step

    def _priority(self, index: int) -> int:
        """Kernels with several results take others in first, then fusions, then single ops."""
        kernel = self._kernel(index)
        return 2 if len(kernel.writes) > 1 else int(len(kernel.ops) > 1)

    def _merge_siblings(self, value: int) -> None:
        """Merges kernels that read a value."""
        readers, spaces = self._readers.get(value, ()), self._spaces
        if len(readers) < 2:
            return
        by_space: dict[int, list[int]] = {}
        for index in readers:
            if space := spaces[index]:
                by_space.setdefault(space, []).append(index)
        for siblings in by_space.values():
            if len(siblings) > 1:
                self._merge_alike(value, sorted(siblings, key=self._priority, reverse=True))

    def _merge_alike(self, value: int, siblings: list[int]) -> None:
        at = 0
        while at < len(siblings) - 1:
            host, behind, refused = siblings[at], at + 1, 0
            at += 1
            if self._is_single(host):
                continue
            while behind < len(siblings) and refused < MAX_ASKED:
                guest = siblings[behind]
                if (
                    self._fit(host, guest)
                    and not self._read_parts(host, guest, value)
                    and not self._ties.ties(host, guest)
                    and not self._connected(host, guest)
                ):
                    self._merge(host, guest)
                    del siblings[behind]
                else:
                    behind, refused = behind + 1, refused + 1

    def _is_single(self, index: int) -> bool:
        kernel = self._kernel(index)
        return len(kernel.ops) == 1 and kernel.kind is not KernelKind.REDUCTION

    def _pass_on(self, maker: int, value: int) -> None:
        """The maker of a value joins one of its readers, and the value is among that one's results."""
        kernel = self._steps[maker]
        if not isinstance(kernel, Kernel) or kernel.kind is not KernelKind.LOOP_FUSION:
            return
        # A single slice, too, is written down by a reader of as many elements (IsProducerMultiOutputFusible).
        space = self._spaces[maker] or (self._tensors[value].elements if _is_cut(kernel) else 0)
        if not space:
            return
        readers = self._readers.get(value, ())
        alike = [index for index in readers if self._spaces[index] == space]
        if not alike or len(kernel.writes) != 1 or "transpose" in kernel.flags:
            return
        if "copy" in map(short_name, kernel.ops):
            return
        alone = len(readers) + (value in self._kept) == 1
        found = [
            index
            for index in alike
            if not (alone and self._priority(index) < 2)
            and self._fit(maker, index)
            and not self._connected(maker, index, passing_on=True)
            and not is_slower_together(kernel, self._kernel(index), value)
            and not self._repeats_slowly(maker, index, value)
        ]
        if found:
            self._merge(max(found, key=self._priority), maker)

    def _repeats_slowly(self, maker: int, reader: int, value: int) -> bool:
        """Whether a pass over elements asks for a value at other places as well, and computing it there takes longer."""
        kernel, other = self._kernel(maker), self._kernel(reader)
        if other.kind is not KernelKind.LOOP_FUSION or other.reads.index(value) not in other.rearranged:
            return False
        made, parts = self._asked_of(value), [self._asked_of(part) for part in self._parts_of(reader)]
        if made is None or not all(parts):
            return False
        asked = [part for part in parts if part is not None]
        found = [part.times(value, self._tensors[value].elements) for part in asked]
        times = any(itself for itself, _ in found) + sum(besides for _, besides in found)
        return is_slower_repeated(kernel, other, value, made.cycles, sum(part.cycles for part in asked), times)

    def _parts_of(self, index: int) -> list[int]:
        found = self._parts.get(index)
        if found is None:
            found = self._parts[index] = [*self._kernel(index).writes[:1]]
        return found

    def _asked_of(self, result: int) -> AskedValues | None:
        if result not in self._asked and (members := self._fused(result)) is not None:
            self._asked[result] = asked_of(members, self._tensors)
        return self._asked.get(result)

    def _fit(self, first: int, second: int) -> bool:
        """Whether one kernel can be what two are."""
        one, other = self._kernel(first), self._kernel(second)
        if self._go_across(one, other):
            return False
        if one.kind is KernelKind.REDUCTION and other.kind is KernelKind.REDUCTION:
            if one.geometry != other.geometry or self._reductions(first) + self._reductions(second) > MAX_REDUCTIONS:
                return False
            if self._cache(first) + self._cache(second) > SHARED_MEMORY:
                return False
        if len(one.reads) + len(other.reads) - 1 + len(one.writes) + len(other.writes) <= MAX_VALUES:
            return True
        read = {*one.reads, *other.reads}.difference(one.writes, other.writes)
        return len(read) + len(one.writes) + len(other.writes) <= MAX_VALUES

    def _go_across(self, one: Kernel, other: Kernel) -> bool:
        """Whether a reduction goes over what the other lays out anew in another order (ShapesCompatibleForMultiOutputFusion)."""
        reduction, turning = (one, other) if one.kind is KernelKind.REDUCTION else (other, one)
        if LAID_OUT_ANEW not in turning.ops or not isinstance(reduction.geometry, Reduction):
            return False
        first, second = reduction.geometry.shape, self._tensors[turning.writes[0]].shape
        return [size for size in first if size > 1] != [size for size in second if size > 1]

    def _reductions(self, index: int) -> int:
        found = self._sums.get(index)
        if found is None:
            names = self._kernel(index).ops
            found = self._sums[index] = max(1, [*map(short_name, names)].count("reduce"))
        return found

    def _cache(self, index: int) -> int:
        """Bytes of shared memory that the reductions of a kernel take."""
        kernel = self._kernel(index)
        if not isinstance(kernel.geometry, Reduction):
            return 0
        elements = _ROW_CACHE if kernel.geometry.reduces_minor else _COLUMN_CACHE
        widths = [self._tensors[value].bytes / max(1, self._tensors[value].elements) for value in kernel.writes]
        return int(elements * max(widths, default=4) * self._reductions(index))

    def _read_parts(self, first: int, second: int, value: int) -> bool:
        """Whether each of two kernels reads a slice of its own of a value."""
        size = self._tensors[value].bytes
        return size >= _SMALL and self._slices(first, value) and self._slices(second, value)

    def _slices(self, index: int, value: int) -> bool:
        kernel = self._kernel(index)
        read = kernel.operand_bytes[kernel.reads.index(value)]
        return 0 < read < self._tensors[value].bytes and "slice" in map(short_name, kernel.ops)

    def _connected(self, first: int, second: int, *, passing_on: bool = False) -> bool:
        if self._order is None:  # before anything was merged
            self._order = StepOrder(dependencies([step for step in self._steps if step is not None]))
        return self._order.connected(first, second, passing_on=passing_on)

    def _is_read_within(self, value: int, host: int, guest: int) -> bool:
        """Whether nobody but two kernels that become one reads a value: HloDCE drops it from the fusion's results."""
        readers = self._readers.get(value)
        return readers is not None and all(index in (host, guest) for index in readers)

    def _merge(self, host: int, guest: int) -> None:
        assert self._order is not None
        places = self._order.places
        low, high = sorted((host, guest), key=places.__getitem__)
        whole = merged(self._kernel(low), self._kernel(high))
        unread = [
            value for value in whole.writes if value not in self._kept and self._is_read_within(value, host, guest)
        ]
        if unread:
            whole = without_results(whole, unread, self._tensors)
        self._order.merge(host, guest)
        self._ties.merge(host, guest)
        self._parts[host] = [*self._parts_of(host), *self._parts_of(guest)]
        self._steps[host], self._steps[guest] = whole, None
        self._sums.pop(host, None)
        for value in whole.reads:
            readers = self._readers[value]
            if guest in readers:
                if host in readers:
                    readers.remove(guest)
                else:
                    readers[readers.index(guest)] = host
