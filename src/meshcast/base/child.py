"""Child processes for native code that may abort: a request of one JSON line and bytes, an answer of the same form.

The parent keeps a child for the next request and starts a new one after a crash, a fork or an interrupt. A child is a
module that calls `serve` when it is run. No Python that we start imports from the current folder: it holds the user's
data, and a `json.py` that lies beside it is not ours to run.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from meshcast.base.errors import MeshcastError
from meshcast.base.interruption import at_end
from meshcast.base.parent import end_with_parent

READER_BYTES = 8 * 2**30  # what a child may hold that reads what may be damaged, and ask for any size
LONGEST_LINE = 300  # of what a process says when it dies
_REASON = re.compile(r"Check failed|what\(\): |LLVM ERROR|Assertion .* failed")
_LOG_PREFIX = re.compile(r"^[FEWI]\d{4} [\d:.]+ +\d+ ")  # of absl: a grade, the time and the process
SAFE_PATH = {"PYTHONSAFEPATH": "1"}  # what the flag -P is to those that one starts oneself


class ChildCrashedError(Exception):
    """The child died without an answer, or in the middle of one."""

    def __init__(self, code: int, tail: str) -> None:
        ended = signal.Signals(-code).name if -code in {*signal.Signals} else f"exit {code}"
        super().__init__(f"{ended}: {tail or 'without a message'}")
        self.code = code
        self.tail = tail


class ChildTimedOutError(ChildCrashedError):
    """The child had no answer in time, and was killed."""


class ChildFailedError(Exception):
    """The child answered with an error message.

    Attributes:
        error: The error itself, where it is the user's own outcome.
    """

    def __init__(self, message: str, error: MeshcastError | None = None) -> None:
        super().__init__(message)
        self.error = error


class Child:
    """One child process running a module of ours.

    Args:
        module: The module.
        arguments: What it is started with.
        with_its_own: Whether what the child starts in turn is ended with it, also where it hangs: they are a group of processes,
            which Ctrl-C on the terminal does not reach, but the end of this process does.
    """

    def __init__(self, module: str, *arguments: str, with_its_own: bool = False) -> None:
        self._module = module
        self._arguments = arguments
        self._group = with_its_own
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._owner = 0  # the process that started the child: a forked copy of us must not talk over the same pipe
        self._lock = threading.Lock()
        atexit.register(self.close)
        at_end(self._kill)

    def request(self, header: Mapping[str, Any], data: bytes, *, timeout_s: float = 600.0) -> bytes:
        """The child's answer to one request.

        Raises:
            ChildFailedError: it answered with an error.
            ChildTimedOutError: it had no answer in time and was killed.
            ChildCrashedError: it died.
        """
        late = threading.Event()

        def end(process: subprocess.Popen[bytes]) -> None:
            late.set()
            self._end(process)

        message = json.dumps({**header, "bytes": len(data)}).encode() + b"\n" + data
        with self._lock:
            process = self._running()
            watchdog = threading.Timer(timeout_s, end, (process,))
            watchdog.daemon = True
            watchdog.start()
            try:
                answer, result = _exchange(process, message)
            except (BrokenPipeError, EOFError):
                crash = self._crash()
                raise ChildTimedOutError(crash.code, crash.tail) if late.is_set() else crash from None
            except ValueError:  # no JSON: what follows in the pipe has no meaning
                self._end(process)
                raise self._crash() from None
            except BaseException:  # interrupted half-way: what is still in the pipe belongs to nobody
                self.close()
                raise
            finally:
                watchdog.cancel()
        if not answer["ok"]:
            typed = MeshcastError.from_json(answer) if "error" in answer else None
            raise ChildFailedError(answer["message"], typed)
        return result

    def start(self) -> None:
        """Starts the child ahead of its first request: it loads while we do something else."""
        with self._lock:
            self._running()

    def close(self) -> None:
        """Ends the child, if it is ours."""
        if self._process is None or self._owner != os.getpid():
            return
        if self._process.poll() is None:
            self._end(self._process)
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._process = self._errors = None

    def _kill(self) -> None:
        """Ends the child where a signal ends us: without the locks of `close`, which may be held."""
        if self._process is not None and self._owner == os.getpid():
            self._end(self._process)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._process.pid, 0)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kills the child, and its group where it has one of its own."""
        if self._group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner != os.getpid():
            self._process = self._errors = None
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._owner = os.getpid()
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
            self._process = subprocess.Popen(
                python_command(self._module, *self._arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=child_environment(),
                start_new_session=self._group,
            )
        return self._process

    def _crash(self) -> ChildCrashedError:
        assert self._process is not None
        assert self._errors is not None
        code = self._process.wait()
        self._errors.seek(0)
        words = last_words(self._errors.read().decode(errors="replace"))
        self.close()
        return ChildCrashedError(code, words)


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours in a Python process of its own, which never imports from the current folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment() -> dict[str, str]:
    """Our environment, with this very package importable however the parent found it.

    What a child starts in turn imports nothing from the current folder either. An empty entry of `PYTHONPATH`, as
    `PYTHONPATH=$PYTHONPATH:/more` makes one, would be that folder.
    """
    package_root = str(Path(__file__).resolve().parents[2])
    theirs = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return {**os.environ, **SAFE_PATH, "PYTHONPATH": os.pathsep.join([package_root, *theirs])}


@contextlib.contextmanager
def safe_starts() -> Iterator[None]:
    """Inside, no Python that is started imports from the current folder: for those of a pool, which take no flags."""
    before = {name: os.environ.get(name) for name in SAFE_PATH}
    os.environ.update(SAFE_PATH)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def last_words(printed: str) -> str:
    """Why native code has ended itself: its failed check or exception, which a stack trace follows; else its last lines."""
    lines = [_LOG_PREFIX.sub("", line.strip())[:LONGEST_LINE] for line in printed.splitlines() if line.strip()]
    reasons = [line for line in lines if _REASON.search(line)]
    return reasons[-1] if reasons else " | ".join(lines[-3:])


def _exchange(process: subprocess.Popen[bytes], request: bytes) -> tuple[dict[str, Any], bytes]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(request)
    process.stdin.flush()
    header = process.stdout.readline()
    if not header:
        raise EOFError
    answer = json.loads(header)
    size = answer.get("bytes", 0)
    result = process.stdout.read(size)
    if len(result) < size:
        raise EOFError
    return answer, result


def serve(answer: Callable[[dict[str, Any], bytes], bytes], *, memory_bytes: int | None = None) -> None:
    """The child's side: answers requests from stdin on stdout until the parent closes the pipe, also in the middle of one.

    Only answers may go there: whatever else is printed, by native code on descriptor 1 too, goes to stderr.

    Args:
        answer: What a request and its bytes are answered with.
        memory_bytes: The most that this process may hold; None: all there is.
    """
    if memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    end_with_parent()
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while header := source.readline():
        request = json.loads(header)
        data = source.read(request["bytes"])
        try:
            result = answer(request, data)
        except Exception as error:  # everything native code reports goes back as text
            reply: dict[str, Any] = {"ok": False, "message": str(error)}
            if isinstance(error, MeshcastError):
                reply |= error.to_json()
            result = b""
        else:
            reply = {"ok": True, "bytes": len(result)}
        sink.write(json.dumps(reply).encode() + b"\n" + result)
        sink.flush()
