"""One kernel from the ops of a fusion: boundary bytes, work that is really done, the type it is done in."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set

from meshcast.base import copier
from meshcast.lower.fused_kernels.fetched_sectors import Member, Transposes, cuts, fetched_shares
from meshcast.lower.fused_kernels.kernel_flags import flags_of
from meshcast.lower.fused_kernels.mask_comparisons import compares_with_what_it_reads
from meshcast.lower.fusion.rules import IN_PLACE
from meshcast.lower.kernel import Kernel, KernelKind
from meshcast.lower.layouts.transposes import fills_packed_tiles, turns
from meshcast.lower.value_types import PREFIX_WINDOW
from meshcast.workload import Attention, Indexed, Op, OpKind, Tensor, element_bytes

_KINDS = {
    OpKind.GEMM: KernelKind.GEMM,
    OpKind.CONVOLUTION: KernelKind.CONVOLUTION,
    OpKind.REDUCE: KernelKind.REDUCTION,
    OpKind.SCAN: KernelKind.REDUCTION,
    OpKind.TRANSPOSE: KernelKind.TRANSPOSE,
    OpKind.GATHER: KernelKind.GATHER,
    OpKind.SCATTER: KernelKind.SCATTER,
    OpKind.SORT: KernelKind.SORT,
    OpKind.WINDOW: KernelKind.OTHER,
    OpKind.FFT: KernelKind.OTHER,
    OpKind.LINALG: KernelKind.SOLVER,
    OpKind.HOST: KernelKind.OTHER,
    OpKind.CUSTOM: KernelKind.CUSTOM,
    OpKind.COLLECTIVE: KernelKind.COLLECTIVE,
}
# Read only a part of an operand, so that what computes it for them computes only that part.
_PARTIAL = frozenset({OpKind.SLICE, OpKind.GATHER})
# Leave numbers what they are, in another type or at another place.
_WIDENING = frozenset({"convert", "pad", "reshape", "transpose", "broadcast_in_dim", "reverse", "copy"})
# May decide what kind of kernel a fusion is, or what it is asked about, wherever they stand in it.
_DECIDING = frozenset({OpKind.REDUCE, OpKind.GEMM, OpKind.CONVOLUTION, OpKind.GATHER})


def fused_kernel(
    members: Sequence[Member],
    tensors: Sequence[Tensor],
    *,
    cold: bool = False,
    results: Sequence[int] = (),
    elemental: bool = False,
    walked: Transposes = "anew",
    name: str = "",
) -> Kernel:
    """The kernel that computes `members` together.

    Bytes are those that cross the fusion's boundary: each outside operand once, however many members read it, and the
    results. An op of which only a part is read inside is computed only there: its work and its reads are
    scaled by that part.

    Args:
        members: Ops in program order.
        tensors: Types of all values.
        cold: Whether they read what no cache can hold yet.
        results: What is read outside; by default what the last member, the root, gives.
        elemental: Whether reductions are loops inside the thread that needs their result.
        walked: Which transposes are walked across by the threads that need their results.
        name: By default the kind and the root's name.
    """
    roots = _roots(members, results)
    root, root_operands = roots[0]
    cost = root.cost
    inside = set().union(*[op.results for op, _ in members])
    kinds = {op.cost.kind for op, _ in members}
    parts = (
        [1.0] * len(members)
        if _PARTIAL.isdisjoint(kinds)
        else _computed_parts(members, inside, tensors, results or root.results)
    )
    shares = (
        fetched_shares(members, inside, tensors, walked=walked, results=set(results or root.results))
        if cuts(kinds)
        else {}
    )
    read: dict[int, float] = {}
    wide: dict[int, float] = {}  # bytes of sectors, if every member fetched its own
    picking: set[int] = set()  # what is fetched anew every time
    matrix = redundant = vector = transcendentals = 0.0
    guessed = False
    picked: Indexed | None = None
    product: Op | None = None  # what the matrix engine does decides, wherever it stands in the fusion
    geometry, kind = cost.geometry, _KINDS.get(cost.kind, KernelKind.LOOP_FUSION)
    by_dtype: dict[str, float] = {}
    for place, ((op, operands), part) in enumerate(zip(members, parts, strict=True)):
        work = op.cost
        moved = work.operand_bytes
        for position, value in enumerate(operands):
            if value not in inside:  # an operand that its rule gave no bytes for is still a dependency
                size = moved[position] * part if position < len(moved) else 0.0
                read[value] = read.get(value, 0.0) + size
                if shares:
                    share, again = shares.get((place, position), (1.0, False))
                    wide[value] = wide.get(value, 0.0) + size * share
                    if again:
                        picking.add(value)
        if work.matrix_flops:
            matrix += work.matrix_flops * part
            redundant += op.redundant_flops * part
        transcendentals += work.transcendentals * part
        if work.vector_flops:
            vector += work.vector_flops * part
            by_dtype[work.dtype] = by_dtype.get(work.dtype, 0.0) + work.vector_flops
        if work.guessed:
            guessed = True
        if work.kind not in _DECIDING:
            continue
        if work.kind is OpKind.REDUCE and op is not root and not elemental:
            geometry, kind = work.geometry, KernelKind.REDUCTION
        elif work.kind is OpKind.GEMM or work.kind is OpKind.CONVOLUTION:
            product = op
        elif work.kind is OpKind.GATHER and op is not root and isinstance(work.geometry, Indexed):
            picked = work.geometry
    if product is not None:
        geometry, kind = product.cost.geometry, _KINDS[product.cost.kind]
    if isinstance(geometry, Attention):
        kind = KernelKind.ATTENTION
    elif kind in (KernelKind.TRANSPOSE, KernelKind.GATHER) and len(members) > 1:
        kind = KernelKind.LOOP_FUSION
    elif (kind is KernelKind.REDUCTION and elemental) or root.name == PREFIX_WINDOW:
        geometry, kind = None, KernelKind.LOOP_FUSION
    sizes = tuple([min(int(size), tensors[value].bytes) for value, size in read.items()])
    # What several members read of a value is fetched once; what is picked of it, as often as it is picked.
    fetched = (
        [
            wide[value] if value in picking else size * wide[value] / (read[value] or 1)
            for value, size in zip(read, sizes, strict=True)
        ]
        if shares
        else []
    )
    targets = root_operands[: len(root.results)] if cost.kind in IN_PLACE else ()
    names = tuple([op.name for op, _ in members])
    flags = flags_of(names)
    if geometry is None and (OpKind.SCAN in kinds or PREFIX_WINDOW in names):
        flags |= {"prefix"}
    if OpKind.TRANSPOSE in kinds and any(turns(op, tensors) for op, _ in members):
        flags |= {"turned"}
        packed = kind is KernelKind.TRANSPOSE and element_bytes(tensors[root.results[0]].dtype) < 1
        if packed and not fills_packed_tiles(root, tensors):
            flags |= {"unpacked"}
    if kind is KernelKind.REDUCTION and len(roots) > 1 and _stands_aside(members, roots, tensors):
        flags |= {"aside"}
    if kind is KernelKind.REDUCTION and compares_with_what_it_reads(members):
        flags |= {"lengths"}
    made = [tensors[value] for op, _ in roots for value in op.results]
    largest = max(made, key=lambda tensor: tensor.elements) if made else None
    return Kernel(
        name=name or f"{kind.value}:{root.name.rpartition('.')[2] or root.name}",
        kind=kind,
        dtype=product.cost.dtype if product is not None else _dtype(root, by_dtype, tensors),
        matrix_flops=matrix,
        vector_flops=vector,
        transcendentals=transcendentals,
        read_bytes=sum(sizes),
        fetched_bytes=int(sum(fetched)),
        touched_bytes=sum([min(int(size), tensors[value].bytes) for value, size in zip(read, fetched, strict=False)]),
        stored_bits=_stored_bits(product, members, tensors)
        if product is not None
        else _spread_bits(members, inside, tensors)
        if kind is KernelKind.REDUCTION
        else (),
        pieces=_pieces(root, members, tensors) if len(made) == 1 and "joined" in flags else (),
        written_bytes=sum([op.cost.written_bytes for op, _ in roots]),
        reads=tuple(read),
        operand_bytes=sizes,
        elements=largest.elements if largest and not targets else 0,
        shape=largest.shape if largest and not targets else (),
        flags=flags | {"cold"} if cold else flags,
        writes=tuple([value for op, _ in roots for value in op.results]),
        updates=targets,
        rearranged=_rearranged(members, inside, read),
        geometry=geometry,
        picked=picked,
        ops=names,
        location=root.location,
        recomputed=(product or root).recomputed,
        redundant_flops=redundant,
        guessed=guessed,
    )


def _stands_aside(members: Sequence[Member], roots: Sequence[Member], tensors: Sequence[Tensor]) -> bool:
    """Whether the largest result of a fusion is no sum, nor made of one: an array that it keeps beside its sums."""
    summed: set[int] = set()
    for op, operands in members:
        if op.cost.kind is OpKind.REDUCE or not summed.isdisjoint(operands):
            summed.update(op.results)
    largest = max((value for op, _ in roots for value in op.results), key=lambda value: tensors[value].bytes)
    return largest not in summed


def _stored_bits(product: Op, members: Sequence[Member], tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """Bits of a product's integer operands where a fusion widens them to one type, or moves them about, on the way in."""
    if not all(_integer(tensors[value].dtype) for value in product.operands[:2]):
        return ()
    made = {value: (op, operands) for op, operands in members for value in op.results}
    operands = made[product.results[0]][1] if product.results and product.results[0] in made else product.operands
    found = []
    for value in operands[:2]:
        bits = element_bytes(tensors[value].dtype) * 8
        while value in made and made[value][0].name.rpartition(".")[2] in _WIDENING:
            value = made[value][1][0]
            if not _integer(tensors[value].dtype):
                break
            bits = min(bits, element_bytes(tensors[value].dtype) * 8)
        found.append(int(bits))
    return tuple(found)


