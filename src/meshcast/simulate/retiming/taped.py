"""What a simulation asks of kernels, of a network and of a device, written down on a tape (`simulate.retiming.tape`).

Each answers with the value at the point that is simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshcast.estimate import EstimatedKernels, KernelEstimate
from meshcast.lower import CostKey, Kernel
from meshcast.simulate.contention import Contention, Taken
from meshcast.simulate.network import KernelNetwork
from meshcast.simulate.retiming.tape import Tape


class WrittenKernels:
    """Estimates whose numbers are written down."""

    def __init__(self, tape: Tape, kernels: EstimatedKernels) -> None:
        self._tape, self._by_key = tape, kernels.by_key
        self._known: dict[CostKey, _WrittenEstimate] = {}
        self.gap: Any = tape.argument("gap", kernels.gap)

    def __getitem__(self, kernel: Kernel) -> Any:
        key = kernel.cost_key
        found = self._known.get(key)
        if found is None:
            name = self._tape.named(f"estimates[{self._tape.thing(key)}]")
            found = self._known[key] = _WrittenEstimate(self._tape, name, self._by_key[key])
        return found


class _WrittenEstimate:
    """An estimate that writes down which of its numbers are asked for."""

    def __init__(self, tape: Tape, name: str, estimate: KernelEstimate) -> None:
        self._tape, self._name, self._estimate = tape, name, estimate

    def __getattr__(self, field: str) -> Any:
        value = getattr(self._estimate, field)
        return _asked_of(self._tape, self._name, field, value)


def _asked_of(tape: Tape, name: str, field: str, value: Any) -> Any:
    """A field of what a name stands for, written down."""
    text = f"{name}.{field}"
    if isinstance(value, bool):
        return tape.checked(text, value, (name,))
    return tape.number(text, value, (name,))


class _Alike:
    """Of kernels that cost the same the first one stands for all: it is asked once."""

    def __init__(self) -> None:
        self._known: dict[CostKey, Kernel] = {}

    def first(self, kernel: Kernel) -> Kernel:
        """The first kernel of its cost."""
        return self._known.setdefault(kernel.cost_key, kernel)


class WrittenNetwork:
    """A network that writes down what it is asked."""

    def __init__(self, tape: Tape, network: KernelNetwork) -> None:
        self._tape, self._network = tape, network
        self._alike = _Alike()

    def seconds(self, kernel: Kernel) -> Any:
        """Seconds of a collective."""
        first = self._alike.first(kernel)
        return self._tape.number(
            f"seconds({self._tape.thing(first)})",
            self._network.seconds(first),
        )

    def shares(self, active: Sequence[Kernel]) -> Any:
        """The speeds of several collectives under way at once."""
        alike = [self._alike.first(kernel) for kernel in active]
        listed = ", ".join(map(self._tape.thing, alike))
        name = self._tape.named(f"shares([{listed}])")
        shares = enumerate(self._network.shares(active))
        return [self._share(name, number, share) for number, share in shares]

    def _share(self, name: str, number: int, value: float) -> Any:
        return self._tape.number(f"{name}[{number}]", value, (name,))


class WrittenContention:
    """What collectives take of a device, written down."""

    def __init__(self, tape: Tape, contention: Contention) -> None:
        self._tape, self._contention = tape, contention
        self._alike = _Alike()

    def taken(self, kernel: Kernel, seconds: Any) -> Taken:
        """The shares that a collective takes which lasts so long alone."""
        first = self._alike.first(kernel)
        name = self._tape.named(
            f"taken({self._tape.thing(first)}, {seconds.name})",
            (seconds.name,),
        )
        found = self._contention.taken(first, seconds.value)
        values = {each: getattr(found, each) for each in ("cores", "memory")}
        return Taken(*(_asked_of(self._tape, name, each, value) for each, value in values.items()))
