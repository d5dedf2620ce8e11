"""Who does the work of a search: this process, some on this machine, or those of a Ray cluster. All give the same answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from meshcast.base import UsageError, nearest
from meshcast.explore.work import Answer, SearchWork


class Engine(Protocol):
    """Does works, in whatever order."""

    def answers(self, works: Iterable[SearchWork]) -> Iterator[tuple[int, Answer]]:
        """The number of each work and its answer, as they come; each work once."""
        ...

    def close(self) -> None:
        """Ends whatever was started."""
        ...


ENGINES = ("processes", "in-process", "ray")


def engine_named(name: str, *, workers: int | None = None, address: str | None = None) -> Engine:
    """The engine of a name.

    Args:
        name: One of `ENGINES`.
        workers: Processes, or Ray actors; None: as many as there are cores.
        address: Of a Ray cluster; None: one is started on this machine.

    Raises:
        UsageError: There is none of that name, no cluster at that address, or an address of an engine that joins none.
        UnsupportedError: Ray is not installed.
    """
    if name not in ENGINES:
        raise UsageError(f"no engine {name!r}", where="--engine", fix=nearest(name, ENGINES))
    if address is not None and name != "ray":
        raise UsageError(
            f"the engine {name} joins no cluster at {address}", where="--address", fix="--engine ray, or leave it out"
        )
    if name == "in-process" or (name == "processes" and workers == 1):
        from meshcast.explore.engines.in_process import InProcess

        return InProcess()
    if name == "ray":
        from meshcast.explore.engines.on_ray import OnRay

        return OnRay(workers=workers, address=address)
    from meshcast.explore.engines.processes import Processes

    return Processes(workers=workers)
