"""What is worked out once and asked for again: `AnsweredOnce` by keys, `KeptBeside` by objects, the latest of them.

What is kept of programs is bounded by how many programs a process keeps: some dozens, which is all that a question and its
neighbours have; a worker of a search, which comes back to hundreds, is told to keep more (`keep_programs`).
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, ParamSpec, TypeVar

from meshcast.base.errors import MeshcastError

T = TypeVar("T")
P = ParamSpec("P")
PROGRAMS = (
    64  # that a process keeps unless it is told otherwise: a pipeline has nine, and a sweep goes on with its neighbours
)
_kept = {"programs": PROGRAMS}


def keep_programs(count: int) -> None:
    """Says how many programs this process keeps, with what is known of each."""
    _kept["programs"] = count


def programs_kept() -> int:
    """How many programs this process keeps."""
    return _kept["programs"]


class AnsweredOnce:
    """Answers by key, each worked out when it is first asked for; an error of ours is an answer too, and is raised again."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, Any] = {}
        self._errors: dict[Hashable, MeshcastError] = {}

    @property
    def count(self) -> int:
        """How many have been answered."""
        return len(self._answers)

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

    Of more than `most` answers the one that was asked for longest ago is forgotten; where nobody says how many, there are
    `of_program` for each program that the process keeps.
    """

    def __init__(self, most: int | None = None, *, of_program: int = 1) -> None:
        self._most, self._of_program = most, of_program
        self._known: OrderedDict[tuple[int, Hashable], tuple[object, T]] = OrderedDict()

    def of(self, known: object, key: Hashable, work_out: Callable[[], T]) -> T:
        """What `work_out` gave, or gives now, for this very object and key."""
        place = id(known), key
        found = self._known.pop(place, None)
        if found is None:
            found = known, work_out()
        self._known[place] = found
        while len(self._known) > (self._of_program * programs_kept() if self._most is None else self._most):
            self._known.popitem(last=False)
        return found[1]

    def clear(self) -> None:
        """Forgets everything."""
        self._known.clear()


def kept_for_programs(function: Callable[P, T]) -> Callable[P, T]:
    """A function whose latest answers are kept by its arguments, as many as the process keeps programs."""
    known: OrderedDict[Hashable, T] = OrderedDict()

    @functools.wraps(function)
    def answer(*args: P.args, **kwargs: P.kwargs) -> T:
        key = args, tuple(kwargs.items())
        if key in known:
            known.move_to_end(key)
            return known[key]
        found = known[key] = function(*args, **kwargs)
        while len(known) > programs_kept():
            known.popitem(last=False)
        return found

    return answer
