"""Convolutions: implicit GEMMs `(batch * out) x out_channels x (in_channels * kernel)`, as cuDNN runs them.

Forward, input and filter gradients all have that form in StableHLO's terms (a filter gradient convolves over batches).
Fewer than 8 channels run on kernels with narrow loads. Groups of fewer channels than a tile is wide share a tile, which
multiplies each group by the others' zeros, too. Transposes of filters and uneven padding are kernels of their own, which the
lowering makes (`lower.convolutions.cudnn_convolutions`).

Depthwise convolutions have nothing for tensor cores to reuse. cuDNN has kernels on the CUDA cores for square filters of 3, 5
and 7 (3 and 5 for the gradient by the filter); for others it takes the faster of a direct kernel, which works out every index of
every result, and tiles of groups over tensors that a kernel just as general has padded first. The direct kernel gives a result
to a thread, which waits for every tap: filters as long as a signal (a gradient that is written as a layer) take milliseconds. Few
channels in and out run on a direct kernel, too.

On CUDA cores (fp32 where tensor cores have no TF32) cuDNN's benchmark takes Winograd's algorithm for filters of 3 x 3, up to
what all multiplications would take at the peak: estimates lie at or above the speed of light.

Gradients of dilated and of transposed layers are forward calls whose filter is an image. Their sum over K is not split, and goes
tap by tap in steps of equal bytes of each row, which are found anew for every step: `taps * ceil(channels * width / 64) *
gathered cycles` beside the products. A step of CUTLASS's implicit GEMMs on tensor cores is 16 numbers of 4 bytes
(`tf32_128x128_16x4`, as cuDNN's kernels in the profiles are called) or 32 of 2 (`f16_128x128_32x4`); fewer channels (which are
the images of a batch there) leave a part of it empty. In f32 transforms are often faster, and cuDNN's benchmark takes them
(`spectral_convolution`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from meshcast.estimate.gpu.clocks import matrix_joules
from meshcast.estimate.gpu.convolution_calls import in_tf32, with_start
from meshcast.estimate.gpu.gemm import packed_time, unit_bytes, wider_bytes, with_widened_tiles
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import traffic
from meshcast.estimate.gpu.spectral_convolution import spectral_convolution
from meshcast.estimate.gpu.tile_ways import TiledProduct
from meshcast.estimate.gpu.tiles import product_time
from meshcast.estimate.rates import Rate, matrix_rate
from meshcast.lower import Kernel, is_filter_gradient_call
from meshcast.workload import Convolution, element_bytes

FEW_CHANNELS = 8
GROUP_TILE = 64  # channels of a tile that groups share: cuDNN's narrowest for them
WINOGRAD = (
    2.25  # multiplications that F(2x2, 3x3) saves: 36 of four results become 16 (Lavin and Gray 2016, section 4.1)
)
TF32_BYTES = 4
STEP_BYTES = 64  # of each row that a step over K takes
LOAD_BYTES = 16  # that a thread loads at once
IMAGE = 2  # times the results' pixels that a filter has which is an image
_OWN_KERNELS = frozenset({(3, 3), (5, 5), (7, 7)})  # filters that cuDNN has depthwise kernels for (conv2d_c1_k1_nhwc)
_OWN_GRADIENTS = frozenset({(3, 3), (5, 5)})  # those whose gradients it has kernels for


def convolution(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """A convolution."""
    shape = kernel.geometry
    rate = matrix_rate(kernel, machine.device)
    if not isinstance(shape, Convolution):
        products = kernel.matrix_flops / rate.flops
        terms = machine.named(("products at peak", "mma", products, "s"), ("launch", "launch", machine.launch, "s"))
        return GpuWork(time=machine.launch + products, formula="t = launch + mma", terms=terms)
    joules = matrix_joules(kernel.matrix_flops, rate, machine.device)
    groups = max(shape.feature_groups, shape.batch_groups)
    if groups > 1 and _per_group(shape) == 1:
        return _depthwise(kernel, shape, machine)
    # A filter's gradient is written with channels and batch exchanged: its window is the image, its result the filter.
    gradient = is_filter_gradient_call(shape)
    if groups == 1 and not gradient and _runs_directly(shape):
        return replace(_direct(kernel, shape, machine), matrix_joules=joules)
    product = _tiled(kernel, shape, rate, machine)
    work = with_widened_tiles(packed_time(product, machine), product, shape, rate, machine)
    if not _has_image(shape, gradient=gradient):
        work = with_start(work, shape, machine)
    elif groups == 1:
        work = work.then(_gathered(_steps(shape, product.width), product.width, machine))
        spectral = spectral_convolution(kernel, shape, machine)
        if spectral is not None and spectral.time < work.time:
            return spectral
    return replace(work, matrix_joules=joules)


def convolution_product(kernel: Kernel, machine: GpuMachine) -> TiledProduct | None:
    """The product that `convolution` asks about; None where it has no tiles, or others."""
    shape = kernel.geometry
    if not isinstance(shape, Convolution):
        return None
    groups = max(shape.feature_groups, shape.batch_groups)
    direct = _per_group(shape) == 1 if groups > 1 else not is_filter_gradient_call(shape) and _runs_directly(shape)
    return None if direct else _tiled(kernel, shape, matrix_rate(kernel, machine.device), machine)


def why_special(shape: Convolution) -> str:
    """Why a convolution is no product of tiles that hold all of their operands' channels; nothing where it is one."""
    groups, gradient = max(shape.feature_groups, shape.batch_groups), is_filter_gradient_call(shape)
    if groups > 1:
        return "groups of channels share tiles, or run on CUDA cores"
    channels = shape.batch if gradient else shape.in_channels
    if channels < FEW_CHANNELS or (not gradient and _runs_directly(shape)):
        return "few channels run on kernels of their own"
    if not gradient and math.prod(shape.kernel) > IMAGE * math.prod(shape.out_spatial):
        return "a filter as large as an image is gathered element by element"
    return ""


