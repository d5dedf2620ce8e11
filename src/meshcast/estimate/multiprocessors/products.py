"""Matrix products: tiles of the result on SMs, in the fastest of the ways that an autotuner tries.

A tile `bm x bn` goes over K in steps of 128 bytes of each row. A step's operands pass from L2 (from memory, where a panel is
no longer there) to shared memory, several steps ahead, and from there to the tensor cores:

    tensor = bm bn bk / (multiply-adds a cycle x share)
    shared = strips of 64 rows of the tile x (64 + bn) x 128 bytes / 128 bytes a cycle
    least  = max(tensor + barriers, shared, latency / stages)      cycles of a step, alone

Warp groups of Hopper read both operands of `wgmma` from shared memory, a strip of 64 rows at a time. The accumulators and the
stages in shared memory limit how many tiles an SM works on at once. With TMA, blocks are persistent: only the first tile of
an SM waits for its set-up. Clusters of two share the larger operand of each (Hopper and later). Results are packed and
stored by the warps that computed them, which another tile of the SM can hide.

Ways: tile sides; parts of K, whose f32 sums a second kernel adds up (split-K), or shares of all steps that are as many as the
SMs hold blocks, where the owner of a tile adds what others computed of it (stream-K: Osama et al., PPoPP 2023). Those that
look best by a rough sum are played, and the fastest counts, as XLA times what it chooses from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from meshcast.base import made_quickly
from meshcast.estimate.explanation import Term
from meshcast.estimate.gpu.elementwise import demanded
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.tile_ways import TiledProduct
from meshcast.estimate.multiprocessors.cache import misses, panel_reads
from meshcast.estimate.multiprocessors.chip import REGISTER_BYTES, SHARED_BYTES, Chip
from meshcast.estimate.multiprocessors.grid import BlockGrid, Phase
from meshcast.estimate.multiprocessors.streaming import loop
from meshcast.estimate.multiprocessors.work import played

STEP_BYTES = 128  # of a row that one step takes: the widest swizzle of shared memory
STRIP = 64  # rows of a warp group's instruction
ACCUMULATOR_BYTES = 4
OTHER_REGISTERS = 96 * 128 * REGISTER_BYTES  # of a tile's warps beside accumulators: 96 of each of 128 threads
LEAST_STAGES, MOST_STAGES = 3, 8
RESIDENT = 8  # tiles of an SM at most
SIDES = (16, 32, 64, 96, 128, 192, 256)
SPLITS = (1, 2, 4, 8, 16, 32)
LARGEST = 256 * 128  # accumulators of a tile
FEWEST_STAGES = (
    2.0  # of a tile that shares its SM's shared memory with others: one that is loaded, one that is multiplied
)
SECOND_LAUNCHES = (
    1.5  # launches that a second kernel takes with its loop, to choose by: what is played has both in full
)
PLAYED = 8  # ways that are played, those that could be the fastest first


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a product is computed: its tile, parts of K, and whether blocks share out the steps of all tiles."""

    bm: int
    bn: int
    splits: int = 1
    streamed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TileJob:
    """A product, and how its operands come: by TMA as they lie, or gathered by a convolution's windows.

    Attributes:
        filled: The share of a step's bytes that a convolution's channels fill: what lies beyond them is multiplied as zeros, and
            loaded from nowhere.
    """

    product: TiledProduct
    gathered: bool = False
    filled: float = 1.0

    @property
    def step(self) -> float:
        """Elements of K in a step."""
        return STEP_BYTES / self.product.width


def product(asked: TileJob, chip: Chip, machine: GpuMachine) -> GpuWork:
    """The fastest way to compute a product, as far as it was played."""
    chosen = _chosen(asked, chip)
    if asked.product.width < 1:  # what looks best for bytes may be the fastest for packed operands, too
        p, width = asked.product, asked.product.width
        whole = replace(p, width=1.0, k=p.k * width, peak=p.peak * width, read=max(p.read, p.unpacked) / width)
        bytes_of_it = replace(asked, product=whole, filled=min(1.0, asked.filled / width))
        chosen = list(dict.fromkeys((*chosen, *_chosen(bytes_of_it, chip))))
    return min((_played(way, asked, chip, machine) for way in chosen), key=lambda work: work.time)


def _chosen(asked: TileJob, chip: Chip) -> list[Way]:
    """The ways that could be the fastest."""
    ways = sorted(_ways(asked, chip), key=lambda way: _expected(way, asked, chip))
    # Tiles that are another's turned round, as many of them, take as long.
    unlike = {(_shape(way, asked, chip)[2:], frozenset((way.bm, way.bn)), way.streamed): way for way in reversed(ways)}
    chosen = [way for way in ways if way in set(unlike.values())]
    return [way for way in chosen if not way.streamed][:PLAYED] + [way for way in chosen if way.streamed][:1]


