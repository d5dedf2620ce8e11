"""Element types by the names that people write."""

from __future__ import annotations

from meshcast.base import UsageError

NAMES = {
    "float32": ("fp32", "f32"),
    "bfloat16": ("bf16",),
    "float16": ("fp16", "f16"),
    "float8_e4m3fn": ("fp8", "f8e4m3fn", "float8_e4m3", "e4m3"),
    "float8_e5m2": ("f8e5m2", "e5m2"),
}
"""Types that a model's numbers may have, and their short names."""
_COMPUTED = ("float32", "bfloat16", "float16")
_NARROW = {"int4": ("i4",), "int8": ("i8",), "float8_e4m3fn": NAMES["float8_e4m3fn"]}
"""Types of weights that are widened where they are used."""


def dtype_named(setting: str, text: object) -> str:
    """The full name of a type; eight bits are for storing, as products that scale them are a setting of their own."""
    if setting == "weight_dtype":
        return _narrow_named(text)
    if any(text == full or text in short for full, short in _NARROW.items() if full not in NAMES):
        raise UsageError(
            f"{setting}={text}: only weights are in so few bits",
            where="--set",
            fix=f"weight_dtype={text} in modes prefill, decode and serve of a decoder",
        )
    name = next((full for full, short in NAMES.items() if text == full or text in short), None)
    known = [name for name in NAMES if setting != "compute_dtype" or name in _COMPUTED]
    if name in known:
        return name
    spelled = ", ".join("/".join((full, *NAMES[full][:1])) for full in known)
    if name is None:
        raise UsageError(f"{setting}={text} is no type of numbers here", where="--set", fix=f"one of {spelled}")
    raise UsageError(
        f"{setting}={text}: values of eight bits need scales",
        where="--set",
        fix=f"products=fp8 where the model has that setting, with {setting} one of {spelled}",
    )


def _narrow_named(text: object) -> str:
    """The full name of a type of weights; empty for `none`, which has them in the type of everything else."""
    if text in (None, "none", ""):
        return ""
    name = next((full for full, short in _NARROW.items() if text == full or text in short), None)
    if name is None:
        raise UsageError(
            f"weight_dtype={text} is no type of weights that are widened where they are used",
            where="--set",
            fix="one of int4, int8, fp8, none",
        )
    return name
