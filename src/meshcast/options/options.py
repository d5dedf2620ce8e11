"""Everything a prediction depends on besides the program."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from meshcast.base import UsageError, nearest
from meshcast.estimate import Clocks
from meshcast.hardware import HEALTHY, Cluster, Conditions, is_own
from meshcast.lower import Fusion, Layers, Overlap, RaggedProducts
from meshcast.network import Arrangement
from meshcast.options.option_types import checked, kinds_of
from meshcast.simulate import HostCosts, Scheduler, Scheduling
from meshcast.workload import AttentionLibrary

if TYPE_CHECKING:
    from meshcast.options.stacks import Stack

# Whether the host's time to issue a step counts: on, off, or for whole programs (`simulate.host`) only.
Host = Literal["auto", "on", "off"]
# Whether compute and communication slow each other down while both run.
ContentionSetting = Literal["on", "off"]
# Whose kernels are modelled on GPUs; the defaults are XLA's.
_KERNELS = ("fusion", "attention_library", "layers", "ragged")
# Fields that options keep about themselves: no way to ask for anything.
_KEPT = ("brought", "written")


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What a software stack has brought into options: its name or file, which fields are its own, who named it."""

    stack: str
    fields: tuple[str, ...]
    in_plan: bool = field(default=False, compare=False)
    framework: str = field(default="", compare=False)  # the stack's
    recipe: Mapping[str, Any] = field(default_factory=dict, compare=False)  # what its recipes say in plans


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything a prediction depends on besides the program."""

    on: str | Cluster = "h100-sxm"
    devices: int | None = None
    mesh: Mapping[str, int] | None = None
    fidelity: str = "auto"
    profile: str | Path | None = None  # measured kernels of the device, a file, instead of the shipped ones
    simulator: str | None = None  # of fidelity `simulated`: a name of `estimate.simulator_names`, or its first
    network: str = "alpha-beta"
    partitioner: str = "shardy"
    lowering: str = "auto"
    clocks: Clocks = "sustained"
    host: Host = "auto"
    dims: Mapping[str, int] = field(default_factory=dict)
    trip_counts: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    plan: str | None = None  # how a model of the zoo is shared out, as `plans.Plan` reads it
    # How models attend that do not say: `auto` and `flash` fuse it where model and device can, `plain` nowhere.
    attention: str = "auto"
    context_attention: str = "all-gather"  # likewise where sequences are split: ring or all-gather
    indices: str = "uniform"
    approximate: bool = False
    levers: bool | int = False  # how many changes are predicted to see what would help; True: a few
    conditions: Conditions = HEALTHY  # slow devices, degraded links, background traffic
    placement: str | None = None  # a file with the device of each rank, or `optimise`
    fabric: str | None = None  # a file with a graph of one's own
    beside: tuple[str, ...] = ()  # collectives of other jobs, KIND:BYTES:FIRST-LAST
    scheduler: Scheduler = "latency-hiding"  # of steps that a compiler has not put in order; see `Scheduling`
    channels: int = 0  # collectives that may be under way at once; 0: one for each group
    contention: ContentionSetting = "on"
    overlap: str = ""  # what is rewritten so that communication overlaps, as `lower.overlap` reads it
    fusion: Fusion = "compiler"  # of modelled kernels on GPUs: what a compiler fuses, or an eager framework
    attention_library: AttentionLibrary = "cudnn"  # likewise: whose fused attention runs
    layers: Layers = "scanned"  # likewise: whether what a loop's turns keep is copied into stacked arrays
    ragged: RaggedProducts = "masked"  # likewise: how ragged products run
    durations: str = "auto"  # of traces: as recorded (`trace`), `estimated` on the device, or by what the trace says
    host_costs: HostCosts | None = None  # of issuing a step, instead of XLA's runtime
    brought: Brought | None = None  # by a stack; `with_stack` writes it, and it is no way to ask for one
    written: tuple[str, ...] = ()  # fields that are asked for expressly, also where they have their default's value

    def __post_init__(self) -> None:
        for name, kinds in _kinds().items():
            object.__setattr__(self, name, checked(name, getattr(self, name), kinds))

    def with_stack(self, stack: Stack, *, but: Collection[str] = ()) -> Options:
        """These options with what a software stack brings, except for the fields that are chosen already."""
        brought = {
            "scheduler": stack.scheduler,
            "channels": stack.channels,
            "overlap": stack.overlap,
            "fusion": stack.fusion,
            "attention_library": stack.attention_library,
            "layers": stack.layers,
            "ragged": stack.ragged,
            "host_costs": stack.host,
            "attention": stack.attention,
            "context_attention": stack.context_attention,
        }
        taken = {name: value for name, value in brought.items() if name not in but}
        came = Brought(stack=stack.name, fields=tuple(taken), framework=stack.framework, recipe=stack.recipe)
        return replace(self, **taken, brought=came)  # type: ignore[arg-type]

    @property
    def asked(self) -> frozenset[str]:
        """Fields that the user has asked for: expressly, or by a value that is neither a default nor a stack's."""
        stacks = self.brought.fields if self.brought is not None else ()
        default = Options()
        differ = {each.name for each in fields(self) if getattr(self, each.name) != getattr(default, each.name)}
        return frozenset((differ - set(stacks)) | set(self.written))

    @property
    def asked_lowering(self) -> str:
        """Whose kernels are asked for, a word of `lower.choice.LOWERINGS`: the fidelity `compiled` is about them."""
        return "compiled" if self.lowering == "auto" and self.fidelity == "compiled" else self.lowering

    @property
    def other_kernels(self) -> tuple[str, ...]:
        """Fields that say of kernels on GPUs what XLA does not do; none where all are as XLA makes them."""
        default = Options()
        return tuple(name for name in _KERNELS if getattr(self, name) != getattr(default, name))

    @property
    def own_hardware(self) -> bool:
        """Whether the hardware is a file of the user's own."""
        return isinstance(self.on, str) and is_own(self.on)

    @property
    def arrangement(self) -> Arrangement:
        """What is asked for about the network."""
        return Arrangement(
            network=self.network,
            conditions=self.conditions,
            placement=self.placement,
            graph=self.fabric,
            beside=self.beside,
        )

    @property
    def overlapping(self) -> Overlap:
        """What `overlap` says."""
        return Overlap.parse(self.overlap)

    @property
    def scheduling(self) -> Scheduling:
        """What the scheduler may do."""
        return Scheduling(scheduler=self.scheduler, channels=self.channels, gathers=self.overlapping.gathers)

    @property
    def index_skew(self) -> float:
        """The exponent of the Zipf law that `indices` names; 0 for `uniform`.

        Raises:
            UsageError: `indices` is neither `uniform` nor `zipf:S` with a number S of 0 or more.
        """
        law, _, exponent = self.indices.partition(":")
        if self.indices == "uniform":
            return 0.0
        try:
            skew = float(exponent) if law == "zipf" else math.nan
        except ValueError:
            skew = math.nan
        if not 0 <= skew < math.inf:
            raise UsageError(
                f"no spread of indices {self.indices!r}", where="--indices", fix="uniform, or zipf:S such as zipf:1.05"
            )
        return skew

    def changed(self, overrides: Mapping[str, object], *, where: str, but: Collection[str] = ()) -> Options:
        """These with single ones changed, by the names of the fields.

        Args:
            overrides: New values by name.
            where: What they are given to.
            but: Fields that it takes by other means.

        Raises:
            UsageError: There is none of that name, or it is not for users to write.
        """
        known = {option.name for option in fields(self)} - {*_KEPT, *but}
        for name in overrides:
            if name not in known:
                raise UsageError(f"{where} has no setting {name!r}", where=where, fix=nearest(name, known))
        written = tuple(sorted({*self.written, *overrides}))
        return replace(self, **{"written": written, **overrides})  # type: ignore[arg-type]


def given_options(options: Options | None) -> Options:
    """The options of a call; the defaults where it has none.

    Raises:
        UsageError: It is something else.
    """
    if options is None:
        return Options()
    if not isinstance(options, Options):
        raise UsageError(
            f"options are meshcast.Options, not {options!r}", where="options", fix='such as meshcast.Options(on="h200")'
        )
    return options


@functools.cache
def _kinds() -> dict[str, tuple[Any, ...]]:
    return kinds_of(Options)