def packed_product(asked: TileJob, chip: Chip, machine: GpuMachine) -> GpuWork:
    """The product; packed operands are no worse than those that fill the unit's type, nor those than bytes in as many steps.

    The tiles that look best for fewer bytes may be other ones, and those that are played a little slower: blocks that wait less
    for L2 fall into step with each other.
    """
    tiled, jobs = asked.product, [asked]
    if tiled.unpacked > tiled.read:
        jobs.append(replace(asked, product=tiled.as_unpacked()))
    if tiled.width < 1:
        whole = replace(tiled, unpacked=max(tiled.read, tiled.unpacked) / tiled.width).as_unpacked()
        jobs.append(replace(asked, product=whole, filled=min(1.0, asked.filled / tiled.width)))
    return min((product(job, chip, machine) for job in jobs), key=lambda each: each.time)


def _ways(asked: TileJob, chip: Chip) -> Iterator[Way]:
    """Tiles that are not much larger than the product, with parts of K that are at least two steps long."""
    p = asked.product
    for bm in SIDES:
        for bn in SIDES:
            if bm * bn > LARGEST or max(bm, bn) < min(STRIP, max(p.m, p.n)) or bm >= 2 * max(16, p.m):
                continue
            if bn >= 2 * max(16, p.n):
                continue
            tiles = p.batch * math.ceil(p.m / bm) * math.ceil(p.n / bn)
            yield Way(bm=bm, bn=bn)
            if not p.split:
                continue
            for splits in SPLITS[1:]:
                if p.k >= 2 * splits * asked.step and tiles * splits <= 4 * chip.sms:
                    yield Way(bm=bm, bn=bn, splits=splits)
            if tiles % chip.sms and tiles < 4 * chip.sms and p.k >= 8 * asked.step and chip.generation.clusters:
                yield Way(bm=bm, bn=bn, streamed=True)


def resident(way: Way, chip: Chip) -> int:
    """Tiles that an SM works on at once: by registers, and by shared memory for the least stages of each."""
    registers = chip.core.registers * REGISTER_BYTES // (way.bm * way.bn * ACCUMULATOR_BYTES + OTHER_REGISTERS)
    shared = chip.core.shared_memory_bytes // (LEAST_STAGES * (way.bm + way.bn) * STEP_BYTES)
    return max(1, min(registers, shared, RESIDENT))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tile:
    """What a tile's main loop asks for, in all."""

    count: int
    steps: float
    phase: Phase
    epilogue: Phase


def _shape(way: Way, asked: TileJob, chip: Chip) -> tuple[int, int, float, float]:
    """(rows of tiles, columns of tiles, blocks, steps of a block)."""
    p = asked.product
    rows, columns = math.ceil(p.m / way.bm), math.ceil(p.n / way.bn)
    tiles, steps = p.batch * rows * columns, math.ceil(p.k / asked.step)
    if way.streamed:
        count = min(tiles * steps, chip.sms * resident(way, chip))
        return rows, columns, count, tiles * steps / count
    return rows, columns, tiles * way.splits, math.ceil(steps / way.splits)


def _tensor(way: Way, asked: TileJob, chip: Chip) -> float:
    """Tensor cores' cycles of a step."""
    rate = chip.multiply_adds(asked.product.peak) * chip.parameters.tensor_share
    return way.bm * way.bn * asked.step / rate