def _tiled(kernel: Kernel, shape: Convolution, rate: Rate, machine: GpuMachine) -> TiledProduct:
    """The product that a convolution is, at the rate that its channels and taps leave."""
    p, gradient = machine.parameters, is_filter_gradient_call(shape)
    channels = shape.batch if gradient else shape.in_channels // shape.feature_groups
    groups = max(shape.feature_groups, shape.batch_groups)
    # Narrow loads starve tensor cores; CUDA cores are fed by them.
    few = groups == 1 and channels < FEW_CHANNELS <= shape.out_channels and rate.on_tensor_cores
    share = p.conv_few_channels if few else p.conv_share if math.prod(shape.kernel) > 1 else 1.0
    if rate.type == "tf32" and not few:  # what is lost is lost in its steps (`in_tf32`)
        share = 1.0
    if not rate.on_tensor_cores:
        # Finding pixels takes places of a scheduler's, of which Volta's have some to spare.
        share = min(1.0, share * machine.plain_slots)
        share *= WINOGRAD if by_winograd(shape, gradient=gradient) else 1.0
    product = implicit_gemm(kernel, shape, peak=rate.flops * share, gradient=gradient)
    if not few and not _has_image(shape, gradient=gradient):
        product = in_tf32(product, shape, rate, machine)
    return as_unit_takes(product, kernel, shape, rate)


def _has_image(shape: Convolution, *, gradient: bool) -> bool:
    """Whether a forward call has an image for a filter: a gradient of a dilated or transposed layer."""
    return not gradient and math.prod(shape.kernel) > IMAGE * math.prod(shape.out_spatial)


def as_unit_takes(product: TiledProduct, kernel: Kernel, shape: Convolution, rate: Rate) -> TiledProduct:
    """The product with elements as wide as its unit takes them: packed ones are widened in registers, on their way in."""
    unit = unit_bytes(product.width, rate)
    unpacked = _unpacked_bytes(kernel, shape, unit)
    return product if unpacked <= product.read else replace(product, width=unit, unpacked=unpacked)


