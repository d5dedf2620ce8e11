"""Which devices have a kernel of fused attention, and for which heads.

NVIDIA's GPUs: cuDNN has one from Ampere on, for heads of up to 128 there and of up to 256 from Hopper on, values of another
width than keys (latent attention) from Hopper on too (JAX, `jax/_src/cudnn/fused_attention_stablehlo.py`,
`check_is_flash_attention`); FlashAttention-2 takes heads of up to 256 from Ampere on, its first version of up to 128
(Dao-AILab/flash-attention, README). AMD's: composable-kernel's, heads of up to 256. TPUs: splash attention, any heads.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshcast.hardware import Device
from meshcast.workload import AttentionLibrary
from meshcast.zoo import FUSED_PLATFORMS, LARGEST_HEAD

_AMPERE, _HOPPER = (8, 0), (9, 0)
_SMALLER_HEAD = 128


def without_kernel(device: Device, library: AttentionLibrary, widths: Sequence[int]) -> str:
    """Why a device has no fused attention over heads of these widths; empty where it has.

    Args:
        device: The device.
        library: Whose kernels run on NVIDIA's GPUs.
        widths: The widths of queries and keys, then of values where theirs is another; a model may have heads of several.
    """
    platform = device.platform
    if platform not in FUSED_PLATFORMS:
        return f"{device.name} has none"
    if platform == "tpu":
        return ""
    largest, capability = LARGEST_HEAD, _HOPPER
    if platform == "cuda":
        capability = _capability(device)
        if capability < _AMPERE:
            return f"{device.name} has none: kernels of it begin with Ampere"
        largest = _SMALLER_HEAD if _small(library, capability) else LARGEST_HEAD
    if wrong := [width for width in widths if width % 8 or width > largest]:
        return f"heads of {wrong[0]}, and {device.name} has it for multiples of 8 up to {largest}"
    return ""


def without_unequal(device: Device, library: AttentionLibrary) -> bool:
    """Whether a device's kernels take values of the keys' width alone."""
    return device.platform == "cuda" and (library != "cudnn" or _capability(device) < _HOPPER)


def _small(library: AttentionLibrary, capability: tuple[int, int]) -> bool:
    return library == "flash-1" or (library == "cudnn" and capability < _HOPPER)


def _capability(device: Device) -> tuple[int, int]:
    """A CUDA GPU's compute capability; where its file does not say, Ampere's if it multiplies bf16, which came with it."""
    if device.core is None:
        return _AMPERE if "bf16" in device.matrix_flops else (0, 0)
    major, _, minor = device.core.compute_capability.rstrip("af").partition(".")
    return int(major), int(minor)
