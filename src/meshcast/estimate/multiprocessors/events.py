"""The event simulator: blocks on SMs, each resource shared by those who ask for it at the time.

An SM holds up to `resident` blocks. A block waits for its SM's launch unit, goes through its phases and makes room for
the next one of the grid, which is handed to the first SM with room. Within a phase a block proceeds at `x` phases a cycle:

    x <= 1 / least                       alone; where it waits for loads, those take as long as their queues make them
    sum of x tensor (shared, issue) <= 1          over the blocks of one SM
    sum of x cached <= 64 bytes                   over the blocks of one SM
    sum of x cached <= L2's bytes a cycle         over all SMs
    sum of x dram   <= the memory's bytes a cycle over all SMs

Who asks for a unit of its SM that is asked for too much is slowed by the same factor as the others there. Of L2 and memory each
has the same share, as their requests take turns, and who asks for less leaves the rest to the others (max-min fair). Loads
wait for a slice of L2, and for a channel of the memory where they miss, as long as the load of either makes them
(`queues.py`). Rates change only when a block starts, ends a phase or leaves: these are the events. Waves, tails and what
overlaps between blocks of an SM come out of them; nothing here knows of either.

SMs whose blocks are at the same place are one class and simulated once; where the grid runs out in the middle of a class it
is split. Where blocks are small an SM's residents are put together in bundles that start together (`BUNDLES` of them are left to
overlap each other). Once the waves of blocks of a kind take equally long, all but the last of them are skipped, at that pace.
Where their paces go up and down for ever, as blocks come together and part again, `LONG` waves tell the mean.
"""

from __future__ import annotations

import math
from itertools import pairwise

from meshcast.estimate.multiprocessors.chip import Chip
from meshcast.estimate.multiprocessors.grid import BlockGrid, Phase, Played, scaled

BUNDLES = 4  # of blocks on an SM that are followed apart
STEADY = 0.01  # relative difference between the paces of waves from which on they count as equal
ALIKE = 3  # waves of one pace before others are skipped
LONG = 64  # waves that tell the pace where it goes up and down, after a quarter of them
MOST_ROUNDS = 2  # in which waits and rates are brought together; the next event goes on from there
AGREED = 0.3  # of a miss's latency: waits that differ by less are taken
KEPT_WAVES = 2  # that are played after a skip
_TINY = 1e-9


class _Resident:
    """A bundle of blocks on an SM: the phases that it still has to go through, and how far it is in the first of them."""

    __slots__ = ("kind", "left", "phases", "place", "rate", "ready")

    def __init__(self, phases: tuple[Phase, ...], ready: float, kind: int) -> None:
        self.phases, self.ready, self.kind = phases, ready, kind
        self.place, self.left, self.rate = 0, 1.0, 0.0

    def copy(self) -> _Resident:
        twin = _Resident(self.phases, self.ready, self.kind)
        twin.place, twin.left, twin.rate = self.place, self.left, self.rate
        return twin


class _SmClass:
    """SMs that are at the same place, and what each of them holds."""

    __slots__ = ("free_at", "residents", "sms", "started")

    def __init__(self, sms: int) -> None:
        self.sms, self.residents, self.free_at, self.started = sms, list[_Resident](), 0.0, 0

    def split(self, sms: int) -> _SmClass:
        """Takes `sms` of the SMs out, into a class of their own."""
        twin = _SmClass(sms)
        twin.residents = [each.copy() for each in self.residents]
        twin.free_at, twin.started = self.free_at, self.started
        self.sms -= sms
        return twin


