"""All work in this process, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from meshcast.base import unheard
from meshcast.explore.work import Answer, SearchWork, done


class InProcess:
    """Works are done here, in the order they are given."""

    def answers(self, works: Iterable[SearchWork]) -> Iterator[tuple[int, Answer]]:
        """Each work's number and answer."""
        for number, work in enumerate(works):
            with unheard():  # as in processes of their own: how far one of them is would be told for the whole search
                answer = done(work)
            yield number, answer

    def close(self) -> None:
        """Nothing was started."""
