"""What Triton's kernels compute for each element, in instructions of one thread; free of torch.

Kernels that stream wait for memory or for their arithmetic, whichever takes longer; those that sum rows load, compute and store
one after the other, so that long arithmetic comes on top. Instructions of libdevice's functions are what measured kernels leave
for them on one H200 (PyTorch 2.11): GELU at 0.69e12 elements a second and its gradient at 0.50e12 (ConvNeXt, RoBERTa, GPT-NeoX),
rotary embeddings with their sines and cosines at 0.29e12 (Llama, GPT-NeoX), random bits in norms and softmaxes (BERT: ten rounds
of Philox, Salmon et al. 2011).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meshcast.programs.pytorch.code_shapes import STREAM, bytes_of
from meshcast.programs.pytorch.recorded import View

_LANES = 132 * 128 * 1.98e9  # instructions a second of the H200 whose kernels these are: cores and clock
_FUNCTIONS = {
    "erf": 34, "exponential": 12, "exponential_minus_one": 14, "log": 14, "log_plus_one": 16, "tanh": 20, "sine": 45,
    "cosine": 45, "power": 30, "divide": 8, "sqrt": 8, "rsqrt": 8,
}  # fmt: skip
_PLAIN = 2  # an operation, with its share of conversions
_AROUND = 6  # indices, bounds, the load and the store
RANDOM = 65  # ten rounds for one number


def arithmetic_seconds(elements: int, ops: Iterable[str], *, draws: int = 0) -> float:
    """Seconds of a kernel's arithmetic: `elements * instructions / _LANES`.

    Args:
        elements: That it runs over.
        ops: What is done to each.
        draws: Random numbers for each.
    """
    instructions = _AROUND + draws * RANDOM + sum(_FUNCTIONS.get(op, _PLAIN) for op in ops)
    return elements * instructions / _LANES


def streaming_share(takes: Sequence[View], gives: Sequence[View], seconds: float) -> float:
    """The share of the memory's rate that a streaming kernel is left by arithmetic of so many seconds."""
    return min(1.0, bytes_of([*takes, *gives]) / STREAM / seconds) if seconds > 0 else 1.0


def drawing_seconds(elements: int) -> float:
    """Seconds that random numbers take a kernel which sums rows."""
    return elements * RANDOM / _LANES
