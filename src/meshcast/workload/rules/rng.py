"""Random numbers, by the integer operations of the generator per 32-bit word (XLA counts one transcendental)."""

from __future__ import annotations

from collections.abc import Mapping

from jaxlib.mlir.dialects import stablehlo

from meshcast.workload.graph import DTYPE_BITS, Cost, OpKind, Tensor
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules.costs import streamed

# Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
# Threefry-2x32: 20 rounds of add, rotate (3 ops) and xor, and 5 key injections of 4 additions, for two words.
THREEFRY_OPS_PER_WORD = 60
# Philox-4x32: 10 rounds of 4 multiplications (2 low, 2 high), 4 xors and 2 key additions, for four words.
PHILOX_OPS_PER_WORD = 25


def _rng_bit_generator(reading: OpReading) -> Cost:
    """Raw bits; DEFAULT is Philox on GPUs."""
    algorithm = stablehlo.RngAlgorithmAttr(reading.op.attributes["rng_algorithm"]).value
    per_word = THREEFRY_OPS_PER_WORD if algorithm == "THREE_FRY" else PHILOX_OPS_PER_WORD
    bits = reading.results[-1]
    return streamed(reading, OpKind.RNG, dtype=bits.dtype, vector_flops=per_word * _words(bits))


def _rng(reading: OpReading) -> Cost:
    """Philox bits and the map to a distribution: scale and shift (uniform), or a transcendental as well (normal)."""
    result = reading.results[0]
    normal = stablehlo.RngDistributionAttr(reading.op.attributes["rng_distribution"]).value == "NORMAL"
    return streamed(
        reading,
        OpKind.RNG,
        dtype=result.dtype,
        vector_flops=PHILOX_OPS_PER_WORD * _words(result) + 2 * result.elements,
        transcendentals=result.elements if normal else 0,
    )


def threefry(reading: OpReading) -> Cost:
    """JAX's threefry kernel as a GPU custom call: keys and counters in, as many words out."""
    words = sum(_words(tensor) for tensor in reading.results)
    return streamed(reading, OpKind.RNG, vector_flops=THREEFRY_OPS_PER_WORD * words)


def _words(tensor: Tensor) -> int:
    """32-bit words drawn for `tensor`: one per element up to 32 bits, two for 64."""
    return tensor.elements * max(1, DTYPE_BITS[tensor.dtype] // 32)


RULES: Mapping[str, Rule] = {"stablehlo.rng": _rng, "stablehlo.rng_bit_generator": _rng_bit_generator}
