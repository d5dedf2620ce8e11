"""`AnsweredOnce`: what is worked out once and asked for again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from meshcast.base.errors import MeshcastError

T = TypeVar("T")


class AnsweredOnce:
    """Answers by key, each worked out when it is first asked for; an error of ours is an answer too, and is raised again."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, Any] = {}
        self._errors: dict[Hashable, MeshcastError] = {}

    def answer(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """What `work_out` gave, or gives now, for this key.

        Raises:
            MeshcastError: It had none, now or when it was first asked.
        """
        if key in self._errors:
            raise self._errors[key]
        if key not in self._answers:
            try:
                self._answers[key] = work_out()
            except MeshcastError as error:
                self._errors[key] = error
                raise
        found: T = self._answers[key]
        return found
