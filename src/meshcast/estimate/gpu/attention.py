"""Fused attention (flash): products at a share of peak, exponentials they do not hide, whole tiles along the diagonal.

    t = n launch + |max(last, both + tail last), mem|_p + clear
    both = |mma, exp|_o,   mma = F pad waste / (share peak),   exp = x exps waste / exp rate + y exps waste / instruction rate

A tile of 128 queries passes over its keys and costs as much as `fill` keys besides, to load queries and write its result;
under a causal mask it sees half of the keys, and the tiles on the diagonal are computed whole: `waste = 1 + fill / keys`,
`1 + (128 + 2 fill) / keys` under the mask. Lengths that 128 does not divide fill their last tile, on both sides. Where there is
a window its length stands for the keys. Heads are padded to the next width that there are kernels for (`pad`).

`last` is the longest tile, all of the work over the tiles on an SM each, twice that under the mask: SMs that finish first
wait for a share `tail` of it, and nothing is shorter than it. Products and exponentials overlap with operands on their way
(`mem`, in the norm p); `clear` are passes over whole operands before and after, and n the launches of one call, clears
included. After Dao, "FlashAttention-2" (2023) and Shah et al., "FlashAttention-3" (2024).

Up to Hopper a warp group that works out exponentials multiplies nothing meanwhile, and another's products hide some of them: o
is 1 and x what stays visible. Blackwell's products run by themselves, with results in a memory of their own (tcgen05), beside the
exponentials of the tile before: o is 2 in the forward pass. Its shares are those of cuDNN 9.22 on GB200 and GB300, measured by
NVIDIA (`data/published/attention.csv`). Backward its kernels take values as wide as keys. In 8 bits (`narrow-attention`) the
products run at that rate, and the backward pass is bound by the scores instead, which are rounded twice each (y instructions);
windows leave nothing out there: GPT-OSS's layers of 128 keys take as long as whole ones.

FlashAttention of 2022 takes twice as long as FlashAttention-2: 25 to 40 % of an A100's peak against 50 to 73 % (Dao 2023,
section 1).

cuDNN's kernels multiply by warp groups on Hopper. FlashAttention-2 was written for Ampere and multiplies by single warps, which
reach a share of the peak there (Shah 2024 finds a third of it in use) and draw more for each product: operands pass through
registers, where warp groups read them from shared memory. cuDNN clears its result first; both backward passes clear, convert
and pre-multiply whole operands.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from meshcast.base import larger
from meshcast.estimate.gpu.clocks import matrix_joules
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import MemoryTraffic, traffic
from meshcast.estimate.rates import matrix_rate, transcendental_rate
from meshcast.lower import Kernel
from meshcast.workload import Attention, AttentionLibrary, attended, element_bytes

TILE = 128
_RESULT_BYTES = 2.0
_ROUNDED = (
    1.5  # passes over an operand of two bytes that rounding it to one takes: it is read, and written in half the bytes
)
_BACKWARD_PRODUCTS = 5  # scores again, and the gradients of values, probabilities, queries and keys
FLASH_1 = 2.0  # its time over FlashAttention-2's
# Kernels are for heads as wide as multiples of this (FlashAttention-2: `csrc/flash_attn/src`; cuDNN: by its measured times).
WIDTH_STEP: dict[AttentionLibrary, int] = {"cudnn": 64, "flash-2": 32, "flash-1": 32}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shares:
    """What a library's kernels reach: of the matrix engine's peak, and how many exponentials stay visible."""

    products: float
    exponentials: float
    passes: float  # over one operand, besides the products
    joules: float = 1.0  # of a product, over those of a product by warp groups
    overlap: float = 1.0  # o of the norm that joins products and exponentials: 1 where one waits for the other
    instructions: float = 0.0  # for each score, besides


def _shares(shape: Attention, machine: GpuMachine) -> _Shares:
    p = machine.parameters
    passes = p.flash_backward_passes if shape.backward else 1.0
    if shape.library != "cudnn":
        slower = FLASH_1 if shape.library == "flash-1" else 1.0
        warps, joules = (p.warp_products, p.warp_joules) if machine.generation.clusters else (1.0, 1.0)
        share = (p.flash2_backward_share if shape.backward else p.flash2_share) / slower
        return _Shares(
            products=warps * share,
            exponentials=p.flash2_exp * slower,
            passes=passes if shape.backward else 0.0,
            joules=joules,
        )
    if machine.generation.paired:
        return _paired_shares(shape, machine)
    if shape.backward:
        return _Shares(
            products=p.flash_backward_share,
            exponentials=p.flash_backward_exp,
            passes=passes,
            instructions=p.narrow_flash_instructions if is_narrow(shape) else 0.0,
        )
    return _Shares(products=p.flash_share, exponentials=p.flash_exp, passes=passes)


def _paired_shares(shape: Attention, machine: GpuMachine) -> _Shares:
    """Of Blackwell's kernels."""
    p = machine.parameters
    if not shape.backward:
        return _Shares(
            products=p.paired_flash_share, exponentials=p.paired_flash_exp, passes=p.paired_flash_passes, overlap=2.0
        )
    whole = _Shares(
        products=p.paired_flash_backward_share,
        exponentials=p.paired_flash_backward_exp,
        passes=p.paired_flash_backward_passes,
    )
    if not is_narrow(shape):
        return whole
    return replace(whole, exponentials=p.narrow_flash_exp, instructions=p.narrow_flash_instructions, overlap=p.overlap)


