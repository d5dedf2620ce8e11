"""Flags that several verbs share, and their texts turned into values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from meshcast.base import UsageError
from meshcast.estimate import SIMULATORS
from meshcast.lower import OVERLAP_CHOICES

if TYPE_CHECKING:
    from meshcast.options import Options


def named(simulators: Iterable[str]) -> str:
    """The names that a flag can have, the first of which is ours and the default."""
    first, *rest, last = simulators
    return f"{', '.join([f'{first} (ours, the default)', *rest])} or {last}."


On = Annotated[str, typer.Option("--on", help="Device or cluster of the catalogue (meshcast devices), or a TOML file.")]
Devices = Annotated[int | None, typer.Option("--devices", help="How many devices; must match the program's mesh.")]
MeshText = Annotated[
    str | None, typer.Option("--mesh", help="Mesh axes, e.g. data=8,model=4: gives or overrides sizes.")
]
Fidelity = Annotated[
    str,
    typer.Option(
        "--fidelity",
        help="roofline, analytical (GPUs, TPUs), profiled (measured kernels), compiled (XLA's own kernels for GPUs and TPUs), "
        "simulated (systolic arrays of TPUs), or auto: the best there is.",
    ),
]
ProfileFlag = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        help="Measured kernels of the device: NAME.profile.jsonl.gz of meshcast calibrate, or the collector's NAME.npz.",
    ),
]
SimulatorFlag = Annotated[
    str | None,
    typer.Option("--simulator", help=f"Of fidelity simulated: {named(SIMULATORS)}"),
]
Network = Annotated[
    str,
    typer.Option(
        "--network",
        help="Model of the network: alpha-beta (closed form), flow (links shared max-min fairly), astra or astra-aware "
        "(ASTRA-sim's conventions in our own code), astra-sim or astra-sim-aware (its own program).",
    ),
]
PlacementFlag = Annotated[
    str | None,
    typer.Option(
        "--placement", metavar="FILE", help="Device of each rank: a file with one number a line, or `optimise`."
    ),
]
FabricFlag = Annotated[
    str | None,
    typer.Option(
        "--fabric", metavar="FILE", help="A graph of nodes and links of one's own (TOML), for --network flow."
    ),
]
OtherJobs = Annotated[
    list[str] | None,
    typer.Option(
        "--beside",
        metavar="KIND:BYTES:FIRST-LAST",
        help="A collective that another job keeps running on devices FIRST to LAST, for --network flow; may be repeated.",
    ),
]
SlowDevices = Annotated[
    list[str] | None,
    typer.Option(
        "--slow",
        metavar="DEVICE=SHARE",
        help="A straggler: 17=0.8 computes at 80 %; 8-15=a100-sxm-80gb for devices of another kind.",
    ),
]
LinkConditions = Annotated[
    list[str] | None,
    typer.Option(
        "--link",
        metavar="LEVEL[:DEVICE[xLINKS]]=SHARE",
        help="Links at a share of their rate, 0 if failed: infiniband:17=0.5, nvlink:3x2=0.",
    ),
]
Background = Annotated[
    list[str] | None,
    typer.Option("--background", metavar="LEVEL=SHARE", help="Share of a level's rate that other jobs take."),
]
Partitioner = Annotated[
    str, typer.Option("--partitioner", help="shardy, or xla to check with XLA's own (up to 4096 devices).")
]
LoweringFlag = Annotated[
    str,
    typer.Option(
        "--lowering",
        help="Kernels modelled by rules, compiled by the real XLA:GPU compiler (extra gpu-compiler), or auto.",
    ),
]
ClocksFlag = Annotated[
    str,
    typer.Option(
        "--clocks", help="sustained: what a long run settles at under the power cap; burst: a short run, cool."
    ),
]
HostFlag = Annotated[
    str,
    typer.Option("--host", help="Count the host's time to issue a step: on, off, or auto (not for single ops)."),
]
SchedulerFlag = Annotated[
    str,
    typer.Option(
        "--scheduler",
        help="How communication may overlap: serial (not at all), program (in program order), latency-hiding, or ideal (a "
        "bound). A compiler's own order is kept.",
    ),
]
ChannelsFlag = Annotated[
    int, typer.Option("--channels", help="Collectives that may be under way at once; 0: one for each group of devices.")
]
ContentionFlag = Annotated[
    str, typer.Option("--contention", help="Compute and communication slow each other down while both run: on or off.")
]
OverlapFlag = Annotated[
    str,
    typer.Option(
        "--overlap",
        metavar="LIST",
        help="Rewrites that hide communication: "
        + ", ".join(f"{each.name}{each.example} ({each.help})" for each in OVERLAP_CHOICES)
        + ".",
    ),
]
StackFlag = Annotated[
    str | None,
    typer.Option(
        "--stack",
        metavar="NAME|FILE",
        help="Software stack (meshcast stacks): xla, maxtext, megatron, nemo, pytorch-fsdp, ... or a TOML file; gives what "
        "--scheduler, --channels and --overlap do not, what is fused, and the host's time.",
    ),
]
DurationsFlag = Annotated[
    str,
    typer.Option(
        "--durations",
        help="Of traces: trace (as recorded), estimated (from operations and bytes, on --on), or auto: as recorded where they "
        "are of the same device.",
    ),
]
LeversFlag = Annotated[
    str | None,
    typer.Option(
        "--levers",
        metavar="N|none|all",
        help="How many changes are predicted to see what would help most, or what would make it fit; a few by default.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs instead of tables for people.")]
Dims = Annotated[list[str] | None, typer.Option("--dim", help="Size of a dynamic dimension: B=32, or arg0.1=32.")]
TripCounts = Annotated[
    list[str] | None,
    typer.Option("--trip-count", help="Trips of loops whose count is not in the program: N, or while#2=N."),
]
Settings = Annotated[list[str] | None, typer.Option("--set", help="A setting of a zoo model: seq=8192.")]
PlanText = Annotated[
    str | None,
    typer.Option(
        "--plan",
        metavar="KEY=VALUE,...",
        help="How a model of the zoo is trained in parallel: dp=4,fsdp=8,tp=8,sp=1,pp=8,vp=2,cp=2,ep=1,mbs=1,remat=selective "
        "and more (docs/plans.md); the global batch is --set batch=N.",
    ),
]
MeasuredFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--measured",
        metavar="TRACE",
        help="A profile of a real run: JAX's .xplane.pb or its folder, torch.profiler's .json[.gz] or a folder "
        "with one a rank, or the CSV of nsys stats; may be repeated for several ranks.",
    ),
]
StepsFlag = Annotated[
    int | None, typer.Option("--steps", help="Steps in each TRACE, where they cannot be found in it.")
]
ModuleFlag = Annotated[
    str | None,
    typer.Option("--module", metavar="NAME", help="The XLA module to compare with, of a TRACE with several."),
]
Indices = Annotated[
    str,
    typer.Option("--indices", help="How gather and scatter indices are spread: uniform, or zipf:S such as zipf:1.05."),
]
Approximate = Annotated[
    bool, typer.Option("--approximate", help="Go on with unknown custom calls, costed by their bytes.")
]


def pairs(texts: list[str] | None, flag: str) -> dict[str, str]:
    """`NAME=VALUE` texts as a dictionary."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"{text!r} is not NAME=VALUE", where=flag, fix=f"write {flag} NAME=VALUE")
        if name in found:
            raise UsageError(f"{name!r} is given twice, as {found[name]} and {value}", where=flag, fix="give it once")
        found[name] = value
    return found


