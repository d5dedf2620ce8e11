"""Work in processes of this machine: as many as there are cores, each kept for the next work, started again where one dies."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from meshcast.base import Child, ChildCrashedError, ChildFailedError
from meshcast.explore.engines.lanes import DiedError, Lanes
from meshcast.explore.work import Answer, SearchWork, answers_of, works_text

WORKER = "meshcast.explore.engines.worker"
LONGEST_S = 3600.0  # of what is handed over together: a compiler may take minutes, and then one work goes alone


class Processes:
    """Some child processes."""

    def __init__(self, *, workers: int | None = None) -> None:
        self._children = [Child(WORKER) for _ in range(workers or cores())]
        self._lanes = Lanes(len(self._children), self._do)

    def answers(self, works: Iterable[SearchWork]) -> Iterator[tuple[int, Answer]]:
        """Each work's number and answer, as they come."""
        return self._lanes.answers(works)

    def _do(self, lane: int, works: Sequence[SearchWork]) -> list[Answer]:
        try:
            found = self._children[lane].request({}, works_text(works).encode(), timeout_s=LONGEST_S)
        except (ChildCrashedError, ChildFailedError) as error:
            raise DiedError(str(error)) from None
        return answers_of(found)

    def close(self) -> None:
        """Ends the processes."""
        for child in self._children:
            child.close()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
