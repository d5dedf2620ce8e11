"""Answers: how two of them differ, and what the repository keeps of each (`answers.jsonl.gz`)."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHIPPED = Path(__file__).parent / "answers.jsonl.gz"
DIGITS = 16  # of a digest: 64 bits, among a thousand answers
# Where an answer has one of these, its number is kept beside the digest, so that a difference can be read.
HEADLINES = (
    "step_time_s", "memory_bytes.peak", "communication_bytes", "communication_s", "flops", "hbm_bytes", "energy_j", "kernels",
    "time_s", "total_cycles", "totals.flops", "totals.unfused_bytes", "predicted_s", "measured_s",
)  # fmt: skip
_ABSENT = object()
CLOSE = 1e-12  # another processor, or another build of NumPy, adds up in another order
ROUNDED = 9  # digits of numbers behind which processors do not differ


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Where two recorded answers to a question differ: a path in the JSON with both values, and their number."""
    return [_line(*found) for found in _walk("", before["answers"], now["answers"])]


def _line(path: str, old: Any, new: Any) -> str:
    return f"{path}: {_said(old)} -> {_said(new)}"


def _walk(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            yield from _walk(f"{path}.{key}", old.get(key, _ABSENT), new.get(key, _ABSENT))
        if list(old) != list(new) and set(old) == set(new):
            yield f"{path} (order of keys)", list(old), list(new)
    elif isinstance(old, list) and isinstance(new, list):
        for i in range(max(len(old), len(new))):
            yield from _walk(f"{path}[{i}]", old[i] if i < len(old) else _ABSENT, new[i] if i < len(new) else _ABSENT)
    elif json.dumps(old, default=str) != json.dumps(new, default=str):  # as written: 1 and 1.0 and true differ
        yield path, old, new


def _said(value: Any) -> str:
    return "absent" if value is _ABSENT else json.dumps(value)[:200]


def summary(row: dict[str, Any]) -> dict[str, Any]:
    """What the repository keeps of an answer: exit codes, digests of all of it and of its shape, and headline numbers."""
    answers = row["answers"]
    lines = [line for answer in answers for line in answer["lines"]]
    return {
        "question": row["question"],
        "seconds": row["seconds"],
        "exit": [answer["exit"] for answer in answers],
        "digest": _digest(answers),
        "shape": _digest([_shape(answer["lines"]) for answer in answers]),
        "rounded": _digest([[_rounded(answer["lines"]), sorted(answer["files"])] for answer in answers]),
        "numbers": [found for line in lines[:8] if (found := _headlines(line))],
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, allow_nan=False).encode()).hexdigest()[:DIGITS]


def _shape(value: Any) -> Any:
    """The keys and kinds of a JSON value without its numbers and texts, and lists as the kinds that they hold."""
    if isinstance(value, dict):
        return {key: _shape(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted({json.dumps(_shape(one)) for one in value})
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def _rounded(value: Any) -> Any:
    """A JSON value with its numbers to so many digits."""
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return float(f"{value:.{ROUNDED}g}") if isinstance(value, float) else value


def _headlines(line: Any) -> dict[str, float]:
    found = {}
    for path in HEADLINES:
        value = line
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, (int, float)):
            found[path] = value
    return found


def told(stored: dict[str, Any], now: dict[str, Any], *, bits: bool = False) -> list[str]:
    """How an answer differs from what the repository keeps: headline numbers first, which may be all alike.

    Args:
        stored: What it keeps, as `summary` makes it.
        now: The answer of today, likewise.
        bits: Whether the last bit counts; else headline numbers may differ by `CLOSE`, and others behind `ROUNDED` digits.
    """
    if stored["digest"] == now["digest"]:
        return []
    found = [each for key in ("exit", "numbers", "shape") for each in _walk(key, stored[key], now[key])]
    if different := [_line(*each) for each in found if bits or not _is_close(*each[1:])]:
        return different
    # Answers that were recorded before there was such a digest have none.
    if bits or stored.get("rounded", now["rounded"]) != now["rounded"]:
        return ["exit code, headline numbers and shape are as before, the rest is not: record both, compare --folder"]
    return []


def _is_close(old: Any, new: Any) -> bool:
    numbers = isinstance(old, (int, float)) and isinstance(new, (int, float))
    return numbers and math.isclose(old, new, rel_tol=CLOSE)


def shipped() -> dict[str, dict[str, Any]]:
    """What the repository keeps, by question."""
    return {row["question"]: row for row in _rows() if "question" in row}


def shipped_made() -> dict[str, str | None]:
    """The environment that those answers were made in."""
    found: dict[str, str | None] = next(_rows())["made"]
    return found


def _rows() -> Iterator[dict[str, Any]]:
    with gzip.open(SHIPPED, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def write_shipped(rows: list[dict[str, Any]], made: dict[str, str | None]) -> None:
    """Writes what the repository keeps; packed without the time, so that equal answers are equal bytes."""
    text = "".join(json.dumps(row) + "\n" for row in ({"made": made}, *rows))
    SHIPPED.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(rows)} answers, {SHIPPED.stat().st_size:,} bytes: {SHIPPED.name}")
