"""A worker and its pipe: one command at a time, and a new worker after a death."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
COMMANDS_OF_A_WORKER = 2000  # native libraries keep a little of every program: a new one now and then bounds it
# The clock's limit is for workers that wait for a child of theirs or sleep; a busy machine must not reach it.
CLOCK_PER_CPU_SECOND = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How one command ended.

    Attributes:
        code: Its exit code; below zero, the number of the signal that ended the worker.
        out: What it printed.
        err: What it printed to stderr, or what was left there.
        cpu_s: Seconds of CPU, nothing where the worker died.
        waited: Whether the clock's limit ended it.
    """

    code: int
    out: str
    err: str
    cpu_s: float = 0.0
    waited: bool = False


class Worker:
    """The process that commands are run in, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._process: subprocess.Popen[bytes] | None = None
        self._answered = 0

    def ask(self, arguments: Sequence[str], *, cpu_s: float) -> Answer:
        """The end of one command that may take `cpu_s` seconds of CPU."""
        if self._answered >= COMMANDS_OF_A_WORKER:
            self.close()
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        self._answered += 1
        request = json.dumps({"arguments": list(arguments), "cpu_s": cpu_s})
        try:
            process.stdin.write(request.encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._died()
        ready, _, _ = select.select([process.stdout], [], [], cpu_s * CLOCK_PER_CPU_SECOND)
        line = process.stdout.readline() if ready else b""
        if not line:
            return self._died(waited=not ready)
        return Answer(**json.loads(line))

    def close(self) -> None:
        """Ends the worker and what it has started."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self._process, self._answered = None, 0

    def _died(self, *, waited: bool = False) -> Answer:
        assert self._process is not None
        process = self._process
        if waited:
            process.kill()
        code = process.wait()
        self.close()
        err = (self._folder / "err").read_bytes().decode(errors="replace")
        return Answer(code=code, out="", err=err, waited=waited)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            cwd = self._folder / "inputs"
            cwd.mkdir(parents=True, exist_ok=True)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.worker", str(self._folder / "out"), str(self._folder / "err")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=cwd,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "src"))),
                    "XDG_CACHE_HOME": str(self._folder / "cache"),
                    "JAX_PLATFORMS": "cpu",
                },
                start_new_session=True,  # so that its own children can be ended with it
            )
        return self._process
