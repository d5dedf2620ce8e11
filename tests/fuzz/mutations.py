"""Mutations of bytes and of text: what a careless editor, a broken disk or a hostile sender makes of a good file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

# Where arithmetic goes wrong: nothing, below nothing, the ends of the machine's integers, more than a double holds, no number.
NUMBERS = (
    *("0", "-1", "1", "2", "3", "7", "255", "65536", "2147483647", "2147483648", "-2147483649", "4294967296"),
    *("9223372036854775807", "9223372036854775808", "18446744073709551616", "1" + "0" * 30, "9" * 400),
    *("0.5", "-0.0", "1e-320", "1e30", "1e308", "1e400", "-1e400", "nan", "inf", "-inf", "0x10", "1_0", "٣", ""),
)
DTYPES = (
    *(
        "f64",
        "f32",
        "bf16",
        "f16",
        "f8E4M3FN",
        "f8E5M2",
        "f4E2M1FN",
        "i64",
        "i32",
        "i16",
        "i8",
        "i4",
        "i1",
        "ui32",
        "ui8",
    ),
    *("complex<f32>", "index", "none", "s32", "u8", "pred", "c64", "s4", "token[]", "f0", "i0", "i129"),
)
WORDS = (
    "",
    "true",
    "false",
    "null",
    "[]",
    "{}",
    "serve",
    "all",
    "nan 0",
    "..",
    "/",
    "\u00e9",
    "\udcff",
    "x" * 300,
    "\0",
)

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_DTYPE = re.compile(r"\b(?:b?f\d+\w*|u?i\d+|s\d+|u\d+|pred)\b")
_SIZE = re.compile(r"(?<=[<x\[,])\d+(?=[x,\]])")
_OP = re.compile(r"(?<=stablehlo\.)\w+|(?<=\} )[a-z][a-z-]+(?=\()")
_WORD = re.compile(r"[A-Za-z_][\w.-]*")
_QUOTED = re.compile(r'(?<=")[^"\n]*(?=")')
_GROUP = re.compile(r"\[[^\[\]\n]*\]|\{[^{}\n]*\}|\([^()\n]*\)|<[^<>\n]*>")

_ALONE = r"(?<![\d.%#])(?<![a-z]){}(?![\d.])(?!\w{{2}})"  # as a whole: the 64 of 64x128, not that of %64 or 640

TextMutation = Callable[[str, str, Random], str]
BytesMutation = Callable[[bytes, bytes, Random], bytes]


def mutated_text(text: str, other: str, rng: Random) -> str:
    """`text` after one to four mutations, some of which take from `other`, a file of the same kind."""
    for _ in range(_how_many(rng)):
        text = rng.choices(TEXT_MUTATIONS, TEXT_WEIGHTS)[0](text, other, rng)
    return text


def mutated_bytes(data: bytes, other: bytes, rng: Random) -> bytes:
    """`data` after one to four mutations, some of which take from `other`, a file of the same kind."""
    for _ in range(_how_many(rng)):
        data = rng.choice(BYTES_MUTATIONS)(data, other, rng)
    return data


def _how_many(rng: Random) -> int:
    return rng.choices((1, 2, 3, 4), (60, 25, 10, 5))[0]


def _place(length: int, rng: Random) -> int:
    return rng.randrange(length) if length else 0


def _stretch(length: int, rng: Random) -> tuple[int, int]:
    """The ends of a stretch; short ones are common."""
    start = _place(length, rng)
    return start, min(length, start + 1 + int(rng.expovariate(1 / 16)))


def _replaced(pattern: re.Pattern[str], choices: Sequence[str]) -> TextMutation:
    """One match of `pattern`, or all that are equal to it, becomes one of `choices`."""

    def mutation(text: str, other: str, rng: Random) -> str:
        found = list(pattern.finditer(text))
        if not found:
            return text
        match, new = rng.choice(found), rng.choice(choices)
        if rng.random() < 0.5:  # all of them: a program whose types agree gets past the parser
            return re.sub(_ALONE.format(re.escape(match[0])), lambda _: new, text)
        return text[: match.start()] + new + text[match.end() :]

    return mutation


def _borrowed(pattern: re.Pattern[str]) -> TextMutation:
    """One match of `pattern` becomes another one, of this text or of the other."""

    def mutation(text: str, other: str, rng: Random) -> str:
        found, theirs = list(pattern.finditer(text)), pattern.findall(text) + pattern.findall(other)
        if not found:
            return text
        match = rng.choice(found)
        return text[: match.start()] + rng.choice(theirs) + text[match.end() :]

    return mutation


def _swapped(text: str, other: str, rng: Random) -> str:
    found = list(_WORD.finditer(text))
    if len(found) < 2:
        return text
    first, second = sorted(rng.sample(found, 2), key=lambda match: match.start())
    between = text[first.end() : second.start()]
    return text[: first.start()] + second[0] + between + first[0] + text[second.end() :]


def _lines(text: str, other: str, rng: Random) -> str:
    """A line is deleted, doubled, moved, or comes from the other file."""
    lines, theirs = text.split("\n"), other.split("\n")
    at = _place(len(lines), rng)
    what = rng.randrange(4)
    if what == 0:
        del lines[at]
    elif what == 1:
        lines[at:at] = [lines[at]] * rng.choice((1, 1, 2, 50))
    elif what == 2:
        line = lines.pop(at)
        lines.insert(_place(len(lines) + 1, rng), line)
    else:
        lines.insert(at, rng.choice(theirs))
    return "\n".join(lines)


def _joined(text: str, other: str, rng: Random) -> str:
    """The head of one file and the tail of the other."""
    return text[: _place(len(text), rng)] + other[_place(len(other), rng) :]


def _group(text: str, other: str, rng: Random) -> str:
    """What stands in brackets is emptied, doubled, or nested."""
    found = list(_GROUP.finditer(text))
    if not found:
        return text
    match = rng.choice(found)
    opened, inner, closed = match[0][0], match[0][1:-1], match[0][-1]
    new = rng.choice(
        (opened + closed, match[0] * 2, opened * 30 + inner + closed * 30, f"{opened}{inner}, {inner}{closed}", inner)
    )
    return text[: match.start()] + new + text[match.end() :]


def _cut(text: str, other: str, rng: Random) -> str:
    start, end = _stretch(len(text), rng)
    return text[:start] + text[end:] if rng.random() < 0.8 else text[:start]


def _characters(text: str, other: str, rng: Random) -> str:
    start, end = _stretch(len(text), rng)
    return (
        text[:start]
        + "".join(chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x250)))) for _ in range(rng.randrange(3)))
        + text[end:]
    )


TEXT_MUTATIONS: tuple[TextMutation, ...] = (
    _replaced(_NUMBER, NUMBERS),
    _borrowed(_NUMBER),
    _replaced(_SIZE, (*NUMBERS, "?", "<=8")),
    _replaced(_DTYPE, DTYPES),
    _borrowed(_OP),
    _borrowed(_WORD),
    _replaced(_QUOTED, (*WORDS, *NUMBERS, "\\FF\\22")),
    _borrowed(_QUOTED),
    _swapped,
    _lines,
    _joined,
    _group,
    _cut,
    _characters,
)
TEXT_WEIGHTS = (16, 6, 12, 8, 10, 8, 7, 4, 6, 9, 2, 7, 4, 4)


def _flip(data: bytes, other: bytes, rng: Random) -> bytes:
    at = _place(len(data), rng)
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :] if data else data


def _bytes_replaced(data: bytes, other: bytes, rng: Random) -> bytes:
    start, end = _stretch(len(data), rng)
    new = rng.choice((b"\0", b"\xff", b"\x7f\xff\xff\xff", b"\xff" * 9 + b"\x01", rng.randbytes(end - start), b""))
    return data[:start] + new + data[end:]


def _bytes_joined(data: bytes, other: bytes, rng: Random) -> bytes:
    start, end = _stretch(len(other), rng)
    at = _place(len(data), rng)
    return data[:at] + other[start:end] + data[rng.choice((at, at + end - start)) :]


def _truncated(data: bytes, other: bytes, rng: Random) -> bytes:
    return data[: _place(len(data), rng)]


def _doubled(data: bytes, other: bytes, rng: Random) -> bytes:
    start, end = _stretch(len(data), rng)
    return data[:end] + data[start:end] * rng.choice((1, 2, 100)) + data[end:]


BYTES_MUTATIONS: tuple[BytesMutation, ...] = (
    *(_flip, _flip, _flip, _bytes_replaced, _bytes_replaced, _bytes_joined, _truncated, _doubled),
)
