"""The questions: every verb and option of the command line, over programs of files, models of the zoo, pipelines and traces.

Options are tried one at a time beside a few common jobs, since their product has no end; programs, devices and fidelities are
crossed. A question is its own name, so that another order, or new ones, change no stored answer.

A line of `questions/*.txt` is a question, or several: `[a|b]` stands for a and for b, and `$NAME` for each of the lines that
are indented below `$NAME =` in the same file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

FILES = ("programs", "models", "jobs", "verbs", "mistakes")  # in this order
Names = dict[str, list[str]]
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_NAME = re.compile(r"\$([A-Z]+)")


def questions() -> list[str]:
    """All questions, each once, in the order in which they are asked."""
    folder = Path(__file__).parent / "questions"
    return list(dict.fromkeys(each for name in FILES for each in _read((folder / f"{name}.txt").read_text("utf-8"))))


def spread(found: list[str], count: int) -> list[str]:
    """That many of them, evenly spread; all of them if there are no more."""
    return found if count >= len(found) else [found[i * len(found) // count] for i in range(count)]


def _read(text: str) -> Iterator[str]:
    names: Names = {}
    begun = ""
    for line in text.splitlines():
        if line.startswith("  "):
            names[begun].append(line.strip())
        elif line.startswith("$") and line.endswith(" ="):
            begun = line[1:-2]
            names[begun] = []
        elif line and not line.startswith("#"):
            yield from (" ".join(each.split()) for each in expanded(line, names))


def expanded(line: str, names: Names) -> Iterator[str]:
    """All that a line stands for; the first choice in it varies slowest."""
    choice, name = _CHOICE.search(line), _NAME.search(line)
    if choice is None and name is None:
        yield line
        return
    if name is None or (choice is not None and choice.start() < name.start()):
        assert choice is not None
        found, options = choice, choice[1].split("|")
    else:
        found, options = name, names[name[1]]
    for option in options:
        yield from expanded(line[: found.start()] + option + line[found.end() :], names)
