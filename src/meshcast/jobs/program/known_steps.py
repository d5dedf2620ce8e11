"""Steps that are known already: hardware of which a program reads the same as before leaves its step what it was.

A sweep changes one number after another, and most programs read few of them: those of a pipeline's stages talk inside of a host,
and the rate between hosts is nothing to them. What a step follows from is its kernels, who times them and on which device, the
options of the stages behind lowering, how many devices wait for each other, and of the network what its collectives take
(`network_read`). Where all of that is as it was, so is the step, to the last bit.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from meshcast.base import KeptBeside, PartedError, joined
from meshcast.hardware import hardware_at
from meshcast.jobs.program.on_network import collectives_of, levels_spanned
from meshcast.network import network_read
from meshcast.results import Timed
from meshcast.simulate import Executed

if TYPE_CHECKING:
    from meshcast.jobs.program.run import Run

MOST_STEPS = 2048  # that are kept: nine programs of a pipeline on two hundred machines; a few hundred bytes each
MOST_OPTIONS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownStep:
    """A step without tables.

    Attributes:
        timed: Its times.
        executed: What runs.
        fidelity: That most of its time comes from.
    """

    timed: Timed
    executed: Executed
    fidelity: str


_STEPS: KeptBeside[KnownStep] = KeptBeside(MOST_STEPS)
_SPANNED: KeptBeside[KnownStep] = KeptBeside(MOST_STEPS)  # the same, by what more than they read
_OPTIONS: deque[tuple[int, tuple[object, ...]]] = deque(maxlen=MOST_OPTIONS)
_NUMBERS = itertools.count()  # none is given twice: what was kept under that of forgotten options is found by nobody


def known_step(run: Run) -> KnownStep:
    """The step of a run of which no tables are asked, worked out where nothing equal was.

    Where no number has changed of any level that its devices span, it is known without a look at its collectives.
    """
    try:
        spanned = _spanned(run)
        return _by_read(run) if spanned is None else _SPANNED.of(run.lowered, spanned, lambda: _by_read(run))
    except PartedError as parted:
        sides = parted.sides()
    # Points of a sweep whose events come in different orders: each order by itself, and then all together again.
    found = [known_step(replace(run, cluster=hardware_at(run.cluster, side))) for side in sides]
    return joined([replace(each, executed=found[0].executed) for each in found], sides)


def _by_read(run: Run) -> KnownStep:
    read = _read(run)
    return _step(run) if read is None else _STEPS.of(run.lowered, read, lambda: _step(run))


def _step(run: Run) -> KnownStep:
    from meshcast.jobs.program.timed import timed_part  # which asks for steps here

    return KnownStep(timed=timed_part(run), executed=run.executes, fidelity=run.fidelity)


def _read(run: Run) -> Hashable | None:
    """Everything that the step of a lowered program is worked out from; None where that cannot be said."""
    network = network_read(run.network_model, collectives_of(run)) if run.devices > 1 else ()
    if run.estimated is not None or network is None:
        return None
    return (*_beside_network(run), network)


def _spanned(run: Run) -> Hashable | None:
    """All numbers of the network that a run could read; None where it reads others, too.

    Ranks in their own order on healthy links are timed by the levels that they span.
    """
    levels = levels_spanned(run)
    return None if run.estimated is not None or levels is None else (*_beside_network(run), levels)


def _beside_network(run: Run) -> tuple[Hashable, ...]:
    """Everything else that a step is worked out from."""
    _, *behind = run.options.parts  # the program's own are in what is lowered
    return (
        number_of_options(tuple(behind)), run.estimators, run.device, run.devices, run.job_devices, run.whole, run.straggling,
    )  # fmt: skip


def number_of_options(parts: tuple[object, ...]) -> int:
    """The number of equal parts of options: their key, as they have no hash; few different ones are ever asked for."""
    for number, known in _OPTIONS:
        if known == parts:
            return number
    _OPTIONS.append((next(_NUMBERS), parts))
    return _OPTIONS[-1][0]


def forget_steps() -> None:
    """Leaves nothing kept, so that steps are worked out anew."""
    _OPTIONS.clear()
    _STEPS.clear()
    _SPANNED.clear()
