"""All work in this process, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from meshcast.explore.work import Answer, SearchWork, done


class InProcess:
    """Works are done here, in the order they are given."""

    def answers(self, works: Iterable[SearchWork]) -> Iterator[tuple[int, Answer]]:
        """Each work's number and answer."""
        for number, work in enumerate(works):
            yield number, done(work)

    def close(self) -> None:
        """Nothing was started."""