def _unpacked_bytes(kernel: Kernel, shape: Convolution, unit: float) -> float:
    """Bytes that a convolution reads, were its operands of less than a byte as wide as the unit takes them."""
    stored = zip(kernel.operand_bytes, (shape.lhs_dtype, shape.rhs_dtype), strict=False)
    return kernel.read_bytes + sum(
        [size * (unit / element_bytes(dtype) - 1.0) for size, dtype in stored if element_bytes(dtype) < min(unit, 1.0)]
    )


def by_winograd(shape: Convolution, *, gradient: bool) -> bool:
    """Whether cuDNN has a Winograd kernel for it: filters of 3 x 3 without strides, in all three passes."""
    taps = shape.out_spatial if gradient else shape.kernel
    steps = (*shape.strides, *shape.lhs_dilation, *shape.rhs_dilation)
    return tuple(taps) == (3, 3) and max(steps, default=1) == 1 and max(shape.feature_groups, shape.batch_groups) == 1


def _steps(shape: Convolution, width: float) -> float:
    """Steps of a sum over an image's pixels and its channels.

    A kernel of cuDNN's for channels of one load (`indexed_wo_smem`, `alignc4`) takes several taps a step. It has no reversed
    filters, which those of transposed layers are; those of dilated layers move in strides instead.
    """
    taps, row = math.prod(shape.kernel), shape.in_channels * width
    together = row <= LOAD_BYTES and max(shape.strides) > 1
    return taps * row / STEP_BYTES if together else taps * math.ceil(row / STEP_BYTES)


def _gathered(steps: float, width: float, machine: GpuMachine) -> GpuWork:
    """What a sum of so many steps takes beyond its products, where what each of them reads is found by itself."""
    p = machine.parameters
    seconds = steps * (p.gathered_cycles if width >= TF32_BYTES else p.gathered_narrow_cycles) / machine.clock
    terms = machine.named(("finding an image's elements", "find = steps c", seconds, "s"))
    return GpuWork(time=seconds, compute=seconds, computing=0.0, formula="t = find", terms=terms)


def _runs_directly(shape: Convolution) -> bool:
    """Whether both sides have few channels, of several results or of a gradient by a strided layer's input."""
    few = max(shape.in_channels, shape.out_channels) < FEW_CHANNELS
    return few and (shape.out_channels > 1 or max(shape.lhs_dilation, default=1) > 1)


def _direct(kernel: Kernel, shape: Convolution, machine: GpuMachine) -> GpuWork:
    """A kernel for any shape: a thread works out its place and the place of every tap, for all output channels of a group."""
    p = machine.parameters
    pixels = shape.batch * math.prod(shape.out_spatial)
    per_channel = shape.macs / max(1, shape.out_channels)
    return _issued(kernel, pixels * p.general_index + per_channel * p.general_tap, machine)


def implicit_gemm(kernel: Kernel, shape: Convolution, *, peak: float, gradient: bool) -> TiledProduct:
    """The product that a convolution is, with groups that are narrower than a tile joined to one of its width.

    Args:
        kernel: The call.
        shape: What it convolves.
        peak: FLOP/s.
        gradient: Whether it is a call for a filter's gradient.
    """
    groups = max(shape.feature_groups, shape.batch_groups)
    taps = math.prod(shape.kernel)
    # Dilated inputs (gradients of strided convolutions) multiply by zeros that `macs` leaves out: cuDNN skips them too.
    dense = max(
        1.0, shape.batch * math.prod(shape.out_spatial) * shape.out_channels * shape.in_channels / groups * taps
    )
    joined = max(1.0, min(groups, GROUP_TILE / _per_group(shape))) if groups > 1 else 1.0
    return TiledProduct(
        batch=groups / joined,
        m=shape.batch * math.prod(shape.out_spatial) / (groups / joined if shape.batch_groups > 1 else 1),
        n=shape.out_channels / groups * joined,
        k=max(
            1.0,
            shape.in_channels / groups * taps * min(1.0, shape.macs / dense)
            * (joined if shape.feature_groups > 1 else groups if shape.batch_groups > 1 else 1),
        ),
        width=wider_bytes(shape),
        read=kernel.read_bytes,
        written=kernel.written_bytes,
        recency=kernel.recency,
        peak=peak,
        # cuDNN adds up parts of K where few results have long sums, but not in forward calls with an image for a filter.
        split=gradient or taps <= math.prod(shape.out_spatial),
    )  # fmt: skip


