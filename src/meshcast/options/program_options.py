"""`ProgramOptions`: what the program is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from meshcast.base import read_counts, read_mesh, read_settings
from meshcast.options.declared import option, take_values
from meshcast.options.flag_texts import pairs, sizes, trip_counts
from meshcast.options.turn_counts import Turns, read_turns
from meshcast.options.words import InWords, read_indices, read_plan

if TYPE_CHECKING:
    from meshcast.zoo import Plan

BY_STACKS = "a choice of software stacks: --stack brings it"


def _attentions() -> tuple[str, ...]:
    from meshcast.options.stacks.stack import StackAttention

    return get_args(StackAttention)


def _context_attentions() -> tuple[str, ...]:
    from meshcast.options.stacks.stack import ContextAttention

    return get_args(ContextAttention)


def _dims(dim: list[str] | None) -> dict[str, int]:
    return sizes(dim, "--dim")


def _settings(setting: list[str] | None) -> dict[str, str]:
    return pairs(setting, "--set")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOptions:
    """What the program is: its sizes, how it is shared out over devices, how it attends.

    Attributes:
        mesh: Sizes of the mesh's axes: the program's own are overridden by them.
        plan: How a model of the zoo is shared out, as `zoo.Plan` reads it, beside the words of it.
        dims: Sizes of dynamic dimensions.
        trip_counts: Turns of loops whose count is not in the program, or ranges of them.
        settings: Settings of a model, as texts.
        indices: The exponent of the Zipf law by which indices are spread (0: uniform), beside the words of it.
        approximate: Whether unknown custom calls are costed by their bytes.
        partitioner: Who splits the program.
        attention: How models attend that do not say: `auto` and `flash` fuse it where model and device can, `plain` nowhere.
        context_attention: How models attend that do not say and whose sequences are split: ring or all-gather.
    """

    mesh: Mapping[str, int] | None = option(
        None,
        flag="--mesh",
        help="Mesh axes, e.g. data=8,model=4: gives or overrides sizes.",
        read=read_mesh,
        kinds=(str, type(None)),
        untold="the mesh that the prediction is of is told",
        takes="str | Mesh | Mapping[str, int] | None",
        example=lambda: {"data": 4},
    )
    plan: InWords[Plan] | None = option(
        None,
        flag="--plan",
        metavar="KEY=VALUE,...",
        help="How a model of the zoo is trained in parallel: dp=4,fsdp=8,tp=8,sp=1,pp=8,vp=2,cp=2,ep=1,mbs=1,remat=selective "
        "and more (docs/plans.md); the global batch is --set batch=N.",
        read=read_plan,
        kinds=(str, type(None)),
        untold="the plan that was carried out is told, and each of its keys",
        takes="str | Plan | None",
        example=lambda: "dp=2",
    )
    partitioner: str = option(
        "shardy", flag="--partitioner", help="shardy, or xla to check with XLA's own (up to 4096 devices)."
    )
    dims: Mapping[str, int] = option(
        default_factory=dict,
        flag="--dim",
        help="Size of a dynamic dimension: B=32, or arg0.1=32.",
        repeated=True,
        read=read_counts,
        from_flags=_dims,
        takes="Mapping[str, int]",
        example=lambda: {"B": 32},
    )
    trip_counts: Mapping[str, Turns] = option(
        default_factory=dict,
        flag="--trip-count",
        help="Turns of loops that end on data: N, while#2=N for one of them, or a range, 5..50 (docs/loops.md).",
        repeated=True,
        read=read_turns,
        from_flags=trip_counts,
        takes="Mapping[str, int | str | tuple[int, int]]",
        example=lambda: {"*": 7},
    )
    settings: Mapping[str, str] = option(
        default_factory=dict,
        flag="--set",
        parameter="setting",
        help="A setting of a zoo model: seq=8192.",
        repeated=True,
        read=read_settings,
        from_flags=_settings,
        untold="each setting is told by its own name",
        takes="Mapping[str, str | float | Sequence[int] | None]",
        example=lambda: {"batch": "2"},
    )
    indices: InWords[float] = option(
        InWords("uniform", 0.0),
        flag="--indices",
        help="How gather and scatter indices are spread: uniform, or zipf:S such as zipf:1.05.",
        read=read_indices,
        kinds=(str,),
        unset="uniform",
        takes="str",
        example=lambda: "zipf:1.05",
    )
    approximate: bool = option(
        False,
        flag="--approximate",
        help="Go on with unknown custom calls, costed by their bytes.",
        of_traces="heeded",
    )
    attention: str = option(
        "auto",
        no_flag=BY_STACKS + ", --set attention= and a plan's attention= say it of one model",
        one_of=_attentions,
        wrong="no attention {} of models that do not say",
        untold="how the model attends is told",
    )
    context_attention: str = option(
        "all-gather",
        no_flag=BY_STACKS + ", a plan's attention= says it",
        one_of=_context_attentions,
        wrong="no attention {} over split sequences",
        untold="how the model attends is told",
    )

    def __post_init__(self) -> None:
        take_values(self)
