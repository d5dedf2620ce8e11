"""`RunOptions`: how a step runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from meshcast.base import Dimension, MeshcastError, checked, parse_quantity
from meshcast.options.declared import option, take_values
from meshcast.options.program_options import BY_STACKS

if TYPE_CHECKING:
    from meshcast.simulate import HostCosts, Scheduler

# Whether the host's time to issue a step counts: on, off, or for whole programs (`simulate.host`) only; of PyTorch's own
# kernels also how fast the host is (`simulate.issued_calls`).
Host = Literal["auto", "on", "off", "slow", "fast"]
# Whether compute and communication slow each other down while both run.
ContentionSetting = Literal["on", "off"]
# Of traces: as recorded (`trace`), `estimated` on the device, or by what the trace says.
Durations = Literal["auto", "trace", "network", "estimated"]


class _HostWords(tuple[str, ...]):
    """The words of `--host`; a time is one of them too."""

    def __contains__(self, value: object) -> bool:
        if super().__contains__(value) or not isinstance(value, str):
            return super().__contains__(value)
        try:
            return parse_quantity(value, Dimension.TIME) > 0
        except MeshcastError:
            return False


def _host_costs(name: str, value: Any) -> HostCosts | None:
    if value is None:
        return None
    from meshcast.simulate import HostCosts

    found: HostCosts | None = checked(name, value, (HostCosts, type(None)))
    return found


def _other_costs() -> HostCosts:
    from meshcast.simulate import HostCosts

    return HostCosts(graphs=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a step runs: its order, what it shares, what the host adds.

    Attributes:
        host: Whether the host's time to issue a step counts.
        scheduler: The order of steps that no compiler has put in order; see `simulate.Scheduling`.
        channels: Collectives that may be under way at once; 0: one for each group.
        contention: Whether compute and communication slow each other down.
        durations: Whose durations steps of traces have.
        host_costs: What issuing a step costs the host, instead of the costs of XLA's runtime.
    """

    host: str = option(
        "auto",
        flag="--host",
        help="Count the host's time to issue a step: on, off, or auto (not for single ops). Of PyTorch's own kernels also slow "
        "(a virtual machine, the default), fast (bare metal), or the time it takes to add two small tensors, such as 8us "
        "(calibrate --torch-host).",
        one_of=lambda: _HostWords(get_args(Host)),
        wrong="no host setting {}",
    )
    scheduler: Scheduler = option(
        "latency-hiding",
        flag="--scheduler",
        help="How communication may overlap: serial (not at all), program (in program order), latency-hiding, or ideal (a "
        "bound). XLA:GPU compiles with its latency-hiding scheduler for the last two; a compiler's own order is kept.",
    )
    channels: int = option(
        0,
        flag="--channels",
        help="Collectives that may be under way at once; 0: one for each group of devices.",
        of_traces="heeded",
    )
    contention: ContentionSetting = option(
        "on",
        flag="--contention",
        help="Compute and communication slow each other down while both run: on or off.",
        one_of=lambda: get_args(ContentionSetting),
        wrong="no contention setting {}",
        fix="on or off",
        of_traces="estimates",
    )
    durations: Durations = option(
        "auto",
        flag="--durations",
        help="Of traces: trace (as recorded), estimated (from operations and bytes, on --on), network (communication on --on's "
        "network, the rest as recorded), or auto: as recorded where they are of the same device.",
        one_of=lambda: get_args(Durations),
        wrong="no durations {}",
        fix="trace (as recorded), estimated (on --on), network (communication alone on --on), or auto",
        of_traces="heeded",
    )
    host_costs: HostCosts | None = option(
        None, no_flag=BY_STACKS, read=_host_costs, takes="HostCosts | None", example=_other_costs
    )

    def __post_init__(self) -> None:
        take_values(self)
