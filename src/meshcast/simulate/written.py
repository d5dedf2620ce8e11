"""What a simulation asks of kernels, of a network and of a device, written down on a tape (`simulate.tape`).

Each answers with the value at the point, or at that one of several points, that is simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshcast.base import at_place
from meshcast.estimate import EstimatedKernels, KernelAtPoints, KernelColumns, KernelEstimate, KernelsByPoint
from meshcast.lower import CostKey, Kernel
from meshcast.simulate.contention import Contention, Taken
from meshcast.simulate.network import KernelNetwork
from meshcast.simulate.tape import Tape

Kernels = EstimatedKernels | KernelColumns | KernelsByPoint


def _value(number: Any, place: int) -> Any:
    """A number's value at a point."""
    if isinstance(number, np.ndarray) and number.ndim:
        return number[place].item()
    if isinstance(number, np.ndarray | np.generic):
        return number.item()
    return at_place(number, place)


class WrittenKernels:
    """Estimates whose numbers are written down."""

    def __init__(self, tape: Tape, kernels: Kernels, place: int = 0) -> None:
        self._tape, self._by_key, self._place = tape, kernels.by_key, place
        self._known: dict[CostKey, _WrittenEstimate] = {}
        self.gap: Any = tape.argument("gap", _value(kernels.gap, place))

    def __getitem__(self, kernel: Kernel) -> Any:
        key = kernel.cost_key
        found = self._known.get(key)
        if found is None:
            name = self._tape.named(f"estimates[{self._tape.thing(key)}]", lambda given, _: given["estimates"][key])
            found = self._known[key] = _WrittenEstimate(self._tape, name, self._by_key[key], self._place)
        return found


class _WrittenEstimate:
    """An estimate that writes down which of its numbers are asked for."""

    def __init__(self, tape: Tape, name: str, estimate: KernelEstimate | KernelAtPoints, place: int) -> None:
        self._tape, self._name, self._estimate, self._place = tape, name, estimate, place

    def __getattr__(self, field: str) -> Any:
        value = _value(getattr(self._estimate, field), self._place)
        return _asked_of(self._tape, self._name, field, value)


def _asked_of(tape: Tape, name: str, field: str, value: Any) -> Any:
    """A field of what a name stands for, written down."""
    text = f"{name}.{field}"
    if isinstance(value, bool):
        return tape.checked(text, value, lambda _, used: getattr(used[0], field), (name,))
    return tape.number(text, value, lambda _, used: getattr(used[0], field), (name,))


class _Alike:
    """Of kernels that cost the same the first one stands for all: it is asked once."""

    def __init__(self) -> None:
        self._known: dict[CostKey, Kernel] = {}

    def first(self, kernel: Kernel) -> Kernel:
        """The first kernel of its cost."""
        return self._known.setdefault(kernel.cost_key, kernel)


class WrittenNetwork:
    """A network that writes down what it is asked."""

    def __init__(self, tape: Tape, network: KernelNetwork, place: int = 0) -> None:
        self._tape, self._network, self._place = tape, network, place
        self._alike = _Alike()

    def seconds(self, kernel: Kernel) -> Any:
        """Seconds of a collective."""
        first = self._alike.first(kernel)
        return self._tape.number(
            f"seconds({self._tape.thing(first)})",
            _value(self._network.seconds(first), self._place),
            lambda given, _: given["seconds"](first),
        )

    def shares(self, active: Sequence[Kernel]) -> Any:
        """The speeds of several collectives under way at once."""
        alike = [self._alike.first(kernel) for kernel in active]
        listed = ", ".join(map(self._tape.thing, alike))
        name = self._tape.named(f"shares([{listed}])", lambda given, _: given["shares"](alike))
        shares = enumerate(self._network.shares(active))
        return [self._share(name, number, _value(share, self._place)) for number, share in shares]

    def _share(self, name: str, number: int, value: float) -> Any:
        return self._tape.number(f"{name}[{number}]", value, lambda _, used: used[0][number], (name,))


class WrittenContention:
    """What collectives take of a device, written down."""

    def __init__(self, tape: Tape, contention: Contention, place: int = 0) -> None:
        self._tape, self._contention, self._place = tape, contention, place
        self._alike = _Alike()

    def taken(self, kernel: Kernel, seconds: Any) -> Taken:
        """The shares that a collective takes which lasts so long alone."""
        first = self._alike.first(kernel)
        name = self._tape.named(
            f"taken({self._tape.thing(first)}, {seconds.name})",
            lambda given, used: given["taken"](first, used[0]),
            (seconds.name,),
        )
        found = self._contention.taken(first, seconds.value)
        values = {each: _value(getattr(found, each), self._place) for each in ("cores", "memory")}
        return Taken(*(_asked_of(self._tape, name, each, value) for each, value in values.items()))
