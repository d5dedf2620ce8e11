"""Everything a prediction depends on besides the program: `Options`, in a part for each stage."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meshcast.base import UsageError, checked, nearest
from meshcast.options.declared import declared_fields, key_of, option
from meshcast.options.estimate_options import EstimateOptions
from meshcast.options.flag_texts import whole
from meshcast.options.lowering_options import LoweringOptions
from meshcast.options.network_options import NetworkOptions
from meshcast.options.parts import OptionParts, OptionPlace, default_parts, part_places, with_values
from meshcast.options.program_options import ProgramOptions
from meshcast.options.run_options import RunOptions

if TYPE_CHECKING:
    from meshcast.hardware import Cluster
    from meshcast.options.brought import Brought
    from meshcast.options.stacks import Stack
    from meshcast.simulate import Scheduling

ALL_LEVERS = 10_000  # as good as all: no question has more than some dozens of candidates
# What options keep about themselves: no way to ask for anything.
KEPT = ("brought", "written")


def _on(name: str, value: Any) -> str | Cluster:
    if isinstance(value, str):
        return str(checked(name, value, (str,)))
    from meshcast.hardware import Cluster, Device, resolve

    found: str | Device | Cluster = checked(name, value, (str, Device, Cluster))
    return resolve(found) if isinstance(found, Device) else found


def _texts(name: str, value: Any) -> tuple[str, ...]:
    """One text, or several."""
    if isinstance(value, str):
        return (value,)
    return tuple(str(checked(name, each, (str,))) for each in checked(name, value, (tuple, list)))


def _lever_count(levers: str | None) -> bool | int:
    """What `--levers` says; a few where nothing is said."""
    known = {None: True, "none": False, "all": ALL_LEVERS}
    return known[levers] if levers in known else whole(str(levers), "--levers")


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class Options:
    """Everything a prediction depends on besides the program.

    Options are given by their flat names, `Options(on="h200", fidelity="roofline", network="flow")`, as parts,
    `Options(network=NetworkOptions(model="flow"))`, or both; they are read in their parts: `options.estimate.fidelity`.

    Attributes:
        on: The name of a device or cluster of the catalogue, a file, a `Cluster`, or a `Device`, which is kept as its cluster.
        devices: How many; None: as many as the program's mesh has.
        levers: How many changes are predicted to see what would help; True: a few.
        what_if: Changes of the hardware, each predicted alone and those of one text together: `nvlink=2x,hbm=1.5x,sm=+10%`.
        parts: All other options, by stage.
        brought: By a stack; `with_stack` writes it, and it is no way to ask for one.
        written: Flat names of those that are asked for expressly, also where they have their default's value.
    """

    on: str | Cluster = option(
        "h100-sxm",
        flag="--on",
        help="Device or cluster of the catalogue (meshcast devices), or a TOML file.",
        read=_on,
        kinds=(str,),
        takes="str | Device | Cluster",
        of_traces="heeded",
        example=lambda: "h200",
    )
    devices: int | None = option(
        None,
        flag="--devices",
        help="How many devices; must match the program's mesh.",
        kinds=(int, type(None)),
        untold="the count that the prediction is of is told",
    )
    levers: bool | int = option(
        False,
        flag="--levers",
        metavar="N|none|all",
        help="How many changes are predicted to see what would help most, or what would make it fit; a few by default.",
        kinds=(bool, int),
        from_flags=_lever_count,
        unset=None,
        untold="it has no part in the prediction itself",
        of_traces="heeded",
    )
    what_if: tuple[str, ...] = option(
        (),
        flag="--what-if",
        metavar="CHANGES",
        help="The same on changed hardware, each change alone and all together: nvlink=2x,hbm=1.5x,sm=+10%.",
        repeated=True,
        read=_texts,
        from_flags=lambda texts: tuple(texts or ()),
        unset=None,
        untold="it has no part in the prediction itself",
        of_traces="heeded",
        takes="str | Sequence[str]",
        example=lambda: ("hbm=2x",),
    )
    parts: OptionParts
    brought: Brought | None
    written: tuple[str, ...]

    def __init__(
        self,
        *,
        parts: OptionParts | None = None,
        brought: Brought | None = None,
        written: tuple[str, ...] = (),
        **values: Any,
    ) -> None:
        """Options by their flat names or as parts.

        Args:
            parts: Those that `values` are put on top of; by default the defaults.
            brought: As the attribute.
            written: Likewise.
            **values: By flat names, or whole parts by theirs.

        Raises:
            UsageError: There is no such option, or a value is of another kind.
        """
        for name, each in declared_fields(type(self)).items():
            object.__setattr__(self, name, each.taken(values.pop(name)) if name in values else each.default())
        object.__setattr__(self, "parts", with_values(default_parts() if parts is None else parts, values))
        object.__setattr__(self, "brought", brought)
        object.__setattr__(self, "written", tuple(written))

    @property
    def program(self) -> ProgramOptions:
        """Options of the program: sizes, mesh, plan, settings."""
        return self.parts.program

    @property
    def lowering(self) -> LoweringOptions:
        """Options of lowering: whose kernels run, and which rewrites are made."""
        return self.parts.lowering

    @property
    def estimate(self) -> EstimateOptions:
        """Options of the estimate: fidelity, measured kernels, simulator, clocks."""
        return self.parts.estimate

    @property
    def network(self) -> NetworkOptions:
        """Options of the network: its model, placement, and the state of devices and links."""
        return self.parts.network

    @property
    def run(self) -> RunOptions:
        """Options of the run: scheduler, channels, contention, host."""
        return self.parts.run

    def value(self, name: str) -> Any:
        """An option by its flat name, or what is kept beside them."""
        if name in KEPT:
            return getattr(self, name)
        place = option_places()[name]
        return getattr(self if place.part is None else getattr(self.parts, place.part), place.field.attribute)

    def having(self, **values: Any) -> Options:
        """A copy of the options with single ones changed, by their flat names or as parts, whoever has decided that."""
        kept = {name: getattr(self, name) for name in ("on", "devices", "levers", "what_if", "parts", *KEPT)}
        return Options(**{**kept, **values})

    def changed(self, overrides: Mapping[str, object], *, where: str, but: Collection[str] = ()) -> Options:
        """A copy of the options with single ones changed by their flat names, noted as asked for by the user.

        Args:
            overrides: New values by name.
            where: What they are given to.
            but: Options that it takes by other means.

        Raises:
            UsageError: There is none of that name, or it is not for users to write.
        """
        known = option_places().keys() - set(but)
        for name in overrides:
            if name not in known:
                raise UsageError(f"{where} has no setting {name!r}", where=where, fix=nearest(name, sorted(known)))
        return self.having(**overrides, written=tuple(sorted({*self.written, *overrides})))

    def with_stack(self, stack: Stack, *, but: Collection[str] = ()) -> Options:
        """A copy of the options with those that a software stack brings, except where they are chosen already."""
        from meshcast.options.brought import Brought

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
        return self.having(**taken, brought=came)

    @property
    def differing(self) -> frozenset[str]:
        """Flat names of options that do not have their default's value, and of what is kept beside them."""
        default = _default()
        return frozenset(name for name in (*option_places(), *KEPT) if self.value(name) != default.value(name))

    @property
    def asked(self) -> frozenset[str]:
        """Options that the user has asked for: expressly, or by a value that is neither a default nor a stack's."""
        stacks = self.brought.fields if self.brought is not None else ()
        return frozenset((self.differing - set(stacks)) | set(self.written))

    @property
    def asked_lowering(self) -> str:
        """Whose kernels are asked for, a word of `lower.choice.LOWERINGS`: the fidelity `compiled` is about them."""
        compiled = self.lowering.kernels == "auto" and self.estimate.fidelity == "compiled"
        return "compiled" if compiled else self.lowering.kernels

    @property
    def of_many(self) -> Options:
        """The options of one of many questions, such as those of a sweep: kernels are modelled unless somebody asks for others.

        Compilers take seconds to minutes for each program, and their answers are not to be put beside modelled ones.
        """
        said = "lowering" in self.written or self.lowering.kernels != "auto" or self.asked_lowering == "compiled"
        return self if said else self.having(lowering="modelled")

    @property
    def own_hardware(self) -> bool:
        """Whether the hardware is a file of the user's own."""
        from meshcast.hardware import is_own

        return isinstance(self.on, str) and is_own(self.on)

    @property
    def scheduling(self) -> Scheduling:
        """The scheduler's settings: its kind, its channels, how many gathers may wait."""
        from meshcast.simulate import Scheduling

        return Scheduling(
            scheduler=self.run.scheduler, channels=self.run.channels, gathers=self.lowering.rewrites.gathers
        )

    @property
    def key(self) -> tuple[object, ...]:
        """Everything that these say, as a key: whatever is declared has a place in it."""
        return (key_of(self), *(key_of(part) for part in self.parts), self.brought, self.written)

    def check_choices(self) -> None:
        """Refuses what nothing and no device could be predicted with: clocks, network, host, durations of traces.

        Raises:
            UsageError: One is not among the values it may have.
        """
        for name, place in _chosen():
            place.field.check_choice(self.value(name))
        self.scheduling  # noqa: B018  # refuses what it cannot be


@functools.cache
def option_places() -> dict[str, OptionPlace]:
    """Every option by its flat name: those of the whole first, then by stage."""
    return {name: OptionPlace(None, each) for name, each in declared_fields(Options).items()} | part_places()


@functools.cache
def _chosen() -> tuple[tuple[str, OptionPlace], ...]:
    """Options that have only so many values."""
    return tuple(each for each in option_places().items() if each[1].field.declaration.one_of is not None)


@functools.cache
def _default() -> Options:
    return Options()


def given_options(options: Options | None) -> Options:
    """The options of a call; the defaults where it has none.

    Raises:
        UsageError: It is something else.
    """
    if options is None:
        return _default()
    if not isinstance(options, Options):
        raise UsageError(
            f"options are meshcast.Options, not {options!r}", where="options", fix='such as meshcast.Options(on="h200")'
        )
    return options