def _fed(way: Way, chip: Chip) -> float:
    """Shared memory's cycles of a step: each strip reads both operands; pairs of SMs hold half of one each."""
    columns = way.bn / 2 if chip.generation.paired else way.bn
    strips = max(1, way.bm // STRIP) if way.bm >= way.bn else max(1, way.bn // STRIP)
    across = columns if way.bm >= way.bn else way.bm
    return strips * (min(STRIP, max(way.bm, way.bn)) + across) * STEP_BYTES / SHARED_BYTES


def _fetched(way: Way, asked: TileJob, rows: int, columns: int, chip: Chip) -> float:
    """Bytes of a step from L2: clusters of two share the larger operand, and requests of neighbours are joined."""
    lhs, rhs = float(way.bm), float(way.bn)
    if chip.generation.clusters and not asked.gathered:
        if rhs >= lhs and rows > 1:
            rhs /= 2
        elif columns > 1:
            lhs /= 2
    return (lhs + rhs) * STEP_BYTES * asked.filled * chip.parameters.coalesced_reads


def _expected(way: Way, asked: TileJob, chip: Chip) -> float:
    """Cycles that a way about takes, to choose by what is played: tensor cores, rounds of tiles, L2, a second kernel's launch."""
    rows, columns, count, steps = _shape(way, asked, chip)
    held, p = resident(way, chip), chip.parameters
    busiest = held if way.streamed else math.ceil(count / chip.sms)
    rounds = math.ceil(busiest / held)
    step = max(_tensor(way, asked, chip), _fed(way, chip))
    product = asked.product
    kept = ACCUMULATOR_BYTES * way.splits if way.splits > 1 else product.width + 2 * ACCUMULATOR_BYTES * way.streamed
    stored = way.bm * way.bn * kept / p.epilogue_bytes
    alone = steps * (step + p.step_cycles) + chip.latency.cache + stored
    used = min(count, chip.sms)
    fetch = _fetched(way, asked, rows, columns, chip) * steps * count / min(chip.cache_bytes, used * chip.port_bytes)
    second = chip.launch * chip.clock * SECOND_LAUNCHES if way.splits > 1 else 0.0
    shared = busiest * (steps * step + (stored if way.streamed else 0.0))
    return max(shared, rounds * alone, fetch) + second


def _played(way: Way, asked: TileJob, chip: Chip, machine: GpuMachine) -> GpuWork:
    """A product computed one way."""
    p, parameters = asked.product, chip.parameters
    rows, columns, count, steps = _shape(way, asked, chip)
    count = max(1, math.ceil(count))
    held = resident(way, chip)
    busy = min(held, math.ceil(count / chip.sms))
    stages = min(
        MOST_STAGES, max(FEWEST_STAGES, chip.core.shared_memory_bytes / busy // ((way.bm + way.bn) * STEP_BYTES))
    )
    missed = misses(p.read, p.written, chip, p.recency)
    again = _again(way, asked, rows, columns, held, chip)
    from_memory = p.read * missed.read + again
    latency = chip.load_cycles(missed.read)
    tensor, fed = _tensor(way, asked, chip), _fed(way, chip)
    results = p.batch * p.m * p.n
    partial = results * way.splits * ACCUMULATOR_BYTES if way.splits > 1 else 0.0
    written = partial or p.written
    to_memory = 0.0 if way.splits > 1 else p.written * missed.written
    main = Phase(
        least=steps * max(tensor + parameters.step_cycles, fed, latency / stages),
        loads=steps / stages,
        waited=steps * latency / stages,
        tensor=steps * tensor,
        shared=steps * fed,
        cached=steps * _fetched(way, asked, rows, columns, chip),
        dram=chip.dram_bytes(from_memory / count, 0),
    )
    exchanged = 2 * way.bm * way.bn * ACCUMULATOR_BYTES if way.streamed else 0.0
    packed = (written / count + exchanged) / parameters.epilogue_bytes
    epilogue = Phase(
        least=chip.latency.cache + packed + (2 * chip.latency.cache if way.streamed else 0.0),
        issue=packed * parameters.epilogue_issue,
        cached=written / count + exchanged,
        dram=chip.dram_bytes(0, to_memory / count),
    )
    fill = Phase(least=parameters.fill_cycles + latency)
    persistent = chip.generation.clusters and not asked.gathered
    launch = BlockGrid(
        blocks=((count, (main, epilogue) if persistent else (fill, main, epilogue)),),
        resident=held,
        start=0.0 if persistent else parameters.start_cycles,
        first=(fill,) if persistent else (),
    )
    work = played(
        launch, chip, moved=from_memory + to_memory,
        shown=(
            Term("tile rows", "bm", way.bm), Term("tile columns", "bn", way.bn), Term("parts of K", "s", way.splits),
            Term("steps along K of a block", "k", steps), Term("stages in shared memory", "stages", stages),
            Term("tensor cores' cycles of a step", "mma", tensor), Term("shared memory's", "fed", fed),
        ),
    )  # fmt: skip
    if way.splits == 1:
        return work
    added = demanded(results, partial, p.written, results * way.splits, machine)
    return work.then(GpuWork(time=machine.gap)).then(loop(added, chip))


def _again(way: Way, asked: TileJob, rows: int, columns: int, held: int, chip: Chip) -> float:
    """Bytes that memory is asked for again, since L2 has not kept a panel until the next wave of tiles needs it."""
    p = asked.product
    left, right = way.bm * p.k * p.width, way.bn * p.k * p.width
    if asked.gathered or rows * left + columns * right <= chip.cache_reach:
        return 0.0
    loaded = panel_reads(rows, columns, left, right, chip.sms * held, chip.cache_reach)
    return p.batch * max(0.0, loaded - (rows * left + columns * right))
