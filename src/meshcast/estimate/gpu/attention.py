"""Fused attention (flash): products at a share of peak, exponentials they do not hide, whole tiles along the diagonal.

`t = launch + flops * waste / (share * peak) + x * exps * waste / exp rate` with `waste = 1 + 128 / kv_len` under a
causal mask (tiles on the diagonal are computed whole), a window's length in place of `kv_len` where there is one; after
Dao, "FlashAttention-2" (2023) and Shah et al., "FlashAttention-3" (2024). cuDNN clears its result first; its
backward pass also clears, converts and pre-multiplies whole operands.
"""

from __future__ import annotations

import math

from meshcast.estimate.gpu.clocks import matrix_joules
from meshcast.estimate.gpu.machine import Machine, Work
from meshcast.estimate.gpu.memory import traffic
from meshcast.estimate.rates import matrix_rate, transcendental_rate
from meshcast.lower.kernel import Kernel
from meshcast.workload.graph import Attention, element_bytes

TILE = 128


def attention(kernel: Kernel, machine: Machine) -> Work:
    """A fused attention call, forward or backward."""
    shape = kernel.geometry
    rate = matrix_rate(kernel, machine.device)
    p = machine.parameters
    assert isinstance(shape, Attention)
    seen = min(shape.window, shape.kv_len) if shape.window else shape.kv_len
    waste = 1 + TILE / seen if shape.causal and shape.q_len > 1 else 1.0
    tiles = shape.batch * shape.heads * math.ceil(shape.q_len / TILE)
    busy = min(1.0, tiles / machine.sms)
    products = kernel.matrix_flops * waste / (rate.flops * machine.boost * p.flash_share)
    exponentials = kernel.transcendentals * waste * p.flash_exp / transcendental_rate(machine.device)
    compute = (products + exponentials) / busy
    moved = traffic(kernel.read_bytes, kernel.written_bytes, machine, recency=kernel.recency)
    operand = shape.batch * shape.heads * shape.q_len * shape.head_dim * element_bytes(shape.dtype)
    cleared = traffic(0, operand * (p.flash_backward_passes if shape.backward else 1.0), machine)
    return Work(
        time=2 * machine.launch + machine.overlapped(compute, moved.seconds) + cleared.seconds,
        compute=compute,
        memory=moved.seconds + cleared.seconds,
        dram_bytes=moved.dram_bytes + cleared.dram_bytes,
        matrix_joules=matrix_joules(kernel.matrix_flops, rate, machine.device),
        instructions=kernel.vector_flops,
        formula="t = 2 launch + |mma + exp over busy, mem|_p + clear",
        terms=(
            *machine.named(
                ("FLOPs", "F", kernel.matrix_flops, "FLOP"),
                ("masked part of tiles on the diagonal", "waste", waste, ""),
                ("rate of the products", "P", rate.flops * machine.boost * p.flash_share, "FLOP/s"),
                ("products", "mma = F waste/P", products, "s"),
                ("exponentials that products do not hide", "exp", exponentials, "s"),
                ("tiles of 128 queries", "n", tiles, ""),
                ("share of SMs with a tile", "busy", busy, ""),
            ),
            *moved.terms,
            *machine.named(
                ("clearing and converting operands", "clear", cleared.seconds, "s"),
                ("launch", "launch", machine.launch, "s"),
                ("norm of what overlaps", "p", p.overlap, ""),
            ),
        ),
    )
