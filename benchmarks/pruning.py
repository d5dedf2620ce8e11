"""Does a search with bounds find what trying all plans finds, and with how many predictions? Real spaces, searched both ways.

    python benchmarks/pruning.py [gpt3|llama] [--record FOLDER] [--steps FILE]

`gpt3` is the 196 plans of GPT-3 175B on 128 H100s with sequences of their own and everything computed again; `llama` the 95 plans
of eight layers of Llama 3 8B on one host, most of them without stages and within a factor of two of the best. `--record` writes
what came out, points and what bounds asked about layers, for `tests/explore/test_pruning.py` (in `tests/data`), which searches
again by them: to be done anew where plans are written otherwise or bounds ask for something else. `--steps` takes the steps of
such a file for known, where bounds alone have changed. Three minutes of CPU time, and one.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from meshcast.explore.asking import explore  # noqa: E402
from meshcast.explore.engines import engine_named  # noqa: E402
from meshcast.explore.point import Outcome  # noqa: E402
from meshcast.explore.space import Space  # noqa: E402
from meshcast.explore.work import Answer, SearchWork  # noqa: E402

GPT3 = Space(
    model="gpt3-175b",
    asked={
        "on": "dgx-h100", "devices": 128, "settings": {"batch": "128", "seq": "2048"}, "fidelity": "analytical",
    },
    plans={"remat": ("full",), "mbs": (1,)},
)  # fmt: skip
LLAMA = Space(
    model="llama3-8b",
    asked={
        "on": "dgx-h100", "devices": 8, "settings": {"batch": "16", "seq": "2048", "layers": "8"}, "fidelity": "analytical",
    },
    plans={"remat": ("full",)},
)  # fmt: skip
SPACES = {"gpt3": GPT3, "llama": LLAMA}


def file_of(name: str, folder: Path) -> Path:
    """Where what came out of a space is written."""
    return folder / f"pruned-space-{name}.json.xz"


class Recording:
    """The engine of this process, with every answer noted; a point that is known is not predicted again."""

    def __init__(self) -> None:
        self._engine = engine_named("in-process")
        self.points: dict[str, Outcome] = {}
        self.layers: list[dict[str, Any]] = []

    def answers(self, works: Iterable[SearchWork]) -> Iterator[tuple[int, Answer]]:
        """Each work's number and answer."""
        for number, work in enumerate(works):
            plan = str(work.point.plan)
            if work.kind == "point" and plan in self.points:
                yield number, self.points[plan]
                continue
            ((_, answer),) = self._engine.answers([work])
            if isinstance(answer, Outcome):
                self.points[plan] = answer
            else:
                asked = {"plan": plan, "first": work.first, "layers": work.layers, "last": work.last}
                fidelity = work.point.asked["fidelity"]
                self.layers.append({**asked, "fidelity": fidelity, "cost": asdict(answer) if answer else None})
            yield number, answer

    def take(self, rows: Iterable[dict[str, Any]]) -> None:
        """Takes steps for known."""
        for row in rows:
            told = {name: row[name] for name in ("status", "step_time_s", "memory_bytes")}
            self.points[row["plan"]] = Outcome(**told)

    def close(self) -> None:
        """Ends the engine."""
        self._engine.close()

    def written(self) -> dict[str, Any]:
        """What the test reads."""
        rows = [
            {"plan": plan, "status": found.status, "step_time_s": found.step_time_s, "memory_bytes": found.memory_bytes}
            for plan, found in self.points.items()
        ]
        return {"points": rows, "layers": self.layers}


def main() -> None:
    """Searches twice and compares.

    Raises:
        SystemExit: The searches find other plans.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("space", choices=SPACES, nargs="?", default="gpt3")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--steps", type=Path)
    asked = parser.parse_args()
    space = SPACES[asked.space]
    engine = Recording()
    if asked.steps is not None:
        engine.take(json.loads(lzma.decompress(asked.steps.read_bytes()))["points"])
    started = time.process_time()
    pruned = explore(space, search="best", engine=engine, top=1)
    between = time.process_time()
    every = explore(space, search="exhaustive", engine=engine, top=1)
    ended = time.process_time()
    count, share = pruned.tally.evaluated, pruned.tally.evaluated / every.tally.evaluated
    best, least = pruned.best[0], every.best[0]
    said = f"{count} of {every.tally.evaluated} points ({share:.1%}) and {pruned.tally.probes} looks at layers"
    print(f"with bounds: {said}, {between - started:.0f} s of CPU time; the others {ended - between:.0f} s")
    print(f"{pruned.tally.below_bounds} steps are below their bounds")
    for name, found in (("by bounds", best), ("of all", least)):
        print(f"best {name}: {found.point.plan}, {found.outcome.step_time_s} s")
    if asked.record is not None:
        file_of(asked.space, asked.record).write_bytes(lzma.compress(json.dumps(engine.written()).encode()))
    if best.point.plan != least.point.plan or pruned.tally.below_bounds:
        raise SystemExit("the searches differ")


if __name__ == "__main__":
    main()
