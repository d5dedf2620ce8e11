"""The process that commands are run in, one after the other: what native code or a loop without end kills is this process alone.

It reads one JSON line a command and answers with one: exit code, output, errors and seconds of CPU. Past its limit of CPU time
the system kills it with SIGPROF, and the stack that it was in is left in its errors.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

from meshcast.base.errors import MeshcastError
from meshcast.cli.app import run

CALL = "call"  # a first argument that no verb has: MODULE:FUNCTION of a file's path, for files that no verb takes alone
MEMORY_BYTES = 12 << 30  # of addresses: what asks for more gets a MemoryError, and is a finding
MOST_OUTPUT = 4 << 20


def answer(arguments: list[str]) -> int:
    """The exit code of one command."""
    if arguments[0] == CALL:
        return _call(arguments[1], Path(arguments[2]))
    sys.argv = ["meshcast", *arguments]
    try:
        run()
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    return 0


def _call(name: str, path: Path) -> int:
    module, function = name.split(":")
    try:
        getattr(importlib.import_module(module), function)(path)
    except MeshcastError as error:
        print(json.dumps(error.to_json()))
        return error.exit_code
    print("{}")
    return 0


def _run(request: dict[str, Any]) -> int:
    signal.setitimer(signal.ITIMER_PROF, request["cpu_s"])
    try:
        return answer(request["arguments"])
    except MemoryError:
        print("MemoryError: more memory than the limit", file=sys.stderr)
        return 1
    except Exception:
        import traceback

        traceback.print_exc()
        return 1
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        sys.stdout.flush()
        sys.stderr.flush()


def beginning(said: bytes, most: int = MOST_OUTPUT) -> bytes:
    """All of it, or of what is longer than `most` bytes the lines that are whole."""
    return said if len(said) <= most else said[: said.rfind(b"\n", 0, most) + 1]


def main(out: str, err: str) -> None:
    """Answers until stdin ends; what commands print goes to the files `out` and `err`."""
    source, sink = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND), number)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    faulthandler.enable(sys.stderr)
    faulthandler.register(signal.SIGPROF, file=sys.stderr, chain=True)  # the stack, then death
    for line in source:
        request = json.loads(line)
        os.ftruncate(1, 0)
        os.ftruncate(2, 0)
        started = time.process_time()
        code = _run(request)
        said: dict[str, object] = {"code": code, "cpu_s": time.process_time() - started}
        for name, path in (("out", out), ("err", err)):
            said[name] = beginning(Path(path).read_bytes()).decode(errors="replace")
        sink.write(json.dumps(said) + "\n")
        sink.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
