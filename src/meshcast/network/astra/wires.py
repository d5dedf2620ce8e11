"""The two network layers of ASTRA-sim's analytical backends.

Congestion-unaware, a message of B bytes over h hops arrives after

    floor(h * latency + B / bandwidth) ns

whatever else is on its way. Congestion-aware (one dimension), it is stored and forwarded by every device on its route;
a link takes one message at a time, first come first served, is busy for floor(B / bandwidth) ns and delivers after
floor(latency + B / bandwidth) ns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Protocol

from meshcast.base import UnsupportedError
from meshcast.hardware import AstraDimension, AstraNetwork
from meshcast.network.astra.config import AstraBackend
from meshcast.network.astra.events import Action, EventQueue


class Wires(Protocol):
    """The links that carry messages between NPUs."""

    def carry(self, source: int, destination: int, size: int, arrived: Action) -> None:
        """Runs `arrived` when the message is there."""
        ...


class UnawareWires:
    """Every message is alone."""

    __slots__ = ("_delays", "_events", "_network")

    def __init__(self, network: AstraNetwork, events: EventQueue) -> None:
        self._network = network
        self._events = events
        self._delays: dict[tuple[int, int, int], int] = {}

    def carry(self, source: int, destination: int, size: int, arrived: Action) -> None:
        """Runs `arrived` after the delay of the first dimension in which the two differ."""
        key = (source, destination, size)
        delay = self._delays.get(key)
        if delay is None:
            delay = self._delays[key] = self._delay(*key)
        self._events.at(self._events.now + delay, arrived)

    def _delay(self, source: int, destination: int, size: int) -> int:
        dimension, hops = between(self._network, source, destination)
        return int(hops * dimension.latency_ns + size / dimension.bytes_per_ns)


def between(network: AstraNetwork, source: int, destination: int) -> tuple[AstraDimension, int]:
    """The first dimension in which two NPUs differ, which alone counts, and the hops between them there."""
    for dimension in network.dimensions:
        source, at = divmod(source, dimension.npus)
        destination, to = divmod(destination, dimension.npus)
        if at != to:
            return dimension, dimension.hops((to - at) % dimension.npus)
    raise ValueError("a message to oneself")


class PlacedWires:
    """Wires between some NPUs of a network, numbered in the order of `places`."""

    __slots__ = ("_places", "_wires")

    def __init__(self, wires: Wires, places: Sequence[int]) -> None:
        self._wires, self._places = wires, places

    def carry(self, source: int, destination: int, size: int, arrived: Action) -> None:
        """Runs `arrived` when the message is there."""
        self._wires.carry(self._places[source], self._places[destination], size, arrived)


class _Link:
    """One link in one direction."""

    __slots__ = ("_busy", "_bytes_per_ns", "_events", "_latency_ns", "_waiting")

    def __init__(self, dimension: AstraDimension, events: EventQueue) -> None:
        self._bytes_per_ns = dimension.bytes_per_ns
        self._latency_ns = dimension.latency_ns
        self._events = events
        self._busy = False
        self._waiting: deque[tuple[int, Action]] = deque()

    def send(self, size: int, arrived: Action) -> None:
        if self._busy:
            self._waiting.append((size, arrived))
        else:
            self._start(size, arrived)

    def _start(self, size: int, arrived: Action) -> None:
        self._busy = True
        wire = size / self._bytes_per_ns
        now = self._events.now
        self._events.at(now + int(self._latency_ns + wire), arrived)
        self._events.at(now + int(wire), self._free)

    def _free(self) -> None:
        self._busy = False
        if self._waiting:
            self._start(*self._waiting.popleft())


class AwareWires:
    """One dimension of links with queues.

    With `folded` NPU 0 stands for all of them: what it sends to its neighbour comes back to it as what the neighbour on
    the other side sends, and one link stands for all that lie alike.
    """

    __slots__ = ("_dimension", "_events", "_folded", "_links")

    def __init__(self, dimension: AstraDimension, events: EventQueue, *, folded: bool) -> None:
        self._dimension = dimension
        self._events = events
        self._folded = folded
        self._links: dict[Hashable, _Link] = {}

    def carry(self, source: int, destination: int, size: int, arrived: Action) -> None:
        """Sends the message over every link of its route."""
        self._forward(self._route(source, destination), 0, size, arrived)

    def _forward(self, route: list[Hashable], hop: int, size: int, arrived: Action) -> None:
        onward = arrived if hop + 1 == len(route) else lambda: self._forward(route, hop + 1, size, arrived)
        link = self._links.get(route[hop])
        if link is None:
            link = self._links[route[hop]] = _Link(self._dimension, self._events)
        link.send(size, onward)

    def _route(self, source: int, destination: int) -> list[Hashable]:
        npus = self._dimension.npus
        if self._dimension.shape == "FullyConnected":
            return [(source, destination)]
        if self._dimension.shape == "Switch":
            return ["up", "down"] if self._folded else [("up", source), ("down", destination)]
        clockwise = (destination - source) % npus
        step = 1 if clockwise <= npus - clockwise else -1
        hops = min(clockwise, npus - clockwise)
        return [step if self._folded else (step, (source + step * hop) % npus) for hop in range(hops)]


def wires_of(network: AstraNetwork, events: EventQueue, backend: AstraBackend, *, folded: bool) -> Wires:
    """The links that carry messages in a network.

    Raises:
        UnsupportedError: The congestion-aware backend is asked for more than one dimension.
    """
    if backend == "Unaware":
        return UnawareWires(network, events)
    if len(network.dimensions) != 1:
        raise UnsupportedError(
            f"ASTRA-sim's congestion-aware backend has one dimension, the network has {len(network.dimensions)}",
            fix="use the congestion-unaware backend, or --network flow",
        )
    return AwareWires(network.dimensions[0], events, folded=folded)
