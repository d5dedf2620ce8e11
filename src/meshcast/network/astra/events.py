"""A queue of events at whole nanoseconds, in ASTRA-sim's order: events of one time run in the order they were made."""

from __future__ import annotations

import heapq
from collections.abc import Callable

Action = Callable[[], None]


class EventQueue:
    """Actions by their time. What is added for the present runs in this round, after what is there already."""

    __slots__ = ("_actions", "_times", "now")

    def __init__(self) -> None:
        self.now = 0
        self._times: list[int] = []
        self._actions: dict[int, list[Action]] = {}

    def at(self, time: int, action: Action) -> None:
        """Runs `action` at a time that is not past."""
        actions = self._actions.get(time)
        if actions is None:
            self._actions[time] = [action]
            heapq.heappush(self._times, time)
        else:
            actions.append(action)

    def run(self) -> None:
        """Runs everything there is and what that adds."""
        while self._times:
            self.now = heapq.heappop(self._times)
            for action in self._actions[self.now]:  # grows while it runs
                action()
            del self._actions[self.now]
