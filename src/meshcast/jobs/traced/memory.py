"""Bytes that a rank holds, from the names of what its nodes read and write: each from its first use to its last."""

from __future__ import annotations

import math
import re

from meshcast.chakra import ChakraTrace
from meshcast.jobs.traced.attributes import MOST_BYTES, Attributes

_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{0,20})?(e\+?[0-9]{1,2})?", re.ASCII)


def peak_bytes(trace: ChakraTrace) -> int | None:
    """The most that is held at once, in the order of the file; None where nodes do not name what they touch.

    What is read before it is written was there from the start. A name that a trace uses again for another value (a turn of
    a loop, a microbatch) counts once: a lower bound there.

    Raises:
        InputError: A node names something that has no size.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for index in range(len(trace.nodes)):
        for attribute in ("inputs", "outputs"):
            for name, size in _listed(Attributes(trace, index), attribute):
                first.setdefault(name, 0 if attribute == "inputs" else index)
                last[name] = index
                sizes[name] = max(sizes.get(name, 0), size)
    if not sizes:
        return None
    change = [0] * (len(trace.nodes) + 1)
    for name, size in sizes.items():
        change[first[name]] += size
        change[last[name] + 1] -= size
    held = peak = 0
    for each in change:
        held += each
        peak = max(peak, held)
    return peak


def _listed(said: Attributes, attribute: str) -> list[tuple[str, int]]:
    """(name, bytes) of a list of both in turn."""
    value = said.node.attributes.get(attribute)
    if not isinstance(value, tuple):
        return []
    texts = [str(each) for each in value]
    names, sizes = texts[::2], [_bytes(text) for text in texts[1::2]]
    found = [(name, size) for name, size in zip(names, sizes, strict=False) if size is not None]
    if len(found) != len(names) or len(found) != len(sizes):
        raise said.error(
            f"{attribute} is {texts!r:.60}, not names and bytes in turn",
            f'write {attribute} as ["a", "4096", "b", "16"]',
        )
    return found


def _bytes(text: str) -> int | None:
    """A size in bytes, also where it is written as a float (STAGE divides sizes by numbers of ranks); None for others."""
    if not _NUMBER.fullmatch(text):
        return None
    size = math.ceil(float(text))
    return size if size <= MOST_BYTES else None
