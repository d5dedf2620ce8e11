"""`NetworkOptions`: how collectives are timed, and the state of the hardware that they meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meshcast.base import checked
from meshcast.options.declared import FlagText, option, take_values
from meshcast.options.words import InWords, read_beside

if TYPE_CHECKING:
    from meshcast.hardware import Conditions
    from meshcast.network import Arrangement
    from meshcast.workload import Collective


def _healthy() -> Conditions:
    from meshcast.hardware import HEALTHY

    return HEALTHY


def _conditions(name: str, value: Any) -> Conditions:
    from meshcast.hardware import Conditions

    found: Conditions = checked(name, value, (Conditions,))
    return found


def _told_conditions(slow: list[str] | None, links: list[str] | None, background: list[str] | None) -> Conditions:
    from meshcast.hardware import parse_conditions

    return parse_conditions(slow=slow or (), links=links or (), background=background or ())


def _another() -> Conditions:
    from meshcast.hardware import parse_conditions

    return parse_conditions(slow=["3=0.5"], links=["nvlink:2x1=0"])


def _models() -> tuple[str, ...]:
    from meshcast.network import NETWORK_MODELS

    return tuple(NETWORK_MODELS)


def _several(texts: list[str] | None) -> tuple[str, ...]:
    return tuple(texts or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOptions:
    """How collectives are timed, and the state of the hardware that they meet.

    Attributes:
        model: The network model, a name of `network.NETWORK_MODELS` (flat: `network`).
        placement: A file with the device of each rank, or `optimise`.
        conditions: Slow devices, degraded links, background traffic.
        fabric: A file with a graph of one's own.
        beside: Collectives that other jobs keep running, beside the words of them (KIND:BYTES:FIRST-LAST).
    """

    model: str = option(
        "alpha-beta",
        name="network",
        flag="--network",
        help="Model of the network: alpha-beta (closed form), flow (links shared max-min fairly), astra or astra-aware "
        "(ASTRA-sim's conventions in our own code), astra-sim or astra-sim-aware (its own program).",
        one_of=_models,
        wrong="no network model {}",
        of_traces="estimates",
    )
    placement: str | None = option(
        None,
        flag="--placement",
        metavar="FILE",
        help="Device of each rank: a file with one number a line, or `optimise`.",
        kinds=(str, type(None)),
        of_traces="estimates",
    )
    conditions: Conditions = option(
        default_factory=_healthy,
        flags=(
            FlagText(
                flag="--slow",
                metavar="DEVICE=SHARE",
                help="A straggler: 17=0.8 computes at 80 %; 8-15=a100-sxm-80gb for devices of another kind.",
                repeated=True,
            ),
            FlagText(
                flag="--link",
                parameter="links",
                metavar="LEVEL[:DEVICE[xLINKS]]=SHARE",
                help="Links at a share of their rate, 0 if failed: infiniband:17=0.5, nvlink:3x2=0.",
                repeated=True,
            ),
            FlagText(
                flag="--background",
                metavar="LEVEL=SHARE",
                help="Share of a level's rate that other jobs take.",
                repeated=True,
            ),
        ),
        read=_conditions,
        from_flags=_told_conditions,
        untold="told as slow, link and background",
        takes="Conditions",
        example=_another,
        of_traces="heeded",
    )
    fabric: str | None = option(
        None,
        flag="--fabric",
        metavar="FILE",
        help="A graph of nodes and links of one's own (TOML), for --network flow.",
        kinds=(str, type(None)),
        of_traces="estimates",
    )
    beside: tuple[InWords[Collective], ...] = option(
        (),
        flag="--beside",
        metavar="KIND:BYTES:FIRST-LAST",
        help="A collective that another job keeps running on devices FIRST to LAST, for --network flow; may be repeated.",
        repeated=True,
        read=read_beside,
        from_flags=_several,
        takes="Sequence[str]",
        example=lambda: ("all_reduce:1MiB:0-3",),
        of_traces="estimates",
    )

    def __post_init__(self) -> None:
        take_values(self)

    @property
    def arrangement(self) -> Arrangement:
        """The network's state, placement and fabric as one request."""
        from meshcast.network import Arrangement

        return Arrangement(
            network=self.model,
            conditions=self.conditions,
            placement=self.placement,
            graph=self.fabric,
            beside=tuple(each.value for each in self.beside),
        )