def _spread_bits(members: Sequence[Member], inside: Set[int], tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """Bits of packed integers that a reduction reads from memory and spreads out, each to be unpacked for every sum it is in."""
    names = {op.name.rpartition(".")[2] for op, _ in members}
    if "broadcast_in_dim" not in names:
        return ()
    read = {value for _, operands in members for value in operands if value not in inside}
    kinds = [tensors[value].dtype for value in sorted(read) if element_bytes(tensors[value].dtype) < 1]
    return tuple(int(element_bytes(dtype) * 8) for dtype in kinds if _integer(dtype))


def _integer(dtype: str) -> bool:
    return dtype.lstrip("su").startswith("i") and dtype != "i1"


def _pieces(root: Op, members: Sequence[Member], tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """What a fusion joins last, by their sizes along that dimension: its root, or what that computes element by element."""
    elements = tensors[root.results[0]].elements if root.results else 0
    reached, joined = set(root.results[:1]), None
    for op, operands in reversed(members):
        if reached.isdisjoint(op.results):
            continue
        if op.name.rpartition(".")[2] == "concatenate":
            joined = op
            break
        if op.cost.kind is OpKind.ELEMENTWISE:
            reached.update([value for value in operands if tensors[value].elements == elements])
    if joined is None:
        return ()
    whole, parts = tensors[joined.results[0]].shape, [tensors[value].shape for value in joined.operands]
    dim = next((dim for dim, size in enumerate(whole) if any(part[dim] != size for part in parts)), None)
    return tuple(part[dim] for part in parts) if dim is not None else ()


def _rearranged(members: Sequence[Member], inside: set[int], read: Mapping[int, float]) -> tuple[int, ...]:
    """Places among the values read from outside of those that anything but arithmetic leads to a result from.

    A reduction is done before other results are written, but for one that is spread over its rows again: Triton's programs for
    rows are no elementwise path to XLA.
    """
    found: set[int] = set()
    spread: set[int] = set()  # what broadcasts read, and what leads to it by arithmetic
    for op, operands in reversed(members):
        if op.cost.kind is OpKind.ELEMENTWISE:
            if found and not found.isdisjoint(op.results):
                found.update(operands)
            if spread and not spread.isdisjoint(op.results):
                spread.update(operands)
        elif op.cost.kind in IN_PLACE:
            found.update(operands[len(op.results) :])
        elif op.cost.kind is OpKind.REDUCE:
            if not spread.isdisjoint(op.results):
                found.update(operands)
        elif operands:
            found.update(operands)
            if op.cost.kind is OpKind.BROADCAST:
                spread.update(operands)
    if found <= inside:
        return ()
    return tuple([place for place, value in enumerate(read) if value in found])


def _roots(members: Sequence[Member], results: Sequence[int]) -> Sequence[Member]:
    """The members that give the kernel's results, updates in place first; one, the last, where nothing is said."""
    if not results:
        return members[-1:]
    found = [member for member in members if not set(results).isdisjoint(member[0].results)] or [members[-1]]
    return sorted(found, key=lambda member: member[0].cost.kind not in IN_PLACE)


def merged(first: Kernel, second: Kernel) -> Kernel:
    """Both kernels in one launch with several results: what both read, or one passes on, is read once."""
    read = dict(zip(first.reads, first.operand_bytes, strict=True))
    for value, size in zip(second.reads, second.operand_bytes, strict=True):
        if value not in first.writes:
            read[value] = max(size, read.get(value, 0))
    reduction = next((k for k in (first, second) if k.kind is KernelKind.REDUCTION), None)
    lead = first if first.matrix_flops or first.vector_flops >= second.vector_flops else second
    kind = KernelKind.REDUCTION if reduction else KernelKind.LOOP_FUSION
    geometry = reduction.geometry if reduction else first.geometry or second.geometry
    if first.matrix_flops:
        kind, geometry = first.kind, first.geometry
    flags = first.flags | second.flags
    other = second if reduction is first else first
    if reduction and other.kind is KernelKind.LOOP_FUSION and set(reduction.writes).isdisjoint(other.reads):
        flags |= {"aside"}
    places = {value: place for place, value in enumerate(read)}
    return Kernel(
        name=f"{kind.value}:{first.name.partition(':')[2]}",
        kind=kind,
        dtype=lead.dtype,
        matrix_flops=first.matrix_flops,
        vector_flops=first.vector_flops + second.vector_flops,
        transcendentals=first.transcendentals + second.transcendentals,
        read_bytes=sum(read.values()),
        written_bytes=first.written_bytes + second.written_bytes,
        reads=tuple(read),
        operand_bytes=tuple(read.values()),
        fetched_bytes=_fetched(first) + _fetched(second) if first.fetched_bytes or second.fetched_bytes else 0,
        touched_bytes=max(sum(read.values()), first.touched_bytes, second.touched_bytes)
        if first.touched_bytes or second.touched_bytes
        else 0,
        elements=max(first.elements, second.elements),
        shape=max((first, second), key=lambda kernel: kernel.elements).shape,
        flags=flags,
        writes=(*first.writes, *second.writes),
        rearranged=tuple(sorted({places[value] for value in (*_moved(first), *_moved(second)) if value in places})),
        sources=(*_sources(first, places), *_sources(second, places, first)),
        geometry=geometry,
        picked=first.picked or second.picked,
        ops=(*first.ops, *second.ops),
        location=first.location,
        recomputed=first.recomputed and second.recomputed,
        redundant_flops=first.redundant_flops,
        guessed=first.guessed or second.guessed,
    )


def without_results(kernel: Kernel, unread: Collection[int], sizes: Sequence[Tensor]) -> Kernel:
    """A kernel that computes some of its results on the way only, as nobody else reads them (hlo_dce.cc)."""
    left = [place for place, value in enumerate(kernel.writes) if value not in unread]
    writes = tuple([kernel.writes[place] for place in left])
    sources = tuple([kernel.sources[place] for place in left]) if kernel.sources else ()
    return _with_writes(
        kernel, writes, sources, kernel.written_bytes - sum([sizes[value].bytes for value in unread]), None
    )


_with_writes = copier(Kernel, "writes", "sources", "written_bytes", "_key")


def _fetched(kernel: Kernel) -> int:
    return max(kernel.fetched_bytes, kernel.read_bytes)


def _moved(kernel: Kernel) -> list[int]:
    """What a kernel reads otherwise than element by element."""
    return [kernel.reads[place] for place in kernel.rearranged]


def _sources(kernel: Kernel, places: Mapping[int, int], before: Kernel | None = None) -> list[tuple[int, ...]]:
    """Where the values stand that lead to each result of a kernel, what another one hands to it among them."""
    handed = before.reads if before is not None and not set(before.writes).isdisjoint(kernel.reads) else ()
    found = []
    for own in kernel.sources or (range(len(kernel.reads)),) * len(kernel.writes):
        leading = dict.fromkeys([*[kernel.reads[place] for place in own], *handed])
        found.append(tuple([places[value] for value in leading if value in places]))
    return found


def _dtype(root: Op, by_dtype: dict[str, float], tensors: Sequence[Tensor]) -> str:
    if root.cost.matrix_flops or not by_dtype:
        return root.cost.dtype or (tensors[root.results[0]].dtype if root.results else "")
    return max(by_dtype, key=lambda dtype: by_dtype[dtype])


def _computed_parts(
    members: Sequence[Member], inside: set[int], tensors: Sequence[Tensor], results: Sequence[int]
) -> Sequence[float]:
    """The part of each member's result that the fusion needs: 1, unless everyone who reads it takes a slice."""
    if not any(op.cost.kind in _PARTIAL and operands[0] in inside for op, operands in members):
        return (1.0,) * len(members)
    needed: dict[int, float] = dict.fromkeys(results, 1.0)
    parts = [1.0] * len(members)
    for index in range(len(members) - 1, -1, -1):
        op, operands = members[index]
        if index < len(members) - 1:
            parts[index] = min(1.0, max((needed.get(value, 0.0) for value in op.results), default=1.0))
        for position, value in enumerate(operands[: len(op.cost.operand_bytes)]):
            share = op.cost.operand_bytes[position] / (tensors[value].bytes or 1)
            needed[value] = needed.get(value, 0.0) + parts[index] * min(1.0, share)
    return parts