def is_narrow(shape: Attention) -> bool:
    """Whether its products are of 8 bits."""
    return element_bytes(shape.dtype) < _RESULT_BYTES


def call_launches(shape: Attention) -> int:
    """What one call launches: cuDNN's kernels and clears as the profiler lists them, or FlashAttention-2's and one more."""
    if shape.library == "flash-2":
        return 2
    if shape.backward:
        return 8  # five clears, the products of results and gradients, the kernel, the conversion
    return 4 if shape.q_len > 1 else 2  # three clears or one


def cleared_operands(shape: Attention, machine: GpuMachine) -> MemoryTraffic:
    """Passes over whole operands before and after the products: what is cleared, converted and multiplied ahead."""
    width = max(_RESULT_BYTES, element_bytes(shape.dtype))  # results, and what is rounded, have two bytes
    operand = shape.batch * shape.heads * shape.q_len * shape.head_dim * width
    passes = _shares(shape, machine).passes
    if is_narrow(shape):  # queries, keys and values are read and written in half the bytes, backward what arrives
        keys = shape.kv_heads * shape.kv_len / (shape.heads * shape.q_len)
        passes += _ROUNDED * (1.0 if shape.backward else 1.0 + 2.0 * keys)
    return traffic(0, operand * passes, machine)


def _waste(shape: Attention, fill: float) -> float:
    """Computed over useful pairs of a query and a key: tiles are whole on both sides, and along the diagonal."""
    if shape.q_len == 1:
        return 1.0
    keys = min(shape.window, shape.kv_len) if shape.window else shape.kv_len
    besides = (TILE + 2 * fill) if shape.causal else fill
    return _rounded(shape.q_len) / shape.q_len * (_rounded(keys) + besides) / keys


def _computed(kernel: Kernel, shape: Attention, machine: GpuMachine) -> tuple[float, float, Attention]:
    """(FLOPs, scores, masks) that the kernels compute: more than what is asked for in Blackwell's backward pass."""
    flops, scores = kernel.matrix_flops, kernel.transcendentals
    if not (shape.backward and machine.generation.paired and shape.library == "cudnn"):
        return flops, scores, shape
    if is_narrow(shape):
        whole = replace(shape, window=0)
        more = attended(whole) / attended(shape)
        return flops * more, scores * more, whole
    return max(flops, 2.0 * _BACKWARD_PRODUCTS * shape.head_dim * scores), scores, shape


def _rounded(length: int) -> int:
    return math.ceil(length / TILE) * TILE


def attention(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """A fused attention call, forward or backward."""
    shape = kernel.geometry
    rate = matrix_rate(kernel, machine.device)
    p = machine.parameters
    assert isinstance(shape, Attention)
    reached = _shares(shape, machine)
    launches = call_launches(shape)
    flops, scores, masked = _computed(kernel, shape, machine)
    waste = _waste(masked, p.flash_fill)
    step = WIDTH_STEP[shape.library]
    padded = math.ceil(shape.head_dim / step) * step / shape.head_dim
    tiles = shape.batch * shape.heads * math.ceil(shape.q_len / TILE)
    peak = rate.flops * machine.boost * reached.products
    products = flops * padded * waste / peak
    exponentials = scores * waste * reached.exponentials / transcendental_rate(machine.device)
    exponentials += scores * waste * reached.instructions / machine.instruction_rate
    shared = (products**reached.overlap + exponentials**reached.overlap) ** (1 / reached.overlap)
    longest = shared * machine.sms / tiles * (2 if shape.causal and shape.q_len > 1 else 1)
    compute = larger(longest, shared + p.flash_tail * longest)
    moved = traffic(kernel.read_bytes, kernel.written_bytes, machine, recency=kernel.recency)
    cleared = cleared_operands(shape, machine)
    return GpuWork(
        time=launches * machine.launch + machine.overlapped(compute, moved.seconds) + cleared.seconds,
        compute=compute,
        fixed=launches * machine.launch,
        memory=moved.seconds + cleared.seconds,
        dram_bytes=moved.dram_bytes + cleared.dram_bytes,
        matrix_joules=matrix_joules(flops, rate, machine.device) * reached.joules,
        instructions=kernel.vector_flops,
        formula="t = n launch + |max(last, both + tail last), mem|_p + clear",
        terms=(
            *machine.named(
                ("FLOPs", "F", flops, "FLOP"),
                ("heads as wide as kernels take them", "pad", padded, ""),
                ("masked part of tiles on the diagonal, and filling tiles", "waste", waste, ""),
                ("rate of the products", "P", peak, "FLOP/s"),
                ("products", "mma = F pad waste/P", products, "s"),
                ("exponentials that products do not hide", "exp", exponentials, "s"),
                ("norm that joins these two", "o", reached.overlap, ""),
                ("the two together", "both = |mma, exp|_o", shared, "s"),
                ("tiles of 128 queries", "tiles", tiles, ""),
                ("the longest tile on its SM", "last", longest, "s"),
                ("share of it that others wait for", "tail", p.flash_tail, ""),
            ),
            *moved.terms,
            *machine.named(
                ("clearing and converting operands", "clear", cleared.seconds, "s"),
                ("kernels and clears that the call launches", "n", launches, ""),
                ("launch", "launch", machine.launch, "s"),
                ("norm of what overlaps", "p", p.overlap, ""),
            ),
        ),
    )
