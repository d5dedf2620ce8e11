"""`python -m tests.golden record|compare|ship`: keeps what the command line answers, and says what has changed."""

from __future__ import annotations

import argparse
import fnmatch
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.golden.answers import differences, shipped, shipped_made, summary, told, write_shipped
from tests.golden.grid import questions, spread
from tests.golden.recording import answered, environment, made, recorded

SHOWN = 8  # differences of a question that are printed


def main() -> int:
    """The exit code: 0 where all was recorded or is as before, 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("verb", choices=("record", "compare", "ship"))
    parser.add_argument("--folder", type=Path, help="recorded answers; of compare by default the shipped digests")
    parser.add_argument(
        "--only", metavar="GLOB", action="append", help="questions that match, 'predict gpt2*'; may be repeated"
    )
    parser.add_argument("--slice", type=int, metavar="N", help="N questions, spread over those there are")
    parser.add_argument(
        "--bits",
        action="store_true",
        help="compare: with the shipped digests to the last bit, on the machine that made them",
    )
    parser.add_argument("--resume", action="store_true", help="compare: go on with an interrupted comparison")
    parser.add_argument(
        "--now", type=Path, default=Path("build/golden"), help="compare: where today's answers are kept (%(default)s)"
    )
    options = parser.parse_args()
    asked = [each for each in questions() if _wanted(each, options.only)]
    asked = spread(asked, options.slice or len(asked))
    folder: Path | None = options.folder
    try:
        if options.verb == "compare":
            return _compare(asked, folder, options.now, resume=options.resume, bits=options.bits)
        if folder is None:
            parser.error(f"{options.verb} needs --folder")
        if options.verb == "ship":
            before = recorded(folder)
            write_shipped([summary(before[each]) for each in asked if each in before], made(folder))
            return 0
        for _ in answered(asked, folder):
            pass
        print(f"{len(recorded(folder))} answers are in {folder}")
    except KeyboardInterrupt:
        print("stopped; the same command goes on from there (compare: with --resume)", file=sys.stderr)
        return 130
    return 0


def _wanted(question: str, patterns: list[str] | None) -> bool:
    return not patterns or any(fnmatch.fnmatchcase(question, pattern) for pattern in patterns)


def _compare(asked: list[str], folder: Path | None, now: Path, *, resume: bool, bits: bool) -> int:
    before = recorded(folder) if folder else shipped()
    if not before:
        sys.exit(f"no answers in {folder}: record some first")
    _tell_environment(made(folder) if folder else shipped_made())
    if not resume:
        shutil.rmtree(now, ignore_errors=True)
    known = [each for each in asked if each in before]
    changed: list[str] = []
    for row in answered(known, now):
        stored = before[row["question"]]
        found = differences(stored, row) if folder else told(stored, summary(row), bits=bits)
        if found:
            changed.append(row["question"])
            print(f"\n{row['question']}\n  {len(found)} differences")
            print("".join(f"  {each}\n" for each in found[:SHOWN]), end="", flush=True)
    print(
        f"{len(known)} questions, {len(changed)} with another answer; {len(asked) - len(known)} have no stored answer"
    )
    return 1 if changed else 0


def _tell_environment(then: Mapping[str, str | None]) -> None:
    for name, here in environment().items():
        if then.get(name) != here:
            print(f"note: answers were recorded with {name} {then.get(name)}, and here it is {here}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
