"""`python -m tests.documentation.figures`: writes the figures of README.md and docs/ again (`make docs-figures`)."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.documentation.pages import PAGES, ROOT
from tests.documentation.regions import Region, filled, generated_pages, rewritten

NOTHING_PREDICTED = re.compile(r"^(\d+) measured .*, \1 without a prediction", re.MULTILINE)


def main() -> int:
    """The exit code: 0 where everything was written, or with `--check` is current; 1 where something could not be, or is not."""
    parser = argparse.ArgumentParser(prog="python -m tests.documentation.figures", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="PAGE", help="pages such as docs/accuracy.md; all by default")
    parser.add_argument("--quick", action="store_true", help="leave out generated pages and slow regions")
    parser.add_argument("--check", action="store_true", help="write nothing, say what is not current; implies --quick")
    options = parser.parse_args()
    wanted = [page for page in PAGES if not options.only or str(page.relative_to(ROOT)) in options.only]
    quick = options.quick or options.check
    failed = 0
    for page, command in generated_pages().items():  # first: regions quote them
        if page in wanted and not quick:
            failed += _written(page, command)
    for page in wanted:
        text = rewritten(page, lambda region: _made(region, quick=quick))
        if text == page.read_text(encoding="utf-8"):
            continue
        if options.check:
            print(f"{page.relative_to(ROOT)} is not current")
            failed += 1
        else:
            page.write_text(text, encoding="utf-8")
            print(f"{page.relative_to(ROOT)}: written")
    return 1 if failed else 0


def _made(region: Region, *, quick: bool) -> str | None:
    """A region's text as it is made today; None where it is not made now."""
    if region.is_fill:
        return filled(region)
    if region.slow and quick:
        return None
    done = _run(region.command)
    if done.returncode:
        print(f"{region}: left as it is: {done.stderr.strip()}")
        return None
    return region.shown(done.stdout)


def _written(page: Path, command: str) -> int:
    """Writes a whole page; 1 where its command fails, and 0 where what it needs is not here, which is said."""
    words = shlex.split(command)
    missing = [word for word in words if word.startswith("../") and not (ROOT / word).exists()]
    missing += [word for word in words if word.endswith(".npz") and not (ROOT / word).exists()]
    name = page.relative_to(ROOT)
    if missing:
        print(f"{name}: left as it is: no {', '.join(missing)}")
        return 0
    print(f"{name}: {command}", flush=True)
    before = page.read_text(encoding="utf-8")
    done = _run(words)
    if done.returncode == 4:  # an extra that is not installed
        print(f"{name}: left as it is: {done.stderr.strip()}")
        return 0
    if NOTHING_PREDICTED.search(page.read_text(encoding="utf-8")):
        page.write_text(before, encoding="utf-8")
        print(f"{name}: left as it is: nothing was predicted, as where an extra is missing (meshcast doctor)")
        return 0
    if done.returncode:
        print(f"{name}: exit code {done.returncode}: {done.stderr.strip()}")
    return 1 if done.returncode else 0


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """A command of the page, in the checkout; output is not that of a terminal.

    The GPU compiler serves where a page is about it: other pages are the same wherever they are made.
    """
    programs = {"meshcast": [sys.executable, "-m", "meshcast"], "python": [sys.executable]}
    hidden = {} if "compiled" in words else {"MESHCAST_GPU_COMPILER": "none"}
    return subprocess.run(
        [*programs[words[0]], *words[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, **hidden},
    )


if __name__ == "__main__":
    sys.exit(main())
