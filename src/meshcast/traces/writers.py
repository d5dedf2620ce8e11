"""Many files written by some threads, which an interrupt stops after the file that each of them is at."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from meshcast.base import held, taken_away

STOPPING_S = 0.001  # between looks at whether all have stopped
WRITERS = 4  # threads: they wait for the disk most of the time
File = tuple[Path, Callable[[], npt.NDArray[np.uint8]]]  # where it goes, and what makes its content


def write_all(files: Iterable[File]) -> None:
    """Writes every file; the first failure of any, or an interrupt, ends it.

    Raises:
        OSError: One cannot be written.
    """
    work = _Work(iter(files))
    threads = [threading.Thread(target=work.run, daemon=True) for _ in range(min(WRITERS, os.cpu_count() or 1))]

    def nobody_writes() -> None:  # any more: the folder can be taken away
        work.stopped = True
        while work.writing:  # not joined: a signal may come in the middle of that, with its lock held
            time.sleep(STOPPING_S)

    with taken_away(nobody_writes):
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            with held():
                nobody_writes()
    if work.failed:
        raise work.failed[0]


class _Work:
    """Files that are handed out to threads, one by one."""

    def __init__(self, files: Iterator[File]) -> None:
        self.stopped = False
        self.writing = 0  # threads
        self.failed: list[BaseException] = []
        self._files = files
        self._lock = threading.Lock()

    def run(self) -> None:
        """The loop of a writing thread."""
        with self._lock:
            self.writing += 1
        try:
            while (file := self._next()) is not None:
                path, made = file
                with path.open("wb", buffering=0) as out:
                    _write_whole(out.fileno(), made().data)
        except BaseException as error:  # raised again by the thread that waits
            self.failed.append(error)
            self.stopped = True
        finally:
            with self._lock:
                self.writing -= 1

    def _next(self) -> File | None:
        with self._lock:
            return None if self.stopped else next(self._files, None)


def _write_whole(descriptor: int, content: memoryview) -> None:
    """Writes all of it: a system may take less at once, of large files and where little room is left."""
    while content:
        content = content[os.write(descriptor, content) :]