class _Queue:
    """Bundles that are still to be handed out, in order."""

    def __init__(self, launch: BlockGrid, bundle: int) -> None:
        self._kinds = [(math.ceil(count / bundle), scaled(phases, bundle)) for count, phases in launch.blocks if count]
        self._left = [count for count, _ in self._kinds]
        self.kind = 0

    @property
    def left(self) -> int:
        """Bundles of the kind that is handed out now; 0 where there are none of any kind."""
        while self.kind < len(self._left) and not self._left[self.kind]:
            self.kind += 1
        return self._left[self.kind] if self.kind < len(self._left) else 0

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Of a bundle of the kind that is handed out now."""
        return self._kinds[self.kind][1]

    def take(self, count: int) -> tuple[Phase, ...]:
        self._left[self.kind] -= count
        return self.phases

    def skip(self, count: int) -> None:
        self._left[self.kind] -= count


def _work(phase: Phase) -> tuple[float, float, float, float]:
    """What a phase uses, in the order in which it is added up."""
    return phase.tensor, phase.issue, phase.cached, phase.dram


class _Play:
    """One launch on its way through the SMs."""

    def __init__(self, launch: BlockGrid, chip: Chip) -> None:
        total = sum(count for count, _ in launch.blocks)
        held = max(1, min(launch.resident, math.ceil(total / chip.sms)))
        bundle = max(1, held // BUNDLES)
        self.slots = max(1, held // bundle)
        self.chip, self.launch, self.bundle = chip, launch, bundle
        self.first = scaled(launch.first, bundle)
        self.grid = _Queue(launch, bundle)
        self.classes = [_SmClass(chip.sms)]
        self.now, self.events = 0.0, 0
        self.tensor = self.issue = self.cached = self.dram = 0.0
        self.waits = (0.0, 0.0)  # of a line for its slice, and for its channel
        self.marks: list[tuple[float, int, float, float, float, float]] = []  # of waves: when, kind, and what was used

    def run(self) -> Played:
        """Plays the launch to its end."""
        for _ in range(self.slots):  # breadth first, as the hardware hands blocks out
            for alike in list(self.classes):
                self._hand_out(alike)
        while self._step():
            pass
        count = self.chip.sms
        return Played(
            cycles=self.now, tensor=self.tensor / count, issue=self.issue / count, cached=self.cached, dram=self.dram,
            events=self.events, waves=self.classes[0].started / self.slots,
        )  # fmt: skip

    def _hand_out(self, sms: _SmClass) -> None:
        """A bundle for each SM of a class, as far as there are any; the class is split where there are not enough."""
        left = self.grid.left
        if not left:
            return
        rest = None
        if left < sms.sms:
            rest = sms.split(sms.sms - left)
            self.classes.append(rest)
        kind = self.grid.kind
        phases = self.grid.take(sms.sms)
        first = sms.started < self.slots
        if first:
            phases = (*self.first, *phases)
        start = self.launch.start * (self.chip.parameters.cold_starts if first else 1.0)
        # The last block of a bundle has started; the start of an SM's first one is part of the launch.
        ready = max(self.now if first else self.now + start, sms.free_at) + start * (self.bundle - 1)
        sms.free_at = ready + start
        sms.started += 1
        sms.residents.append(_Resident(phases, ready, kind))
        if sms is self.classes[0] and sms.started > self.slots and sms.started % self.slots == 0:
            self._mark(kind)
        if rest is not None:
            self._hand_out(rest)  # of the next kind, if there is one

    def _mark(self, kind: int) -> None:
        """Notes the begin of a wave, and skips waves that would be like the last ones."""
        self.marks.append((self.now, kind, self.tensor, self.issue, self.cached, self.dram))
        wave = self.slots * self.chip.sms
        waves = self.grid.left // wave - KEPT_WAVES
        if waves <= 0:
            return
        span = self._alike(kind)
        if not span:
            return
        before, now = self.marks[-span - 1], self.marks[-1]
        # Between two marks as many blocks started as a wave has, but not just their work was done: the pace is that of work.
        whole = [wave * sum(work) for work in zip(*map(_work, self.grid.phases), strict=True)]
        done = [(new - old) / span for new, old in zip(now[2:], before[2:], strict=True)]
        ratios = [part / all_of_it for part, all_of_it in zip(done, whole, strict=True) if all_of_it]
        ahead = min(ratios, default=1.0)
        self.grid.skip(waves * wave)
        for sms in self.classes:
            sms.started += waves * self.slots
        self._advance_clock(waves * (now[0] - before[0]) / span / ahead)
        self.tensor, self.issue, self.cached, self.dram = (
            value + waves * part for value, part in zip(now[2:], whole, strict=True)
        )
        self.marks.clear()

    def _alike(self, kind: int) -> int:
        """The last waves of a kind that others would be like; 0 where they would not."""
        marks = self.marks
        if len(marks) <= ALIKE or any(mark[1] != kind for mark in marks[-ALIKE - 1 :]):
            return 0
        paces = [later[0] - earlier[0] for earlier, later in pairwise(marks[-ALIKE - 1 :])]
        if max(paces) - min(paces) <= STEADY * paces[-1]:
            return ALIKE
        wild = len(marks) > LONG + LONG // 4 and all(mark[1] == kind for mark in marks[-LONG - 1 :])
        return LONG if wild else 0

    def _advance_clock(self, cycles: float) -> None:
        before = self.now
        self.now += cycles
        for sms in self.classes:
            sms.free_at += cycles
            for each in sms.residents:
                if each.ready > before:  # not yet started: it waits for as long as it would have
                    each.ready += cycles

    def _step(self) -> bool:
        """On to the next event; False where there is none."""
        self._share()
        now, soonest = self.now, math.inf
        for sms in self.classes:
            for each in sms.residents:
                at = each.ready - now if each.ready > now else each.left / each.rate
                if at < soonest:
                    soonest = at
        if soonest == math.inf:
            return False
        self.events += 1
        self.now = now + soonest
        all_ended: list[tuple[_SmClass, int]] = []
        tensor = issue = cached = dram = 0.0
        for sms in self.classes:
            ended, alike = 0, sms.sms
            for each in sms.residents:
                if each.ready > now:
                    continue  # was still to start
                done = each.rate * soonest
                phase, used = each.phases[each.place], done * alike
                tensor += phase.tensor * used
                issue += phase.issue * used
                cached += phase.cached * used
                dram += phase.dram * used
                each.left -= done
                if each.left <= _TINY:
                    each.place, each.left = each.place + 1, 1.0
                    ended += each.place == len(each.phases)
            if ended:
                sms.residents = [each for each in sms.residents if each.place < len(each.phases)]
                all_ended.append((sms, ended))
        self.tensor, self.issue = self.tensor + tensor, self.issue + issue
        self.cached, self.dram = self.cached + cached, self.dram + dram
        for sms, ended in all_ended:
            for _ in range(ended):
                self._hand_out(sms)
        return True

    def _share(self) -> None:
        """Rates of all blocks that run, at the waits that they make for each other.

        Queues that are longer slow blocks down, and blocks that are slower leave shorter queues: halfway between what was taken
        and what comes of it, until both agree.
        """
        for _ in range(MOST_ROUNDS):
            cached, dram, waiting = self._rates()
            if not waiting:
                return
            taken = self.waits
            found = self.chip.queued(cached, dram)
            self.waits = (taken[0] + found[0]) / 2, (taken[1] + found[1]) / 2
            if abs(found[1] - taken[1]) + abs(found[0] - taken[0]) <= AGREED * self.chip.latency.memory:
                return

    def _rates(self) -> tuple[float, float, bool]:
        """Rates of blocks: alone, then as far as their SM allows, then L2 and memory; bytes a cycle of both, if any waits."""
        now, port, cached = self.now, self.chip.port_bytes, 0.0
        for_slice, for_channel = self.waits
        waiting = False
        users: list[tuple[int, _Resident, Phase]] = []
        for sms in self.classes:
            running = [each for each in sms.residents if each.ready <= now]
            tensor = shared = issue = moved = 0.0
            alone = len(running) == 1  # no other asks for its SM's units, and none alone for more than there is
            for each in running:
                phase = each.phases[each.place]
                least = phase.least
                if phase.loads and phase.cached:
                    waited = phase.waited + phase.loads * (
                        for_slice + min(1.0, phase.dram / phase.cached) * for_channel
                    )
                    if waited >= least:  # what else a phase does takes longer than its loads: queues are nothing to it
                        least, waiting = waited, True
                each.rate = rate = 1 / max(least, phase.tensor, phase.shared, phase.issue, phase.cached / port, _TINY)
                if not alone:
                    tensor += phase.tensor * rate
                    shared += phase.shared * rate
                    issue += phase.issue * rate
                    moved += phase.cached * rate
            crowded = tensor > 1 or shared > 1 or issue > 1 or moved > port
            for each in running:
                phase = each.phases[each.place]
                if crowded:
                    each.rate /= max(
                        1.0,
                        tensor if phase.tensor else 0.0,
                        shared if phase.shared else 0.0,
                        issue if phase.issue else 0.0,
                        moved / port if phase.cached else 0.0,
                    )
                if phase.cached or phase.dram:
                    users.append((sms.sms, each, phase))
                    cached += phase.cached * each.rate * sms.sms
        if cached > self.chip.cache_bytes:
            _fill([(sms, each, phase.cached) for sms, each, phase in users if phase.cached], self.chip.cache_bytes)
        dram = sum(sms * each.rate * phase.dram for sms, each, phase in users)
        if dram > self.chip.memory_bytes:
            _fill([(sms, each, phase.dram) for sms, each, phase in users if phase.dram], self.chip.memory_bytes)
            dram = self.chip.memory_bytes
        return min(cached, self.chip.cache_bytes), dram, waiting


def _fill(users: list[tuple[int, _Resident, float]], capacity: float) -> None:
    """Slows those who ask for more than their share of a capacity down to it: the same for each, as requests take turns.

    Args:
        users: (how many alike, one of them, what a phase of it asks for).
        capacity: For all of them, a cycle.
    """
    users.sort(key=lambda user: user[1].rate * user[2])
    left, count = capacity, sum(alike for alike, _, _ in users)
    for alike, each, asked in users:
        share = left / count
        wanted = each.rate * asked
        if wanted > share:
            each.rate *= share / wanted
            wanted = share
        left -= wanted * alike
        count -= alike


def play(launch: BlockGrid, chip: Chip) -> Played:
    """A launch on a GPU with nothing else on it."""
    return _Play(launch, chip).run()
