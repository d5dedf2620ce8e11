"""The command line, run in this process: what it says, how it ends, and which files it writes.

Questions are words of the command line alone, and nothing of meshcast is imported but the entry point of its command, so that
modules may move while answers are compared.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import traceback
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).parents[2]
# What questions call the folders that they read from; a folder that moves is renamed here, and questions stay as they are.
FOLDERS = {
    "inputs": "tests/golden/inputs",
    "fixtures": "tests/fixtures",
    "seeds": "tests/fuzz/seeds",
    "examples": "examples",
    "measured": "data/measured",
}
OUT = "out"  # what questions call the folder that they write to: an empty one for each
TRACEBACK = 1  # exit code of a bug
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Files whose bytes are the same wherever the repository lies. Programs that are captured hold the places of their source.
_PLACELESS = (".mlir", ".hlo", ".et", ".mlir.gz", ".hlo.gz")
_TOOK = re.compile(r"(meshcast \S+) in [\d.]+ \w+$")  # the last line of tables
_VERSION = re.compile(r"\bmeshcast \d+\.\d+\.\d+\b")  # there, and of `--version`
SOURCE = "SOURCE"  # stands for a place in our source
_SOURCE = re.compile(r"[^\s\"'(]*/meshcast/[\w/]+\.py(:\d+)*")
_HASH = re.compile(r"\b[0-9a-f]{64}\b")  # in a name: of everything that made the file, our code too


class Bench:
    """A folder to run commands in, with links to the folders of the repository that questions read from."""

    def __init__(self, main: Callable[[], object]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="meshcast-golden-")).resolve()
        self.main = main
        self._before = {name: os.environ.get(name) for name in os.environ if _matters(name)}
        for name in self._before:
            del os.environ[name]
        os.environ["XDG_CACHE_HOME"] = str(self.folder / "cache")
        os.environ["MESHCAST_GPU_COMPILER"] = "none"  # `auto` would ask it where it is installed
        for name, place in FOLDERS.items():
            (self.folder / name).symlink_to(ROOT / place)

    def close(self) -> None:
        """Takes the folder away, and gives the environment back."""
        for name in ("XDG_CACHE_HOME", "MESHCAST_GPU_COMPILER"):
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in self._before.items() if value is not None})
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, question: str) -> list[dict[str, Any]]:
        """The answers to the commands of a question, which are run one after the other in the same folder.

        An answer has `exit`, `lines` (JSON where it is some, else text), and `files` written with their digests.
        """
        shutil.rmtree(self.folder / OUT, ignore_errors=True)
        (self.folder / OUT).mkdir()
        answers = []
        for command in question.split(" && "):
            words = shlex.split(command)
            code, out = self._run(words)
            lines = [self._read(line, words) for line in out.splitlines()]
            answers.append({"exit": code, "lines": lines, "files": self._files()})
        return answers

    def _run(self, words: list[str]) -> tuple[int, str]:
        code: object = 0
        with _left_alone(), _captured() as out, contextlib.chdir(self.folder):
            sys.argv = ["meshcast", *words]
            try:
                self.main()
            except SystemExit as leaving:
                code = leaving.code
            except Exception:
                code = TRACEBACK
                print(traceback.format_exc().splitlines()[-1])
            sys.stdout.flush()
            out.seek(0)
            said = out.read()
        return code if isinstance(code, int) else 0 if code is None else TRACEBACK, said

    def _read(self, line: str, words: list[str]) -> Any:
        line = self._placeless(line)
        try:
            value = json.loads(line)
        except ValueError:
            return line
        return timeless(value, hashed=any(word.endswith(_PLACELESS) for word in words)) if value else line

    def _placeless(self, text: str) -> str:
        """A text without the places of this run and of our source, our version, and the time that it took."""
        text = _TOOK.sub(r"\1", text.replace(str(self.folder), "FOLDER").replace(str(ROOT), "ROOT"))
        return _VERSION.sub("meshcast VERSION", _SOURCE.sub(SOURCE, text))

    def _files(self) -> dict[str, list[str]]:
        """The files written, with their digests; those that are named after a hash are one."""
        found: dict[str, list[str]] = {}
        for path in sorted(path for path in (self.folder / OUT).rglob("*") if path.is_file()):
            name = _HASH.sub("HASH", str(path.relative_to(self.folder)))
            found[name] = sorted([*found.get(name, ()), self._digest(path)])
        return found

    def _digest(self, path: Path) -> str:
        """Of a file's content, unpacked: what packs it may write the time, or pack otherwise."""
        content = path.read_bytes()
        if path.suffix == ".gz":
            with contextlib.suppress(OSError, EOFError, zlib.error):
                content = gzip.decompress(content)
        if path.suffix in (".json", ".jsonl"):
            with contextlib.suppress(ValueError):
                whole = json.loads(self._placeless(content.decode()))
                content = json.dumps(timeless(whole, hashed=False)).encode()
        return hashlib.sha256(content).hexdigest()


def _matters(name: str) -> bool:
    """Whether a variable of the environment may change what the command says."""
    return name.startswith(("MESHCAST_", "XDG_CACHE_HOME", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"))


def timeless(value: Any, *, hashed: bool) -> Any:
    """A JSON value without our version and the seconds that answering took; unless `hashed` without digests of captured programs.

    Nor has it places in our source: JAX keeps what it has traced, with the place that asked for it first, so that they depend
    on what the process was asked before.
    """
    if isinstance(value, list):
        return [timeless(one, hashed=hashed) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {key: timeless(one, hashed=hashed) for key, one in value.items()}
    if isinstance(tool := kept.get("tool"), dict):
        tool.pop("seconds", None)
        tool.pop("version", None)
    if kept.get("source") in (None, SOURCE):
        kept.pop("source", None)
    if not hashed:
        for program in (kept, kept.get("target")):
            if isinstance(program, dict):
                program.pop("sha256", None)
    return kept


@contextlib.contextmanager
def _left_alone() -> Iterator[None]:
    """Gives back what a command changes for the whole of its process: streams, words, signals and hooks."""
    streams = sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__
    words, hook = sys.argv, sys.unraisablehook
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams[:2]
        sys.__stdout__, sys.__stderr__ = streams[2:]  # type: ignore[misc]
        sys.argv, sys.unraisablehook = words, hook
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _captured() -> Iterator[TextIO]:
    """Files in place of the standard output, which is yielded, and of the standard error, which nobody reads."""
    with tempfile.TemporaryFile("w+b") as out, Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        text = io.TextIOWrapper(out, encoding="utf-8", newline="")
        sys.stdout = sys.__stdout__ = text  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = nowhere  # type: ignore[misc]
        yield text
        text.detach()
