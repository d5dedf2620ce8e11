"""What kernels of Triton's and ATen's compute for each element, in instructions of one thread; free of torch.

Kernels that stream wait for memory or for their arithmetic, whichever takes longer; those that sum rows load, compute and store
one after the other, so that long arithmetic comes on top. Instructions of libdevice's functions are what measured kernels leave
for them on one H200 (PyTorch 2.11): GELU at 0.69e12 elements a second and its gradient at 0.50e12 (ConvNeXt, RoBERTa, GPT-NeoX),
rotary embeddings with their sines and cosines at 0.29e12 (Llama, GPT-NeoX), random bits in norms and softmaxes (BERT: ten rounds
of Philox, Salmon et al. 2011). ATen's vectorised kernels have the same functions (GELU 0.73e12 and 0.54e12 in ten models).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meshcast.programs.pytorch.eager.code_shapes import STREAM, moved_bytes
from meshcast.programs.pytorch.recording.calls import View

_LANES = 132 * 128 * 1.98e9  # instructions a second of the H200 whose kernels these are: cores and clock
_FUNCTIONS = {
    "erf": 34, "exponential": 12, "exponential_minus_one": 14, "log": 14, "log_plus_one": 16, "tanh": 20, "sine": 45,
    "cosine": 45, "power": 30, "divide": 8, "sqrt": 8, "rsqrt": 8,
}  # fmt: skip
_PLAIN = 2  # an operation, with its share of conversions
_AROUND = 6  # indices, bounds, a load and a store
_OPERAND = (
    4  # another load or store, its address and its conversion; a number a channel is loaded for every element too
)
_SUMMING = (
    1.6  # times as long in kernels that sum, whose loops wait for what they load (ResNets' and DenseNet's gradients)
)
_WELFORD = (
    37  # a mean and a variance in one pass, with its division (1.1e-12 s an element: batch norms of seven models)
)
POINTWISE_START, SUM_START = 0.35e-6, 0.8e-6  # seconds beside a launch, however little there is to do (narrow models)
VARIANCE_PARTS = 1.3e-6  # seconds more of a kernel that adds up parts of variances
# Seconds a tap of a pooling's result, with the place of what is largest and without, and a pixel of an image whose gradient is
# made (windows of 3 x 3 in ResNets, DenseNet, SqueezeNet, AlexNet, GoogLeNet, MaxViT: 7.2 to 8.4, 2.5 to 3.8, 7 to 11 ps).
_POOLED_PLACE, _POOLED, _POOLED_BACK = 0.82e-12, 0.33e-12, 9e-12
RANDOM = 65  # ten rounds for one number


def has_functions(ops: Iterable[str]) -> bool:
    """Whether there is more than plain arithmetic among them."""
    return any(op in _FUNCTIONS for op in ops)


def arithmetic_seconds(elements: int, ops: Iterable[str], *, draws: int = 0, operands: int = 2) -> float:
    """Seconds of a kernel's arithmetic: `elements * instructions / _LANES`.

    Args:
        elements: That it runs over.
        ops: What is done to each.
        draws: Random numbers for each.
        operands: Tensors that are read or written for each.
    """
    instructions = (
        _AROUND + draws * RANDOM + max(0, operands - 2) * _OPERAND + sum(_FUNCTIONS.get(op, _PLAIN) for op in ops)
    )
    return elements * instructions / _LANES


def summing_seconds(elements: int, ops: Iterable[str], *, operands: int, variance: bool) -> float:
    """The same of a kernel that sums, and where it makes a variance of the sums that this takes (Welford 1962)."""
    plain = _SUMMING * arithmetic_seconds(elements, ops, operands=operands)
    return max(plain, elements * _WELFORD / _LANES) if variance else plain


def pooling_seconds(name: str, elements: int, taps: int, *, places: bool) -> float:
    """Seconds of a window that moves over images inside a loop; 0 where nothing is known of it.

    Args:
        name: The operator's.
        elements: Of the result; of the image where its gradient is made, which asks every window that it lies in.
        taps: Pixels of a window.
        places: Whether the place of what is largest is kept for the backward pass.
    """
    if "pool" not in name or "adaptive" in name:
        return 0.0
    if name.endswith("backward"):
        return elements * (_POOLED_BACK if "max" in name else 0.0)
    return elements * taps * (_POOLED_PLACE if places else _POOLED)


def streaming_share(takes: Sequence[View], gives: Sequence[View], seconds: float) -> float:
    """The share of the memory's rate that a streaming kernel is left by arithmetic of so many seconds."""
    return min(1.0, moved_bytes(takes, gives) / STREAM / seconds) if seconds > 0 else 1.0


def drawing_seconds(elements: int) -> float:
    """Seconds that random numbers take a kernel which sums rows."""
    return elements * RANDOM / _LANES
