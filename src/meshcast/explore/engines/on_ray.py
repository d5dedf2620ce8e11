"""Work on a Ray cluster: actors on as many machines as there are, each a worker that keeps what it has traced and lowered.

A cluster is joined by its address, or one of this machine alone is started. An actor that dies, or whose machine goes, is made
again wherever there is room, and what it was doing is given out again (`lanes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from meshcast.base import UnsupportedError, UsageError, how_to_install
from meshcast.explore.engines.lanes import DiedError, Lanes
from meshcast.explore.engines.ray_address import FIX, FLAG, cluster_address
from meshcast.explore.work import Answer, SearchWork, Worker, answers_of, works_text


class OnRay:
    """Some actors of a Ray cluster."""

    def __init__(self, *, workers: int | None = None, address: str | None = None) -> None:
        self._ray = _ray()
        self._started = not self._ray.is_initialized()
        if self._started:
            joined = cluster_address(address)
            try:
                self._ray.init(address=joined, include_dashboard=False, log_to_driver=False, logging_level="error")
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise UsageError(f"no Ray cluster at {joined}: {_why(error)}", where=FLAG, fix=FIX) from None
        count = workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._actor = self._ray.remote(num_cpus=1, max_restarts=0)(Worker)
        self._actors: list[Any] = [None] * count
        self._died = [False] * count
        self._lanes = Lanes(count, self._do)

    def answers(self, works: Iterable[SearchWork]) -> Iterator[tuple[int, Answer]]:
        """Each work's number and answer, as they come."""
        return self._lanes.answers(works)

    def _do(self, lane: int, works: Sequence[SearchWork]) -> list[Answer]:
        if self._actors[lane] is None:
            # Where a machine has gone there may be no core left for a new actor: it shares those of others, and does not wait.
            actor = self._actor.options(num_cpus=0) if self._died[lane] else self._actor
            self._actors[lane] = actor.remote()
        try:
            found = self._ray.get(self._actors[lane].answer.remote(works_text(works)))
        except self._ray.exceptions.RayError as error:  # the actor, its machine, or what it stored has gone
            self._actors[lane], self._died[lane] = None, True
            raise DiedError(str(error).splitlines()[0]) from None
        return answers_of(found)

    def close(self) -> None:
        """Ends the actors, and the cluster's connection if it was made here."""
        for actor in self._actors:
            if actor is not None:
                self._ray.kill(actor)
        self._actors = [None] * len(self._actors)
        if self._started:
            self._ray.shutdown()


def _why(error: Exception) -> str:
    """What Ray was told by the cluster, such as that a token is missing: the last line that is no place in a traceback."""
    lines = [line for line in str(error.__cause__ or error).splitlines() if line.strip() and not line.startswith(" ")]
    return lines[-1] if lines else str(error)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UnsupportedError("Ray is not installed", where="--engine ray", fix=how_to_install("ray")) from None
    return ray
