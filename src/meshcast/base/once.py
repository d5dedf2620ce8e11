"""What is worked out once and asked for again: `AnsweredOnce` by keys, `KeptBeside` by objects, the latest of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

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


class KeptBeside(Generic[T]):
    """What is known of objects, by their identity: an object is held with what is known of it, so that no other has its identity.

    Of more than `most` answers the one that was asked for longest ago is forgotten.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[tuple[int, Hashable], tuple[object, T]] = OrderedDict()

    def of(self, known: object, key: Hashable, work_out: Callable[[], T]) -> T:
        """What `work_out` gave, or gives now, for this very object and key."""
        place = id(known), key
        found = self._known.pop(place, None)
        if found is None:
            found = known, work_out()
        self._known[place] = found
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return found[1]

    def clear(self) -> None:
        """Forgets everything."""
        self._known.clear()
