"""`make bench`: how the time of a prediction grows with the size of a program: CPU seconds in a warm process, at n and 2n."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from programs_by_size import arguments, calls, chain, independent, layers, nested_branches, nested_loops, shared

import meshcast as mc

CONFIG = Path(__file__).parent.parent / "tests/fixtures/huggingface/DeepSeek-V3.json"


@dataclass(frozen=True, slots=True)
class Case:
    """A program of growing size, and how long the larger one may take."""

    what: str
    text: Callable[[int], str]
    size: int
    limit_s: float = 5.0


CASES = (
    Case("a chain of products and additions, ops", chain, 50_000),
    Case("layers of products that are merged, ops", layers, 50_000, 10.0),
    Case("independent products and their sum, ops", independent, 50_000, 10.0),
    Case("products of one value, ops", shared, 50_000, 10.0),
    Case("arguments and results", arguments, 25_000, 10.0),
    Case("loops in each other", nested_loops, 500),
    Case("branches in each other", nested_branches, 500),
    Case("functions that call each other twice", calls, 20),
)


def cpu_seconds(target: str, on: str = "h200", **options: object) -> float:
    """CPU seconds of one prediction."""
    began = time.process_time()
    mc.predict(target, on=on, **options)
    return time.process_time() - began


def main() -> None:
    """Prints a table, or one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--divide", type=int, default=1, metavar="N", help="all sizes divided by N, for a quick look")
    options = parser.parse_args()
    as_json = options.json
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.mlir"
        path.write_text(chain(100))
        cpu_seconds(str(path))  # imports, the catalogue
        for case in CASES:
            seconds, least = [], max(1, case.size // options.divide)
            for size in (least, 2 * least):
                path.write_text(case.text(size))
                seconds.append(cpu_seconds(str(path)))
            row = {"what": case.what, "n": least, "seconds": seconds, "limit_s": case.limit_s}
            _print(row, as_json)
        for mode in ("prefill", "forward", "train"):
            settings = {"batch": "1", "seq": "128", "mode": mode}
            seconds = [cpu_seconds(str(CONFIG), settings=settings)]
            _print({"what": f"DeepSeek-V3, {mode}", "n": 1, "seconds": seconds, "limit_s": 5.0}, as_json)


def _print(row: dict[str, object], as_json: bool) -> None:
    if as_json:
        print(json.dumps(row))
        return
    seconds = row["seconds"]
    assert isinstance(seconds, list)
    print(f"{row['what']:45} n = {row['n']:>7,}: " + ", ".join(f"{each:6.2f} s" for each in seconds))


if __name__ == "__main__":
    main()
