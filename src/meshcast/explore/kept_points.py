"""Points of a run folder, as its file has them: a line each, in the order they were finished, some of them again.

A folder may have more points than a process can hold. What is held of each is its number and the place of its line.
"""

from __future__ import annotations

import contextlib
import json
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from meshcast.base import InputError
from meshcast.explore.point import Outcome, Point

POINTS = "points.jsonl"
Ints = npt.NDArray[np.int64]


class KeptOutcomes(Mapping[int, Outcome]):
    """Outcomes of a folder by the numbers of their points, but for those that failed: read when they are asked for.

    Of each point its number and the place of its line are held, sixteen bytes; of several lines of a point the last one counts.
    """

    def __init__(self, path: Path) -> None:
        """Goes through the folder's points once.

        Raises:
            InputError: A line is none of ours.
        """
        self._file = path / POINTS
        self._numbers, self._places = _last_lines(self._file, failed=False)

    def _at(self, number: object) -> int | None:
        """The place of a point's line."""
        if not isinstance(number, int):
            return None
        at = int(np.searchsorted(self._numbers, number))
        return int(self._places[at]) if at < self._numbers.size and self._numbers[at] == number else None

    def __contains__(self, number: object) -> bool:
        return self._at(number) is not None

    def __getitem__(self, number: int) -> Outcome:
        place = self._at(number)
        if place is None:
            raise KeyError(number)
        with self._file.open("rb") as lines:
            lines.seek(place)
            return Outcome.from_json(json.loads(lines.readline())["outcome"])

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers.tolist())

    def __len__(self) -> int:
        return int(self._numbers.size)


def _outcomes(file: Path) -> Iterator[tuple[int, int, str]]:
    """The number of each point of a file, the place of its line, and what became of it, in the order they were finished.

    Raises:
        InputError: A line is none of ours.
    """
    if not file.exists():
        return
    place = 0
    with file.open("rb") as lines:
        for line_number, line in enumerate(lines, start=1):
            with contextlib.suppress(ValueError):  # cut off where a run was ended
                data = json.loads(line)
                try:
                    yield int(data["point"]["number"]), place, str(data["outcome"]["status"])
                except (KeyError, TypeError) as error:
                    raise InputError(
                        f"no point of an exploration: {error}",
                        where=f"{file}:{line_number}",
                        fix="take the line out, and go on with --resume",
                    ) from None
            place += len(line)


def _last_lines(file: Path, *, failed: bool) -> tuple[Ints, Ints]:
    """The numbers of a file's points in their order, and the place of the last line of each; of those that failed where asked."""
    numbers, places = array("q"), array("q")
    for number, place, status in _outcomes(file):
        if failed or status != "failed":
            numbers.append(number)
            places.append(place)
    found, last = np.unique(np.array(numbers, dtype=np.int64)[::-1], return_index=True)
    return found, np.array(places, dtype=np.int64)[::-1][last]


def read_points(path: Path) -> Iterator[tuple[Point, Outcome]]:
    """The points of a folder, in the order they were finished.

    Raises:
        InputError: There are none, or a line is none of ours.
    """
    file = path / POINTS
    if not file.exists():
        return
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                data = json.loads(line)
            except ValueError:
                continue  # cut off where a run was ended
            try:
                yield Point.from_json(data["point"]), Outcome.from_json(data["outcome"])
            except (KeyError, TypeError) as error:
                raise InputError(
                    f"no point of an exploration: {error}",
                    where=f"{file}:{number}",
                    fix="take the line out, and go on with --resume",
                ) from None


def ordered(path: Path) -> Iterator[tuple[Point, Outcome]]:
    """The points of a folder in the order of the space, each once, its last outcome."""
    _, places = _last_lines(path / POINTS, failed=True)
    if not places.size:
        return
    with (path / POINTS).open("rb") as lines:
        for place in places.tolist():
            lines.seek(place)
            data = json.loads(lines.readline())
            yield Point.from_json(data["point"]), Outcome.from_json(data["outcome"])
