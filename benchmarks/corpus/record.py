"""What the corpus knows of a program, which part it belongs to, and the index that holds it. Needs no library but Python's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

ORIGINS = ("library", "example", "helper")
MODES = ("train", "infer", "step", "update", "decode")
GROUPS = (
    *("llm", "vision", "audio", "sequence", "recsys", "graph"),
    *("science", "optimizer", "probabilistic", "rl", "misc"),
)
DTYPES = ("f32", "bf16", "mixed", "f16", "f64", "int8", "f8", "c64", "i32")
Part = Literal["apart", "open"]
# A function and its arguments: arrays, `jax.ShapeDtypeStruct`s, or trees of either.
Call = tuple[Callable[..., Any], tuple[Any, ...]]


def part_of(library: str) -> Part:
    """Which part a library's programs belong to: a third of the names, by their hash, is set apart and not looked at.

    The rule asks for the name alone, so that a library added later has its part before anyone has seen a figure of it.
    """
    return "apart" if hashlib.sha256(library.encode()).digest()[0] % 3 == 0 else "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program: what the index says of it, and how its function and arguments are made."""

    id: str
    library: str
    origin: str
    mode: str
    dtype: str
    group: str
    build: Callable[[], Call]

    def __post_init__(self) -> None:
        """Refuses words that the index does not know: they would be groups of one in every table."""
        for name, known in (("origin", ORIGINS), ("mode", MODES), ("dtype", DTYPES), ("group", GROUPS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{self.id}: {name} is {getattr(self, name)!r}, not one of {', '.join(known)}")

    def row(self) -> dict[str, Any]:
        """What the index says of the program before it is captured."""
        return {
            "id": self.id,
            "library": self.library,
            "part": part_of(self.library),
            "origin": self.origin,
            "mode": self.mode,
            "dtype": self.dtype,
            "group": self.group,
        }


@dataclass(slots=True)
class Catalogue:
    """The programs of one library, in the order in which they are captured."""

    library: str
    origin: str = "library"
    group: str = "misc"
    programs: list[Program] = field(default_factory=list)

    def add(
        self,
        id: str,
        build: Callable[[], Call],
        mode: str,
        dtype: str = "f32",
        *,
        group: str | None = None,
        origin: str | None = None,
    ) -> None:
        """One more program; a second one of the same id is refused, since its file would take the first one's place."""
        if any(each.id == id for each in self.programs):
            raise ValueError(f"{self.library} has two programs called {id}")
        self.programs.append(
            Program(
                id=id,
                library=self.library,
                origin=origin or self.origin,
                mode=mode,
                dtype=dtype,
                group=group or self.group,
                build=build,
            )
        )

    def program(
        self,
        id: str,
        mode: str,
        dtype: str = "f32",
        *,
        group: str | None = None,
        origin: str | None = None,
    ) -> Callable[[Callable[[], Call]], Callable[[], Call]]:
        """A decorator: the function below it makes the program's function and arguments."""

        def added(build: Callable[[], Call]) -> Callable[[], Call]:
            self.add(id, build, mode, dtype, group=group, origin=origin)
            return build

        return added


@dataclass(frozen=True, slots=True)
class Index:
    """`index.jsonl` of a folder: one JSON object a program, appended as programs are captured."""

    folder: Path

    @property
    def path(self) -> Path:
        """Where the rows lie."""
        return self.folder / "index.jsonl"

    def file_of(self, id: str) -> Path:
        """Where a program's text lies."""
        return self.folder / "programs" / f"{id}.mlir.gz"

    def rows(self) -> Iterator[dict[str, Any]]:
        """All rows, in the order in which they were written; a program captured twice has its last one only."""
        if not self.path.exists():
            return
        lines = self.path.read_text().splitlines()
        yield from {row["id"]: row for row in (json.loads(line) for line in lines if line.strip())}.values()

    def has(self, id: str) -> bool:
        """Whether a program's text and row are both there: an interrupted capture left neither or the text alone."""
        return self.file_of(id).exists() and any(row["id"] == id for row in self.rows())

    def write(self, program: Program, text: bytes, **measured: Any) -> None:
        """Keeps a program's gzipped text and then its row: the row says that the text is whole."""
        self.file_of(program.id).parent.mkdir(parents=True, exist_ok=True)
        self.file_of(program.id).write_bytes(text)
        with self.path.open("a") as file:
            file.write(json.dumps({**program.row(), **measured}) + "\n")
