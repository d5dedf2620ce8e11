"""From cycles of a systolic array to latency: a line for each regime of sizes, as SCALE-Sim TPU has it, published or fitted.

    cycles = min over swapping m and n of (2 R + C + m - 2) ceil(n / C) ceil(k / R)
    t = slope * cycles + start,   by the largest of m, n and k
    t = slope * (m k + k n + m n) + start,   where the smaller of m and n is below a border, if there is one

on an array of R x C cells whose weights stay (for a square one `3 S + m - 2`, as Dang et al., arXiv 2603.22535, write it).
Few rows leave the array waiting for weights: such a product takes the memory's time, whatever its cycles; published lines have
none of it. A convolution's windows share words: it takes as long as the words that it moves or its cycles, whichever is more, and
never longer than a product of all its windows. A file of fitted lines (`meshcast calibrate --systolic`) names the device that was
measured, and is read back by `--simulator scalesim-tpu --profile FILE`.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshcast.base import InputError, unreadable, write_whole

SCHEMA = "meshcast.systolic-lines/1"
SUFFIX = ".systolic.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLine:
    """`slope * x + start`, microseconds."""

    slope: float
    start: float

    def at(self, x: float) -> float:
        """Microseconds at x."""
        return self.slope * x + self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductTime:
    """What a line says of a product, how much of it does not grow, and whether it grows with words instead of cycles."""

    microseconds: float
    start: float
    by_words: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductLines:
    """Lines of products on an array, by the largest side that each does not reach; the last reaches everything."""

    rows: int
    columns: int
    lines: tuple[tuple[float, LatencyLine], ...]
    thin: tuple[int, LatencyLine] | None = (
        None  # the rows or columns that thin products do not reach, and their line of words
    )

    def cycles(self, m: int, n: int, k: int) -> int:
        """Cycles of a product, in the better of both orientations."""

        def one_way(streamed: int, held: int) -> int:
            fold = 2 * self.rows + self.columns + streamed - 2
            return fold * math.ceil(held / self.columns) * math.ceil(k / self.rows)

        return min(one_way(m, n), one_way(n, m))

    def line(self, m: int, n: int, k: int) -> LatencyLine:
        """The line of cycles of a product, by its largest side."""
        return next(line for below, line in self.lines if max(m, n, k) < below)

    def timed(self, m: int, n: int, k: int, *, moved: float | None = None) -> ProductTime:
        """A product of two matrices, or one of windows that memory holds `moved` words of.

        Windows share their words: such a product takes as long as the words that move or the array's cycles, whichever is more,
        and never longer than with all its windows written down.
        """
        line = self.line(m, n, k)
        by_cycles = ProductTime(microseconds=line.at(self.cycles(m, n, k)), start=line.start, by_words=False)
        if self.thin is None or min(m, n) >= self.thin[0]:
            return by_cycles
        by_words, *shared = (
            ProductTime(microseconds=self.thin[1].at(words), start=self.thin[1].start, by_words=True)
            for words in (words_moved(m, n, k), *(() if moved is None else (moved,)))
        )
        return min([by_words, *(max(each, by_cycles, key=_length) for each in shared)], key=_length)

    def microseconds(self, m: int, n: int, k: int) -> float:
        """A product of two matrices."""
        return self.timed(m, n, k).microseconds


def _length(time: ProductTime) -> float:
    return time.microseconds


def words_moved(m: int, n: int, k: int) -> int:
    """Elements of a product's operands and its result."""
    return m * k + k * n + m * n


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLines:
    """Lines that were fitted to a device's measured products, and where from."""

    device: str
    source: str
    products: ProductLines
    error: float | None = None  # the mean relative error on shapes that were left out

    def save(self, path: Path) -> None:
        """Writes them down."""
        text = [
            f'schema = "{SCHEMA}"',
            f"device = {_quoted(self.device)}",
            f"source = {_quoted(self.source)}",
            f"array_rows = {self.products.rows}",
            f"array_columns = {self.products.columns}",
        ]
        if self.error is not None and math.isfinite(self.error):
            text.append(f"error = {self.error!r}  # mean, on shapes left out")
        for below, line in self.products.lines:
            text += ["", "[[product]]", *([f"below = {below:.0f}"] if math.isfinite(below) else [])]
            text += [f"slope = {line.slope!r}  # microseconds a cycle", f"start = {line.start!r}  # microseconds"]
        if self.products.thin is not None:
            below, line = self.products.thin
            text += ["", "[thin]", f"below = {below}  # rows or columns, the fewer of both"]
            text += [f"slope = {line.slope!r}  # microseconds a word", f"start = {line.start!r}  # microseconds"]
        write_whole(path, "\n".join(text) + "\n")


def _quoted(text: str) -> str:
    """A basic string of TOML: JSON's, and the one control character that JSON leaves as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def read_fitted_lines(path: Path) -> FittedLines:
    """Lines from the file of a calibration.

    Raises:
        InputError: It is none.
    """
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise unreadable(path, error, fix=_FIX) from error
    if data.get("schema") != SCHEMA:
        raise InputError(f"its schema is {data.get('schema')!r}, not {SCHEMA!r}", where=str(path), fix=_FIX)
    try:
        lines = tuple((float(p.get("below", math.inf)), _line(p)) for p in data["product"])
        thin = (int(data["thin"]["below"]), _line(data["thin"])) if "thin" in data else None
        bounds = [below for below, _ in lines]
        if not lines or bounds != sorted(set(bounds)) or math.isfinite(bounds[-1]):
            raise ValueError("the sides that lines do not reach must grow, and the last line has none")
        every = [line for _, line in (*lines, *([thin] if thin else []))]
        if any(not 0 <= number < math.inf for line in every for number in (line.slope, line.start)):
            raise ValueError("slopes and starts are finite numbers of zero or more")
        missed = None if "error" not in data else float(data["error"])
        if missed is not None and not 0 <= missed < math.inf:
            raise ValueError("an error is a finite number of zero or more")
        rows, columns = int(data["array_rows"]), int(data["array_columns"])
        if min(rows, columns) < 1:
            raise ValueError("an array has rows and columns")
        return FittedLines(
            device=str(data["device"]),
            source=str(data["source"]),
            products=ProductLines(rows=rows, columns=columns, lines=lines, thin=thin),
            error=missed,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{type(error).__name__}: {error}", where=str(path), fix=_FIX) from error


def _line(numbers: Mapping[str, Any]) -> LatencyLine:
    return LatencyLine(slope=float(numbers["slope"]), start=float(numbers["start"]))


_FIX = "give a file that meshcast calibrate --systolic has written"
