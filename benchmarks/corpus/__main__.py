"""`python -m benchmarks.corpus --library NAME... -o FOLDER`: captures programs, goes on after failures and lists them."""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import time
import traceback
from importlib import metadata
from pathlib import Path

from benchmarks.corpus.libraries import DISTRIBUTIONS, MODULES
from benchmarks.corpus.record import Index, Program, part_of

# What the libraries read when they are imported. Equinox checks values by callbacks to the host unless told otherwise, and those
# cannot be lowered where there is no GPU.
ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "KERAS_BACKEND": "jax", "EQX_ON_ERROR": "nan"}


def programs_of(library: str) -> list[Program]:
    """The programs of a library, which is imported for them."""
    module = importlib.import_module(f"benchmarks.corpus.{MODULES[library]}")
    return [program for each in module.CATALOGUES if each.library == library for program in each.programs]


def version_of(library: str) -> str:
    """The installed version of a library."""
    return metadata.version(DISTRIBUTIONS.get(library, library))


def capture(library: str, index: Index, limit: int | None, only: list[str]) -> list[str]:
    """Captures what the index does not have of a library; returns the failures, a line each."""
    from benchmarks.corpus.capture import captured

    failures = []
    wanted = [each for each in programs_of(library) if not only or each.id in only]
    for program in wanted[:limit]:
        if index.has(program.id):
            continue
        began = time.monotonic()
        try:
            found = captured(program, index, version_of(library))
        except Exception as error:
            failures.append(
                f"{program.id}: {type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
            )
            print(f"failed {failures[-1]}", flush=True)
            (index.folder / "failures").mkdir(parents=True, exist_ok=True)
            (index.folder / "failures" / f"{program.id}.txt").write_text(traceback.format_exc())
            continue
        (index.folder / "failures" / f"{program.id}.txt").unlink(missing_ok=True)
        seconds = time.monotonic() - began
        print(f"{program.id}: {found['operations']} operations, {found['bytes']:,} bytes, {seconds:.1f} s", flush=True)
    return failures


def listed(library: str) -> list[str]:
    """A line for every program of a library."""
    part = part_of(library)
    return [
        f"{p.id:44} {library:24} {part:6} {p.mode:7} {p.dtype:6} {p.group:13} {p.origin}" for p in programs_of(library)
    ]


def each_by_itself(libraries: list[str], arguments: argparse.Namespace) -> int:
    """Captures every library in a process of its own, since some set global state; returns how many had failures."""
    failed = 0
    for library in libraries:
        command = [sys.executable, "-m", "benchmarks.corpus", "--library", library, "-o", str(arguments.output)]
        command += ["--limit", str(arguments.limit)] if arguments.limit is not None else []
        command += ["--list"] if arguments.list else []
        command += ["--only", *arguments.only] if arguments.only else []
        failed += subprocess.run(command, check=False).returncode != 0
    return failed


def main() -> int:
    """Captures or lists, as the command line says; 1 where something failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=__doc__)
    parser.add_argument("--library", nargs="+", default=["all"], choices=["all", *MODULES], metavar="NAME")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("corpus"), help="a folder, which may hold some already"
    )
    parser.add_argument("--limit", type=int, help="at most so many programs of each library")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="these programs alone")
    parser.add_argument("--list", action="store_true", help="print the programs, capture none")
    arguments = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    libraries = list(MODULES) if "all" in arguments.library else arguments.library
    if len(libraries) > 1:
        return min(1, each_by_itself(libraries, arguments))
    if arguments.list:
        print("\n".join(listed(libraries[0])))
        return 0
    failures = capture(libraries[0], Index(arguments.output), arguments.limit, arguments.only)
    if failures:
        print(f"{libraries[0]}: {len(failures)} failed:", *failures, sep="\n  ")
    return min(1, len(failures))


if __name__ == "__main__":
    sys.exit(main())
