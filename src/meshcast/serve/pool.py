"""Workers for questions: some processes, a line of bounded length before them, and answers kept for whoever asks the same again.

A worker that dies, or takes longer than it may, is ended with all that it has started, and another one takes its place with the
next question; the server goes on. Equal questions are one: whoever asks what is being worked on gets that answer.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from meshcast.base import Child, ChildCrashedError, ChildFailedError, ChildTimedOutError
from meshcast.serve.limits import ServeLimits

WORKER = "meshcast.serve.worker"
WARMING = 2  # steps: what is imported, then a small prediction
UNPROCESSABLE, BROKEN = 422, 500
_ALONE = "the command line works on it in a process of its own: meshcast predict FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAnswer:
    """What a request is answered with.

    Attributes:
        status: Of HTTP.
        body: As it is sent.
        media_type: What that is.
        lasting: Whether the same question has the same answer: not where a worker has died or was too slow.
    """

    status: int
    body: bytes
    media_type: str = "application/json"
    lasting: bool = True


class BusyError(Exception):
    """More questions wait than may."""


@dataclass(slots=True, kw_only=True)
class QuestionJob:
    """A question that is worked on, or waits.

    Attributes:
        number: What it is asked after by.
        key: What it asks.
        progress: Where the worker says how far it is.
        asked_at: When it was asked.
        state: Whether a worker has it.
        wanted: Requests that have asked it and not let go of it.
        future: Its answer.
    """

    number: str
    key: str
    progress: Path
    asked_at: float = field(default_factory=time.monotonic)
    state: Literal["waiting", "running"] = "waiting"
    wanted: int = 1
    future: Future[PageAnswer]

    def said(self) -> str:
        """How far the worker says it is."""
        with contextlib.suppress(OSError):
            return self.progress.read_text(encoding="utf-8")[:200]
        return ""


class WorkerPool:
    """Some workers.

    Args:
        folder: Where workers leave word of how far they are; it belongs to the pool.
        workers: How many.
        limits: Of the server.
        module: What they run.
    """

    def __init__(self, folder: Path, *, workers: int, limits: ServeLimits, module: str = WORKER) -> None:
        self._folder = folder
        self._limits = limits
        self._count = workers
        self._all = [Child(module, str(limits.memory_bytes), str(folder), with_its_own=True) for _ in range(workers)]
        self._idle = list(self._all)  # from the end: the last one used has most in its caches
        self._cold = dict.fromkeys(self._all, 0)  # steps of warming up that each has behind it, until it has all
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="page-worker")  # as many: one is idle for each
        self._lock = threading.Lock()
        self._answers: OrderedDict[str, PageAnswer] = OrderedDict()
        self._held_bytes = 0
        self._by_key: dict[str, QuestionJob] = {}
        self._by_number: OrderedDict[str, QuestionJob] = OrderedDict()

    def kept(self, key: str) -> PageAnswer | None:
        """The answer to a question that was asked before, while it is held."""
        with self._lock:
            if key in self._answers:
                self._answers.move_to_end(key)
            return self._answers.get(key)

    def ask(self, key: str, question: Mapping[str, Any], data: bytes = b"") -> QuestionJob:
        """Has a question worked on; one that is worked on already is not asked twice.

        Raises:
            BusyError: Too many wait.
        """
        with self._lock:
            if key in self._by_key:
                self._by_key[key].wanted += 1
                return self._by_key[key]
            if len(self._by_key) >= self._count + self._limits.waiting:
                raise BusyError
            number = uuid.uuid4().hex
            job = QuestionJob(number=number, key=key, progress=self._folder / number, future=Future())
            self._by_key[key] = self._by_number[number] = job
            while len(self._by_number) > self._limits.answers:
                self._by_number.popitem(last=False)
        self._threads.submit(self._work, job, {**question, "progress": str(job.progress)}, data)
        return job

    def job(self, number: str) -> QuestionJob | None:
        """The job of a number, while it is known."""
        with self._lock:
            return self._by_number.get(number)

    def drop(self, job: QuestionJob) -> None:
        """Lets go of a question that nobody else waits for; one that is worked on is finished, for whoever asks again."""
        with self._lock:
            job.wanted -= 1
            if job.wanted <= 0 and job.future.cancel():
                self._by_key.pop(job.key, None)

    def start(self) -> None:
        """Has the workers load what answers need ahead of their first questions, which go between the steps of that."""
        for child in reversed(self._all):
            self._threads.submit(self._warm, child)

    def close(self) -> None:
        """Ends the workers."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for child in self._all:
            child.close()

    def _work(self, job: QuestionJob, question: Mapping[str, Any], data: bytes) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        job.state = "running"
        with self._lock:
            child = self._idle.pop()
        try:
            answer = self._asked(child, question, data)
        except BaseException as error:  # nobody may wait for ever
            answer = _problem(BROKEN, "bug", f"{type(error).__name__}: {error}", lasting=False)
        finally:
            self._put_back(child)
            job.progress.unlink(missing_ok=True)
        with self._lock:
            self._by_key.pop(job.key, None)
            if answer.lasting:
                self._keep(job.key, answer)
        job.future.set_result(answer)

    def _warm(self, child: Child) -> None:
        """One step of warming a worker up. One that has a question loads the same for that; the next step follows it."""
        with self._lock:
            if child not in self._idle:
                return
            self._idle.remove(child)
        try:
            child.request({"kind": "warm", "step": self._cold[child]}, b"", timeout_s=self._limits.answer_s)
            self._cold[child] += 1
            if self._cold[child] == WARMING:
                del self._cold[child]
        except (ChildCrashedError, ChildFailedError):  # the first question will say why
            self._cold.pop(child, None)
        finally:
            self._put_back(child)

    def _put_back(self, child: Child) -> None:
        with self._lock:
            self._idle.append(child)
        if child in self._cold:
            with contextlib.suppress(RuntimeError):  # the pool has been closed
                self._threads.submit(self._warm, child)

    def _asked(self, child: Child, question: Mapping[str, Any], data: bytes) -> PageAnswer:
        """What a worker says, or what is said of one that died."""
        given = bool(data)
        try:
            found = child.request(question, data, timeout_s=self._limits.answer_s)
        except ChildTimedOutError:
            said = f"took longer than {self._limits.answer_s:g} s, and was ended"
            return _problem(UNPROCESSABLE, "time-limit", said, fix="the command line has no limit", lasting=False)
        except ChildCrashedError as error:
            self._cold[child] = 0
            said = f"the process that worked on it has died: {error}"
            return _problem(UNPROCESSABLE if given else BROKEN, "worker-died", said, fix=_ALONE, lasting=False)
        except ChildFailedError as error:
            return _problem(UNPROCESSABLE if given else BROKEN, "bug", str(error), fix=_ALONE, lasting=False)
        line, _, body = found.partition(b"\n")
        how = json.loads(line)
        if how.get("resident", 0) > self._limits.worker_bytes:
            # Its caches count programs, not bytes: a new one starts empty, and loads ahead of its next question.
            child.close()
            self._cold[child] = 0
        if how["ok"]:
            return PageAnswer(status=200, body=body, media_type=how["type"])
        # What an upload makes of us is the upload's fault to whoever sent it; it is never an error of the server.
        bug = how.get("bug", False)
        lasting = how.get("lasting", True) and not bug
        return PageAnswer(status=BROKEN if bug and not given else UNPROCESSABLE, body=body, lasting=lasting)

    def _keep(self, key: str, answer: PageAnswer) -> None:
        self._answers[key] = answer
        self._held_bytes += len(answer.body)
        while len(self._answers) > self._limits.answers or self._held_bytes > self._limits.answers_bytes:
            _, gone = self._answers.popitem(last=False)
            self._held_bytes -= len(gone.body)


def _problem(status: int, code: str, message: str, *, fix: str | None = None, lasting: bool = True) -> PageAnswer:
    return PageAnswer(status=status, body=error_body(code, message, fix=fix), lasting=lasting)


def error_body(code: str, message: str, *, where: str | None = None, fix: str | None = None) -> bytes:
    """The tool's own error object."""
    return json.dumps({"error": {"code": code, "message": message, "where": where, "fix": fix}}).encode()
