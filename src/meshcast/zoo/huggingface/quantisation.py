"""What a configuration says of weights in fewer bits: a preset of `weight_dtype` where a model's inference has it."""

from __future__ import annotations

from typing import Any

_BITS = {"fp8": 8, "fbgemm_fp8": 8, "mxfp4": 4, "compressed-tensors": 0}
"""Of methods that do not say how many; zero where it is in a part that is not read."""
_TYPES = {4: "int4", 8: "int8"}
NARROW_FAMILIES = frozenset({"decoder"})
"""Whose programs widen weights where they use them."""


def quantisation(values: dict[str, Any], family: str) -> tuple[tuple[tuple[str, Any], ...], tuple[str, ...]]:
    """The settings that a configuration's weights ask for, and what to say of it; nothing where they are whole numbers of bytes.

    Args:
        values: The values of the configuration.
        family: The module that makes programs of it.
    """
    found = values.get("quantization_config")
    if not isinstance(found, dict):
        return (), ()
    method = str(found.get("quant_method", "unnamed"))
    bits = found.get("bits") or _bits_of_flags(found) or _BITS.get(method)
    said = f"{method}, {bits} bits" if bits else method
    narrow = "float8_e4m3fn" if method in ("fp8", "fbgemm_fp8") else _TYPES.get(bits or 0)
    if narrow is None or family not in NARROW_FAMILIES:
        return (), (
            f"quantization_config ({said}) is not modelled: weights are in param_dtype, bfloat16 in inference unless set; "
            "decoders have --set weight_dtype=int4, int8 or fp8",
        )
    return (("weight_dtype", narrow),), (
        f"quantization_config ({said}): prompts and decoding read the layers' weights as {narrow}, without scales; "
        "training and scoring have them in param_dtype",
    )


def _bits_of_flags(found: dict[str, Any]) -> int:
    """The bits of weights as bitsandbytes' flags say them."""
    return 4 if found.get("load_in_4bit") else 8 if found.get("load_in_8bit") else 0
