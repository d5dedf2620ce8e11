"""What a configuration says of weights in fewer bits, which no program of the zoo has."""

from __future__ import annotations

from typing import Any

_BITS = {"fp8": 8, "fbgemm_fp8": 8, "mxfp4": 4, "compressed-tensors": 0}
"""Of methods that do not say how many; zero where it is in a part that is not read."""


def quantisation_notes(values: dict[str, Any]) -> tuple[str, ...]:
    """A note that weights are wider here than in the files that the configuration belongs to, or none."""
    found = values.get("quantization_config")
    if not isinstance(found, dict):
        return ()
    method = str(found.get("quant_method", "unnamed"))
    bits = found.get("bits") or _bits_of_flags(found) or _BITS.get(method)
    said = f"{method}, {bits} bits" if bits else method
    return (
        f"quantization_config ({said}) is not modelled: weights are in param_dtype, bfloat16 in inference unless set; "
        "--set param_dtype=float8_e4m3fn has all numbers, activations and caches too, in 8 bits",
    )


def _bits_of_flags(found: dict[str, Any]) -> int:
    """Of bitsandbytes."""
    return 4 if found.get("load_in_4bit") else 8 if found.get("load_in_8bit") else 0
