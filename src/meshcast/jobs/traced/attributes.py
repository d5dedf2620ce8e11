"""Attributes of a node, checked: what is missing, of another type or out of all proportion is said with node and byte."""

from __future__ import annotations

import math
from dataclasses import dataclass

from meshcast.base import InputError, format_bytes
from meshcast.chakra import ChakraTrace, Node, named_node

NANOSECOND, MICROSECOND = 1e-9, 1e-6
# Beyond these a number is a mistake (a sign, a unit, bytes read as another type) and no work of one launch on one device.
MOST_BYTES = 1 << 50
LONGEST_S = 30 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of one node of a trace."""

    trace: ChakraTrace
    index: int

    @property
    def node(self) -> Node:
        """The node."""
        return self.trace.nodes[self.index]

    def error(self, what: str, fix: str) -> InputError:
        """A complaint about the node."""
        return InputError(f"{named_node(self.trace, self.index)}: {what}", where=self.trace.where, fix=fix)

    def whole(self, name: str, default: int | None = None, *, least: int = 0) -> int:
        """A whole number of at least `least`; where there is no default, the node must have it.

        Raises:
            InputError: It is not there, or something else.
        """
        found = self.node.attributes.get(name, default)
        if found is None:
            raise self.error(
                f"has no attribute {name!r}, which a node of its type needs", "export it again, or add the attribute"
            )
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        if not isinstance(found, int) or isinstance(found, bool) or found < least:
            raise self.error(
                f"{name} is {found!r}, not a whole number of at least {least}", f"write a number from {least} on"
            )
        return found

    def size(self, name: str, default: int | None, repeat: int) -> int:
        """Bytes of all launches that a node stands for.

        Raises:
            InputError: They are missing, none, or more than a launch could move.
        """
        found = self.whole(name, default)
        if found > MOST_BYTES * repeat:
            raise self.error(
                f"{name} is {found} bytes, {format_bytes(found // repeat)} a launch, and more than "
                f"{format_bytes(MOST_BYTES)} no device holds", f"write {name} in bytes",
            )  # fmt: skip
        return found

    def seconds(self) -> float | None:
        """The node's duration in seconds, as exactly as the file has it; None where it has none.

        Raises:
            InputError: That is no time.
        """
        if "duration_ns" in self.node.attributes:
            return self.nanoseconds("duration_ns")
        micros = self.node.duration_us
        return self._in_bounds("duration_micros", micros, micros * MICROSECOND) if micros else None

    def nanoseconds(self, name: str) -> float | None:
        """The seconds of an attribute in nanoseconds; None where it is not there.

        Raises:
            InputError: That is no time.
        """
        exact = self.node.attributes.get(name)
        if exact is None:
            return None
        if not isinstance(exact, (int, float)) or isinstance(exact, bool) or not math.isfinite(exact) or exact < 0:
            raise self.error(f"{name} is {exact!r}, which is no duration", "write nanoseconds, 0 or more")
        return self._in_bounds(name, exact, exact * NANOSECOND)

    def _in_bounds(self, name: str, said: float, seconds: float) -> float:
        if seconds > LONGEST_S:
            raise self.error(
                f"{name} is {said!r}, which is {seconds / 86400:,.0f} days and more than the {LONGEST_S / 86400:.0f} that a "
                "node may take", f"check the unit of {name}",
            )  # fmt: skip
        return seconds

    def flag(self, name: str) -> bool:
        """Whether something holds; it does not where nothing is said.

        Raises:
            InputError: It is neither true nor false.
        """
        found = self.node.attributes.get(name, False)
        if found not in (True, False) or isinstance(found, float):
            raise self.error(f"{name} is {found!r}, neither true nor false", f"write {name} as a bool")
        return bool(found)

    def lane(self, name: str, default: int) -> int:
        """The number of a stream or thread.

        Raises:
            InputError: It is no number.
        """
        found = self.node.attributes.get(name, default)
        if not isinstance(found, int) or isinstance(found, bool):
            raise self.error(f"{name} is {found!r}, not a number", f"number streams and threads, as in {name} = 7")
        return found
