"""Kernels without a product: loops over elements, reductions, transposes, and calls of hand-written kernels.

A loop goes through its elements in windows: copied in, loaded into registers, worked on, stored, copied out.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from meshcast.estimate.explanation import Term
from meshcast.estimate.rates import matrix_rate
from meshcast.estimate.tpu.machine import HALF, WORD_BYTES, TimedWork, TpuMachine, TpuTraffic
from meshcast.lower import SCALAR_BYTES, Kernel, KernelKind
from meshcast.workload import Reduction

HALF_BYTES = 2  # of one element of f16
NOTHING = TpuTraffic(read=0.0, written=0.0, hbm_read=0.0, hbm_written=0.0)


def passing(kernel: Kernel, traffic: TpuTraffic, machine: TpuMachine, more: float = 0.0) -> tuple[Term, Term, Term]:
    """The vector units' engines on a pass over a kernel's elements; `more` seconds beside its arithmetic."""
    return (
        Term("loading registers", "load", machine.moving(traffic.read), "s"),
        Term("vector ops and functions", "work", machine.arithmetic(kernel) + more, "s"),
        Term("storing registers", "store", machine.moving(traffic.written), "s"),
    )


def windows(kernel: Kernel, machine: TpuMachine) -> float:
    """Windows of a loop: by the elements it runs over, whatever their type."""
    elements = max(kernel.elements, max(kernel.read_bytes, kernel.written_bytes) / WORD_BYTES)
    if isinstance(kernel.geometry, Reduction):
        elements = max(elements, math.prod(kernel.geometry.shape))
    return max(1.0, elements / machine.vector_elements / (machine.parameters.window_vectors * machine.device.cores))


@functools.cache
def _padding(shape: tuple[int, ...], sublanes: int, lanes: int) -> float:
    def whole(size: int, side: int) -> float:
        return math.ceil(size / side) * side / size

    sides = [max(1, size) for size in shape]
    if len(sides) == 1:  # laid out over sublanes as well
        return whole(sides[0], sublanes * lanes)
    return min(
        whole(sides[a], lanes) * whole(sides[b], sublanes) for a, b in itertools.permutations(range(len(sides)), 2)
    )


def padding(shape: tuple[int, ...], machine: TpuMachine) -> float:
    """Elements of whole tiles over elements of an array, 1 where its shape is not known.

    A tile lies over two dimensions, `sublanes x lanes`; the compiler lays an array out so that the fewest are needed. Of
    SCALE-Sim-validation's loops over `16 x 8 x 16` and `16 x 16 x 32` elements on v4, the second takes as much longer as
    16 tiles more do.
    """
    return _padding(shape, machine.cores.sublanes, machine.cores.lanes) if shape else 1.0


def row_sums(kernel: Kernel, machine: TpuMachine) -> float:
    """Seconds of a reduction's way across lanes: of each vector of running sums, one of whose rows a sublane holds.

    Sums over other dimensions alone are additions of whole vectors, and have none.
    """
    geometry = kernel.geometry
    if not isinstance(geometry, Reduction) or len(geometry.shape) - 1 not in geometry.dims:
        return 0.0
    rows = math.prod(size for dim, size in enumerate(geometry.shape) if dim not in geometry.dims)
    return machine.vectors(machine.parameters.lane_cycles, rows * machine.cores.lanes)


def halves(kernel: Kernel, traffic: TpuTraffic, machine: TpuMachine) -> float:
    """Seconds of turning f16 that a loop reads into f32, and results back, in whole tiles.

    By what the lowering found of it (`lower.fused_kernels.f16_bytes`); else all of a loop's bytes are of the type that it
    computes in.
    """
    read, written = kernel.halves or ((traffic.read, traffic.written) if kernel.dtype == HALF else (0, 0))
    ranges = kernel.geometry.shape if isinstance(kernel.geometry, Reduction) else kernel.shape
    return machine.turning(
        read / HALF_BYTES * padding(ranges, machine), written / HALF_BYTES * padding(kernel.shape, machine)
    )


def pipelined(engines: Sequence[Term], steps: float, machine: TpuMachine) -> float:
    """Steps of a loop over elements that all lie in VMEM, so that no copies set how much is worked on at a time.

    Up to one window engines work in turn; longer loops are software-pipelined over few vectors at a time, and take at
    least what their first window would take alone. On v6e (cocossim, `e1_slope.csv`) an exponential takes 1.49 ns per 1024
    elements of up to 2^20, 0.76 from 2^22 on; an addition 1.25, and 0.63 from 2^23 on.
    """
    seconds = [engine.value for engine in engines]
    hidden = sum(seconds) - max(seconds)
    p = machine.parameters
    shown = max(hidden / steps * p.pipelined_vectors / p.window_vectors, sum(seconds) / steps - max(seconds))
    return hidden / shown if steps > 1 and hidden else steps


def loop(kernel: Kernel, machine: TpuMachine) -> TimedWork:
    """Any pass over elements; where another dimension becomes the innermost, each vector is shuffled as well."""
    traffic, p = machine.traffic(kernel), machine.parameters
    if traffic.all <= SCALAR_BYTES:  # the scalar core's: counters, flags, indices of a slice
        return machine.counting.work(NOTHING, (), 1.0)
    steps = windows(kernel, machine)
    machine = machine.sharing(steps * machine.device.cores)
    copies = "copy" in kernel.flags or {op.rpartition(".")[2] for op in kernel.ops} == {"copy"}
    if copies and kernel.kind is not KernelKind.TRANSPOSE:  # copies alone pass no register
        moving = 0.0 if traffic.hbm else machine.moving(traffic.written)
        if traffic.hbm:
            machine = machine.copying
        return machine.work(traffic, (Term("copying inside VMEM", "move", moving, "s"),), steps, computing=0.0)
    shuffles = sums = 0.0
    if kernel.kind is KernelKind.TRANSPOSE or "turned" in kernel.flags:
        # One core alone does it: libtpu 0.0.42.1 shares out products and loops on v4 (`megacore_config`), but no copy.
        shuffles = replace(machine, busy=1.0).vectors(
            p.shuffle_cycles, max(kernel.elements, traffic.written / WORD_BYTES)
        )
    if kernel.kind is KernelKind.REDUCTION:
        sums = p.scalar_cycles / machine.device.clock_hz if kernel.elements == 1 else row_sums(kernel, machine)
    # What is only laid out anew stays f16: its tiles on v4 take what those of any other type take.
    turned = (
        0.0 if kernel.kind is KernelKind.TRANSPOSE and not kernel.vector_flops else halves(kernel, traffic, machine)
    )
    engines = passing(kernel, traffic, machine, shuffles + sums + turned)
    if not traffic.hbm and kernel.kind is not KernelKind.REDUCTION:  # whose running sum each vector waits for
        steps = pipelined(engines, steps, machine)
    return machine.work(traffic, engines, steps, computing=machine.arithmetic(kernel) + sums)


def call(kernel: Kernel, machine: TpuMachine) -> TimedWork:
    """A kernel somebody wrote (Pallas), by what it declares: copies beside its work, products and vector ops in turns.

    `t = t0 + max(mem, arrays + ops + functions)`, the arrays as full as such kernels leave them. Attention has a model of
    its own (`tpu.attention`).
    """
    traffic, p = machine.traffic(kernel), machine.parameters
    if not kernel.matrix_flops and not kernel.vector_flops and not kernel.transcendentals:  # it moves, and that is all
        machine = machine.copying
    peak = matrix_rate(kernel, machine.device).flops if kernel.matrix_flops else 1.0
    arrays, ops, functions = kernel.matrix_flops / (p.call_share * peak), machine.ops(kernel), machine.functions(kernel)
    busy, fetched, fixed = arrays + ops + functions, machine.memory(traffic.hbm), machine.fixed(traffic)
    work = TimedWork(time=fixed + max(fetched, busy), compute=busy, memory=fetched, fixed=fixed)
    if not machine.explaining:
        return work
    return replace(
        work,
        formula="t = t0 + max(mem, arrays + ops + functions)",
        terms=(
            *machine.copies(traffic),
            Term("products on the arrays", "arrays", arrays, "s"),
            Term("vector ops", "ops", ops, "s"),
            Term("transcendental functions", "functions", functions, "s"),
            Term("fixed cost", "t0", fixed, "s"),
        ),
    )
