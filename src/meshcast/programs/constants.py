"""Large constants in MLIR text, cut to one element before parsing where there are many: no cost depends on their contents.

A module with its weights inside is mostly such text; one repeated element (a splat) has the same type. What a compiler makes of
a program may depend on contents all the same: two constants that are equal once they are cut are one, and what is computed with
both is computed once. A program's tables and masks are therefore kept, up to some megabytes in all.
"""

from __future__ import annotations

import re

SHORTEST = 1 << 16
KEPT = 1 << 23  # characters of such constants that a text keeps, the first ones first
_HEX = re.compile(rf'dense<"0x([0-9A-Fa-f]{{{SHORTEST},}})">(\s*:\s*tensor<(?:\d+x)*)(complex<)?([a-z]+)(\d+)(\w*)>')
_LIST = re.compile(rf"dense<\[+(\([^)]*\)|[^\[\],(>]+)[^>]{{{SHORTEST},}}\]>")
_BLOB = re.compile(rf'"0x([0-9A-Fa-f]{{8}})[0-9A-Fa-f]{{{SHORTEST},}}"')


def shortened(text: str, *, keep: int = KEPT) -> str:
    """The text with constants of more than 64 Ki characters, but for the first `keep` characters, as single elements."""
    if len(text) < SHORTEST:
        return text
    budget = _Budget(keep)
    # Bits are eight to a byte or one, as MLIR's release has it: what another one wrote cannot always be read as it is.
    text = _HEX.sub(lambda match: ("" if _is_bits(match) else budget.kept(match)) or _first_of_hex(match), text)
    text = _LIST.sub(lambda match: budget.kept(match) or f"dense<{match[1].strip()}>", text)
    if "dialect_resources" not in text:
        return text
    return _BLOB.sub(lambda match: budget.kept(match) or f'"0x{match[1]}00000000"', text)


class _Budget:
    """Characters that may still be kept."""

    def __init__(self, left: int) -> None:
        self._left = left

    def kept(self, match: re.Match[str]) -> str:
        """A constant as it is; empty where it does not fit any more."""
        size = match.end() - match.start()
        if size > self._left:
            return ""
        self._left -= size
        return match[0]


def _is_bits(match: re.Match[str]) -> bool:
    return (match[4], match[5]) == ("i", "1")


def _first_of_hex(match: re.Match[str]) -> str:
    data, shape, is_complex, kind, bits, rest = match.groups()
    digits = 2 * max(1, int(bits) // 8) * (2 if is_complex else 1)
    first = "00" if _is_bits(match) else data[:digits]
    return f'dense<"0x{first}">{shape}{is_complex or ""}{kind}{bits}{rest}>'
