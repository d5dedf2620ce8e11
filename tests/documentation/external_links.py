"""Links of the docs to other places: `make links` asks for each of them, where there is a network.

    python -m tests.documentation.external_links [--timeout SECONDS] [FILE ...]

Every http and https address of the pages and of the README is asked for once (HEAD, and GET where a server refuses that),
eight at a time. What answers with an error, or not at all, is printed with the pages that name it, and the exit code is 1.
Addresses of this machine are examples, and are left alone.
"""

from __future__ import annotations

import argparse
import re
import sys
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.documentation.pages import PAGES

_ADDRESS = re.compile(r"https?://[^\s<>\"'`)\]}|\\]+")
_EXAMPLES = re.compile(r"https?://(localhost|127\.|0\.0\.0\.0|\[::1\]|[\w.-]*\.?example\b)")
_AGENT = {"user-agent": "Mozilla/5.0 (compatible; meshcast-docs)"}  # some places answer nobody without one


def addresses(files: Iterable[Path]) -> dict[str, list[str]]:
    """Every address, and the names of the files that have it."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in files:
        for address in dict.fromkeys(_ADDRESS.findall(file.read_text(encoding="utf-8"))):
            found[address.rstrip(".,;:").partition("#")[0]].append(file.name)
    return dict(found)


def wrong(address: str, timeout_s: float) -> str:
    """What is wrong with an address; empty where it leads somewhere."""
    said = ""
    for method in ("HEAD", "GET"):
        try:
            with urllib.request.urlopen(
                urllib.request.Request(address, method=method, headers=_AGENT), timeout=timeout_s
            ):
                return ""
        except urllib.error.HTTPError as error:
            said = f"HTTP {error.code}"
        except (OSError, ValueError) as error:
            return str(getattr(error, "reason", error))
    return said


def checked(found: Mapping[str, list[str]], timeout_s: float) -> dict[str, str]:
    """What is wrong with which of them."""
    with ThreadPoolExecutor(8) as threads:
        said = threads.map(lambda address: wrong(address, timeout_s), found)
        return {address: each for address, each in zip(found, said, strict=True) if each}


def main(words: list[str] | None = None) -> int:
    """Asks for all of them, and says which lead nowhere."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timeout", type=float, default=20.0)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    given = parser.parse_args(words)
    found = addresses(given.files or PAGES)
    if not given.files:
        found = {address: pages for address, pages in found.items() if not _EXAMPLES.match(address)}
    lost = checked(found, given.timeout)
    for address, said in lost.items():
        print(f"{address}: {said} ({', '.join(found[address])})")
    print(f"{len(found) - len(lost)} of {len(found)} links lead somewhere")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
