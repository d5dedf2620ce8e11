"""Answers in a folder: one line of `answers.jsonl` each, written as they come, so that recording may stop and go on."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from meshcast.cli import main as command
from tests.golden.command import Bench

KEPT, MADE = "answers.jsonl", "made.json"
# Releases that write models as other programs, and the compiler that TPUs' answers may come from.
WRITERS = ("jax", "jaxlib", "libtpu")
ROUNDERS = ("numpy", "scipy")


def environment() -> dict[str, str | None]:
    """What answers depend on beside our own code."""
    found: dict[str, str | None] = {"machine": platform.machine(), "python": platform.python_version()}
    for name in (*WRITERS, *ROUNDERS):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def recorded(folder: Path) -> dict[str, dict[str, Any]]:
    """The answers of a folder by their questions; a line that was cut off when recording stopped is asked again."""
    path = folder / KEPT
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return {row["question"]: row for row in map(json.loads, (line for line in lines if line.endswith("\n")))}


def made(folder: Path) -> dict[str, str | None]:
    """The environment that a folder's answers were made in."""
    found: dict[str, str | None] = json.loads((folder / MADE).read_text(encoding="utf-8"))
    return found


def answered(asked: list[str], folder: Path) -> Iterator[dict[str, Any]]:
    """Answers to all questions, as they come; those that the folder has are not asked again."""
    folder.mkdir(parents=True, exist_ok=True)
    before = recorded(folder)
    path = folder / KEPT
    path.write_text("".join(json.dumps(row) + "\n" for row in before.values()), encoding="utf-8")
    (folder / MADE).write_text(json.dumps(environment()), encoding="utf-8")
    bench = Bench(command)
    started = time.monotonic()
    try:
        with path.open("a", encoding="utf-8") as file:
            for number, question in enumerate(asked, 1):
                if question not in before:
                    begun = time.monotonic()
                    answers = bench.ask(question)
                    seconds = round(time.monotonic() - begun, 2)
                    before[question] = {"question": question, "seconds": seconds, "answers": answers}
                    file.write(json.dumps(before[question]) + "\n")
                    file.flush()
                    _progress(f"{number} of {len(asked)}, {time.monotonic() - started:.0f} s; {seconds} s: {question}")
                yield before[question]
    finally:
        bench.close()
        print(file=sys.stderr)


def _progress(said: str) -> None:
    """One line on a terminal, written over itself; elsewhere a line a question."""
    shown = f"\r{said[:118]:<118}" if sys.stderr.isatty() else f"{said}\n"
    print(shown, end="", file=sys.stderr, flush=True)
