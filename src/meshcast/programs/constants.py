"""Large constants in MLIR text, cut to one element before parsing: no cost depends on their contents.

A module with its weights inside is mostly such text; one repeated element (a splat) has the same type.
"""

from __future__ import annotations

import re

SHORTEST = 1 << 16
_HEX = re.compile(rf'dense<"0x([0-9A-Fa-f]{{{SHORTEST},}})">(\s*:\s*tensor<(?:\d+x)*)(complex<)?([a-z]+)(\d+)(\w*)>')
_LIST = re.compile(rf"dense<\[+(\([^)]*\)|[^\[\],(>]+)[^>]{{{SHORTEST},}}\]>")
_BLOB = re.compile(rf'"0x([0-9A-Fa-f]{{8}})[0-9A-Fa-f]{{{SHORTEST},}}"')


def shortened(text: str) -> str:
    """The text with every constant of more than 64 Ki characters as a splat of its first element."""
    if len(text) < SHORTEST:
        return text
    text = _HEX.sub(_first_of_hex, text)
    text = _LIST.sub(lambda match: f"dense<{match[1].strip()}>", text)
    return _BLOB.sub(r'"0x\g<1>00000000"', text) if "dialect_resources" in text else text


def _first_of_hex(match: re.Match[str]) -> str:
    data, shape, is_complex, kind, bits, rest = match.groups()
    digits = 2 * max(1, int(bits) // 8) * (2 if is_complex else 1)
    first = "00" if (kind, bits) == ("i", "1") else data[:digits]
    return f'dense<"0x{first}">{shape}{is_complex or ""}{kind}{bits}{rest}>'