def sizes(texts: list[str] | None, flag: str) -> dict[str, int]:
    """`NAME=N` texts as positive integers."""
    return {name: positive(value, flag) for name, value in pairs(texts, flag).items()}


def trip_counts(texts: list[str] | None) -> dict[str, int]:
    """`N` for every unknown loop, or `while#2=N` for one."""
    found = sizes([text for text in texts or () if "=" in text], "--trip-count")
    for text in texts or ():
        if "=" not in text:
            if "*" in found:
                raise UsageError(f"a second count for all loops: {text}", where="--trip-count", fix="give it once")
            found["*"] = positive(text, "--trip-count")
    return found


def positive(text: str, flag: str) -> int:
    """A positive integer."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value < 1 << 63:
        raise UsageError(f"{text!r} is not a positive integer below 2^63", where=flag, fix="give a number from 1 on")
    return value


def whole(text: str, flag: str) -> int:
    """An integer of 0 or more."""
    return 0 if text == "0" else positive(text, flag)


# Fields of `Options` that flags have other names for.
_FIELDS = {
    "dim": "dims",
    "trip_count": "trip_counts",
    "setting": "settings",
    "slow": "conditions",
    "links": "conditions",
    "background": "conditions",
}


def lever_count(text: str | None) -> bool | int:
    """What `--levers` says, as options have it."""
    from meshcast.options import ALL_LEVERS

    return (
        {None: True, "none": False, "all": ALL_LEVERS}[text]
        if text in (None, "none", "all")
        else whole(text, "--levers")
    )


def options(
    *, on: str, stack: str | None = None, written: tuple[str, ...] = (),
    devices: int | None = None, mesh: str | None = None, fidelity: str = "auto",
    network: str = "alpha-beta", dims: list[str] | None = None, trips: list[str] | None = None,
    settings: list[str] | None = None, approximate: bool = False, levers: bool | int = False, partitioner: str = "shardy",
    clocks: str = "sustained", host: str = "auto", indices: str = "uniform", lowering: str = "auto",
    profile: str | None = None, simulator: str | None = None, scheduler: str = "latency-hiding", channels: int = 0,
    contention: str = "on", overlap: str = "", placement: str | None = None, slow: list[str] | None = None,
    links: list[str] | None = None, background: list[str] | None = None, fabric: str | None = None,
    beside: list[str] | None = None, plan: str | None = None, durations: str = "auto",
) -> Options:  # fmt: skip
    """The pipeline's options from the flags; a stack gives those that are not `written`."""
    from meshcast.base import Mesh

    # Imported here: `--help`, `devices` and `doctor` must not pay for jaxlib, nor fail where it is broken.
    from meshcast.hardware import parse_conditions
    from meshcast.jobs import with_stack
    from meshcast.options import Options, option_places

    chosen = Options(
        on=on,
        devices=devices,
        mesh=Mesh.parse(mesh).sizes if mesh is not None else None,
        fidelity=fidelity,
        profile=profile,
        simulator=simulator,
        network=network,
        partitioner=partitioner,
        lowering=lowering,
        clocks=clocks,
        host=host,
        dims=sizes(dims, "--dim"),
        trip_counts=trip_counts(trips),
        settings=pairs(settings, "--set"),
        indices=indices,
        approximate=approximate,
        levers=levers,
        scheduler=scheduler,
        channels=channels,
        contention=contention,
        overlap=overlap,
        conditions=parse_conditions(slow=slow or (), links=links or (), background=background or ()),
        placement=placement,
        fabric=fabric,
        beside=tuple(beside or ()),
        plan=plan,
        durations=durations,
        written=tuple(sorted({_FIELDS.get(name, name) for name in written} & option_places().keys())),
    )
    return with_stack(chosen, stack, but=written)


def written_flags(context: typer.Context) -> tuple[str, ...]:
    """Flags that the command line has: a stack gives only what they leave open."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return tuple(name for name, source in sources.items() if source is not None and source.name != "DEFAULT")
