"""`EstimateOptions`: how kernels are timed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from meshcast.estimate import SIMULATORS
from meshcast.options.declared import option, take_values

if TYPE_CHECKING:
    from meshcast.estimate import Clocks, Values


def simulators_in_words(simulators: Iterable[str]) -> str:
    """The names that a flag can have, the first of which is ours and the default."""
    first, *rest, last = simulators
    return f"{', '.join([f'{first} (ours, the default)', *rest])} or {last}."


def _clocks() -> tuple[str, ...]:
    from meshcast.estimate import Clocks

    return get_args(Clocks)


def _values() -> tuple[str, ...]:
    from meshcast.estimate import Values

    return get_args(Values)


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateOptions:
    """Options of the estimate: fidelity, measured kernels, simulator, clocks, what arrays hold.

    Attributes:
        fidelity: Which estimators answer.
        profile: Measured kernels of the device, a file, instead of the shipped ones.
        simulator: The simulator of fidelity `simulated`, a name of `estimate.simulator_names`; None for the first.
        clocks: What the device's clocks settle at.
        data: What arrays hold, which power and the clock under its cap depend on.
    """

    fidelity: str = option(
        "auto",
        flag="--fidelity",
        help="roofline, analytical (GPUs, TPUs), profiled (measured kernels), compiled (XLA's own kernels for GPUs and TPUs), "
        "simulated (systolic arrays of TPUs, SMs of GPUs), or auto: the best there is.",
        of_traces="estimates",
    )
    profile: str | Path | None = option(
        None,
        flag="--profile",
        metavar="FILE",
        help="Measured kernels of the device: NAME.profile.jsonl.gz of meshcast calibrate, or the collector's NAME.npz; with "
        "--simulator scalesim-tpu NAME.systolic.toml.",
        kinds=(str, Path, type(None)),
        of_traces="estimates",
    )
    simulator: str | None = option(
        None,
        flag="--simulator",
        help=f"Of fidelity simulated: {simulators_in_words(SIMULATORS)}",
        kinds=(str, type(None)),
        of_traces="estimates",
    )
    clocks: Clocks = option(
        "sustained",
        flag="--clocks",
        help="sustained: what a long run settles at under the power cap; burst: a short run, cool.",
        one_of=_clocks,
        wrong="no clocks {}",
        of_traces="estimates",
    )
    data: Values = option(
        "random",
        flag="--data",
        help="What arrays hold, for power and the clock under its cap: random, normal (as in training), half-zeros "
        "(behind a ReLU) or zeros.",
        one_of=_values,
        wrong="no data {}",
        of_traces="estimates",
    )

    def __post_init__(self) -> None:
        take_values(self)
