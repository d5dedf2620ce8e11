"""A fusion on its way through XLA:GPU's queue: what it computes and reads so far, and what its readers gain by it."""

from __future__ import annotations

from collections.abc import Set

from meshcast.lower.fusion.cost_model import MAX_COPIES, Rates

LARGE_CODE = MAX_COPIES // 4  # ops in a fusion's code, below which operands and constants do not make it too large
ROOT = -1  # the place of a fusion's root
# Place -> elements that are asked for there, and copies of the maker's code.
Places = dict[int, tuple[float, float]]


class FusionCandidate:
    """A fusion on its way: an op and what has been fused into it."""

    __slots__ = (
        "asked", "barred", "copies", "cycles", "elements", "gained", "gains", "loaded", "moving", "narrow", "order", "places",
        "rates", "reads_s", "reduces", "root", "row_cycles", "rows", "seconds", "target", "tiled", "times", "unknown",
        "updates", "written_s",
    )  # fmt: skip

    def __init__(self, order: int, elements: int, cycles: float, rates: Rates, written_s: float) -> None:
        self.root = order  # the place of the op that it ends with
        self.order = order  # by which equal priorities are told apart
        self.elements = elements  # of its result
        self.cycles = cycles
        self.row_cycles = cycles  # as a program for rows, which computes nothing twice
        self.rates = rates
        self.narrow: Rates | None = None  # its rates once it reads narrow elements, where these differ
        self.written_s = written_s
        self.loaded = 1.0  # bytes that are loaded for one that is needed
        self.copies = 1.0  # of ops in its code
        self.rows = 0  # that it goes along, where it is a program of Triton's for rows
        self.reduces = False  # whether it ends with a reduction of rows, which is computed inside such programs alone
        self.tiled = True  # whether it could be one
        self.target: int | None = None  # what it ends with writing into
        # Places of ops inside that move elements; an update that it ends with is left out (`overwritten_reads`).
        self.moving: tuple[int, ...] = ()
        self.updates = 0  # of slices, in place or not
        self.asked: dict[int, float] = {}  # value -> elements that are read of it
        self.places: dict[int, Places] = {}  # of those that are not asked for at the root alone
        self.times: dict[int, float] = {}  # value -> seconds to read it
        self.reads_s = 0.0  # of all
        self.seconds = 0.0
        # Reader -> what it gains if this is inside, in ticks; None: it cannot be.
        self.gains: dict[int, int | None] = {}
        self.gained = 0  # by all of them
        self.barred = 0  # readers that cannot
        self.unknown: set[int] = set()  # readers whose gain has changed

    def ask(self, reader: int) -> None:
        """What a reader gains is not known any more."""
        self.forget(reader)
        self.unknown.add(reader)

    def forget(self, reader: int) -> None:
        """It is a reader no more."""
        self.unknown.discard(reader)
        if reader in self.gains:
            gain = self.gains.pop(reader)
            if gain is None:
                self.barred -= 1
            else:
                self.gained -= gain

    def ask_all(self, readers: Set[int]) -> None:
        """What readers gain has changed with this one."""
        self.gains.clear()
        self.gained = self.barred = 0
        self.unknown = set(readers)

    def instructions(self, constants: Set[int]) -> float:
        """Instructions of its code, as often as each is emitted: its ops, what it reads, and what spreads constants (IrSize)."""
        total = self.copies
        for value in self.asked:
            where = self.places.get(value)
            times = 1.0 if where is None else sum([times for _, times in where.values()])
            total += 2 * times if value in constants else times
        return total


def is_too_large(kernel: FusionCandidate, value: int, into: FusionCandidate, constants: Set[int]) -> bool:
    """Whether a reader's code would have too many instructions with an op inside (ProducerConsumerMergedTooLarge)."""
    where = into.places.get(value)
    times = 1.0 if where is None else sum([times for _, times in where.values()])
    return kernel.instructions(constants) * times + into.instructions(constants) > MAX_COPIES


def total_of(places: Places) -> float:
    """Elements that are asked for at all places."""
    return sum([count for count, _ in places.values()])


def joined(kernel: FusionCandidate, value: int, into: FusionCandidate) -> tuple[dict[int, Places], float, float]:
    """Where a reader asks for what an op reads once it is inside, how often it is computed, and in how many copies."""
    own = {ROOT: (float(into.elements), 1.0)}
    where = into.places.get(value) or own
    share = total_of(where) / kernel.elements
    copies = sum([times for _, times in where.values()])
    found: dict[int, Places] = {}
    for other in kernel.asked:
        joined = dict(into.places.get(other) or own) if other in into.asked else {}
        inside = kernel.places.get(other)
        if inside is None or ROOT in inside:
            for place, asked in where.items():
                joined.setdefault(place, asked)
        for place, (count, times) in (inside or {}).items():
            if place != ROOT:
                before = joined.get(place, (0.0, 0.0))
                joined[place] = (before[0] + count * share, before[1] + times * copies)
        found[other] = joined
    return found, share, copies


def beside(where: Places | None, count: float, other: int, into: FusionCandidate) -> float:
    """Elements that a reader asks for of a value, beside those that it does, at the places of another; `None`: its root."""
    if other not in into.asked:
        return count
    there = into.places.get(other)
    if where is None:
        return 0.0 if there is None or ROOT in there else count
    return sum(
        [asked for place, (asked, _) in where.items() if (place != ROOT if there is None else place not in there)]
    )