def _per_group(shape: Convolution) -> float:
    """Channels that one group reads or writes, whichever are fewer."""
    if shape.batch_groups > 1:  # a filter's gradient: channels are where batches were
        return min(shape.batch, shape.out_channels) / shape.batch_groups
    return min(shape.in_channels, shape.out_channels) / shape.feature_groups


def _depthwise(kernel: Kernel, shape: Convolution, machine: GpuMachine) -> GpuWork:
    """One channel per group: by a kernel of cuDNN's own for the filter, or the faster of two general ways."""
    p = machine.parameters
    results = shape.batch * math.prod(shape.out_spatial) * shape.out_channels / max(shape.batch_groups, 1)
    # Of a gradient by the filter the result is the filter, and its window the image. That of a dilated layer is no call for a
    # gradient but a forward one, with the image for a filter.
    forward = not is_filter_gradient_call(shape)
    if shape.kernel in _OWN_KERNELS if forward else shape.out_spatial in _OWN_GRADIENTS:
        packed = 2 / element_bytes(shape.lhs_dtype)  # two multiply-adds of 2-byte numbers are one instruction
        # Taps that fall on padding are multiplied like others: half of them on an image no larger than the filter.
        whole = forward and max(shape.lhs_dilation) == 1
        multiplied = results * math.prod(shape.kernel) if whole else shape.macs
        # Windows of neighbours that are steps apart share few taps: each is fetched for each result.
        fetched = multiplied * element_bytes(shape.lhs_dtype) if forward and max(shape.strides) > 1 else 0.0
        issued = multiplied * p.depthwise_instructions / packed
        return _issued(kernel, issued, machine, fetched / machine.cache_bandwidth)
    waits = p.load_cycles * shape.macs / max(1.0, results) / machine.clock if forward else 0.0
    direct = _issued(kernel, results * p.general_index + shape.macs * p.general_tap, machine, waits)
    moved = (kernel.read_bytes + kernel.written_bytes) / element_bytes(shape.lhs_dtype)
    rate = matrix_rate(kernel, machine.device)
    padded = _issued(kernel, moved * p.general_index, machine)
    product = implicit_gemm(kernel, shape, peak=rate.flops * p.conv_share, gradient=not forward)
    if math.prod(shape.kernel) > IMAGE * math.prod(shape.out_spatial) if forward else shape.out_spatial in _OWN_KERNELS:
        return direct  # tiles would hold next to nothing; kernels for squares do without padding
    tiles = padded.then(product_time(product, machine))
    return min(direct, tiles, key=lambda work: work.time)


def _issued(kernel: Kernel, issued: float, machine: GpuMachine, waits: float = 0.0) -> GpuWork:
    """A kernel that instructions, bytes or the seconds in which its threads wait for taps limit."""
    moved = traffic(kernel.read_bytes, kernel.written_bytes, machine, recency=kernel.recency)
    compute = issued / machine.instruction_rate
    time = 2 * machine.launch + machine.overlapped(moved.seconds, compute, waits)
    return GpuWork(
        time=time,
        compute=max(compute, waits),
        computing=compute,
        fixed=2 * machine.launch,
        memory=moved.seconds,
        dram_bytes=moved.dram_bytes,
        instructions=issued,
        formula="t = 2 launch + |mem, issue, wait|_p",
        terms=(
            *moved.terms,
            *machine.named(
                *machine.issuing(issued, compute),
                ("taps that threads wait for", "wait", waits, "s"),
                ("launch", "launch", machine.launch, "s"),
                ("norm of what overlaps", "p", machine.parameters.overlap, ""),
            ),
        ),
    )
