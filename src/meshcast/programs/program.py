"""`Program`: StableHLO plus what the text alone cannot say: the mesh, what each argument is, where it came from."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from meshcast.base import InputError, Mesh, Rows, UsageError, read_counts, read_mesh, shown
from meshcast.programs.device_ids import count_devices, may_name_devices
from meshcast.programs.mlir import ir, sdy, string_of, symbol_of, to_bytecode
from meshcast.programs.roles import Role as Role
from meshcast.programs.roles import role_of

if TYPE_CHECKING:
    from meshcast.hardware import Cluster, Device
    from meshcast.jobs import Run
    from meshcast.options import Options, PlacedKeywords
    from meshcast.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of the entry function."""

    name: str
    role: Role
    donated: bool
    aliased_output: int | None


@shown
@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A captured program. `module` is an MLIR module object; treat it as read-only (stages clone before rewriting).

    The stages behind are methods: `program.partition().workload().lower().on("h200").predict()`.
    """

    name: str
    module: Any
    mesh: Mesh
    arguments: tuple[Argument, ...]
    source: str
    sha256: str
    partitioned: bool = False
    notes: tuple[str, ...] = ()  # where the program is not quite what it was made from
    facts: tuple[
        tuple[str, str], ...
    ] = ()  # what its capture knows of how it was made, as inputs are told: name, value
    named: bool = True  # whether debug locations may name its ops: False where its text is known to have none

    @property
    def devices(self) -> int:
        """Devices the program is written for."""
        return self.mesh.size

    @property
    def bytecode(self) -> bytes:
        """The program as MLIR bytecode."""
        return to_bytecode(self.module)

    @property
    def text(self) -> str:
        """The program as StableHLO text."""
        return str(self.module)

    @property
    def names(self) -> list[str]:
        """Names in debug locations, of the entry function's arguments and of all ops in the text's order; none without any."""
        if not self.named:
            return []
        found = list(argument_names(self.module, where=self.name))

        def note(operation: Any) -> Any:
            found.append(_location_name(operation))
            return ir.WalkResult.ADVANCE

        self.module.operation.walk(note, ir.WalkOrder.PRE_ORDER)
        return found if any(found) else []

    def partition(
        self, *, mesh: Mapping[str, int] | Mesh | str | None = None, route: str = "shardy", optimise: bool = True
    ) -> Program:
        """The program of one device, with explicit collectives (`partition.partition`).

        Args:
            mesh: Axis sizes that replace the program's own, as a dict, a `Mesh` or a text; unnamed axes keep theirs.
            route: `shardy`, or `xla` for XLA's own partitioner.
            optimise: Shardy only: merge collectives as XLA's later passes do.

        Raises:
            UsageError: There is no such route, or it is no mesh.
            InfeasibleError: The mesh does not divide the program.
        """
        from meshcast.partition import partition

        return partition(self, mesh=read_mesh("mesh", mesh), route=route, optimise=optimise)

    def workload(
        self, *, trip_counts: Mapping[str, int] | None = None, approximate: bool = False, skew: float = 0.0
    ) -> Workload:
        """The op graph of one device, with FLOPs, bytes, loops and collectives (`workload.read_workload`).

        Args:
            trip_counts: Trips of loops whose count is not in the program, by the loop's label; `*` for every such loop.
            approximate: Cost unknown custom calls by their bytes instead of refusing them.
            skew: The exponent of the Zipf law that gather and scatter indices follow; 0: uniform.

        Raises:
            UnsupportedError: No rule covers an op, a dtype or a custom call.
            UsageError: The program is sharded and not partitioned yet, or a trip count is missing, or is given for no loop.
        """
        from meshcast.workload import ReadOptions, read_workload

        if self.devices > 1 and not self.partitioned:
            raise UsageError(
                f"the program is sharded over {self.devices} devices ({self.mesh}): only one device's program is read",
                where=self.name,
                fix="partition it first: program.partition().workload()",
            )
        trips = {} if trip_counts is None else dict(read_counts("trip_counts", trip_counts))
        read = ReadOptions(trip_counts=trips, approximate=approximate, skew=skew)
        return read_workload(self, read)

    def on(
        self, hardware: str | Device | Cluster, options: Options | None = None, **overrides: Unpack[PlacedKeywords]
    ) -> Run:
        """The program partitioned, read and lowered for chosen hardware: all stages up to the times of its kernels.

        Args:
            hardware: A device or cluster of the catalogue, a file, or one of `Device` and `Cluster`.
            options: All settings at once.
            **overrides: Single settings, as `meshcast.predict` takes them.

        Raises:
            MeshcastError: As `meshcast.predict` does, short of what timing the step may refuse.
        """
        from meshcast.jobs import program_on

        return program_on(self, hardware, options, overrides)

    def summary_rows(self) -> Rows:
        """Rows with the program's source, its mesh and its arguments by role."""
        roles: dict[str, int] = {}
        for argument in self.arguments:
            roles[argument.role.value] = roles.get(argument.role.value, 0) + 1
        donated = sum(argument.donated for argument in self.arguments)
        return [
            ("program", self.name),
            ("from", self.source),
            ("devices", f"{self.devices} ({self.mesh})" + (", partitioned" if self.partitioned else "")),
            ("arguments", ", ".join(f"{n} {role}" for role, n in roles.items()) + f"; {donated} donated"),
            ("sha256", self.sha256),
        ]


def own_launches(program: Program) -> bool:
    """Whether a program is made of a framework's own launches, one by one, and not of what XLA would compile."""
    return "meshcast.told" in program.module.operation.attributes


def entry_function(module: Any, *, where: str) -> Any:
    """The public `main` function, or the only function there is."""
    functions = [op for op in module.body.operations if op.operation.name == "func.func" and len(op.regions[0].blocks)]
    if not functions:
        raise InputError(
            "the module is empty: it has no function with a body",
            where=where,
            fix="export a program with an entry function",
        )
    for function in functions:
        if string_of(function.attributes["sym_name"]) == "main":
            return function
    public = [f for f in functions if not _is_private(f)]
    if len(public) == 1:
        return public[0]
    names = ", ".join("@" + string_of(f.attributes["sym_name"]) for f in functions[:5])
    raise InputError(
        f"no function named @main among {len(functions)} functions ({names})",
        where=where,
        fix="name the entry function @main",
    )


def _is_private(function: Any) -> bool:
    return "sym_visibility" in function.attributes and "private" in str(function.attributes["sym_visibility"])


def module_mesh(module: Any) -> Mesh:
    """The mesh that the module states: its largest `sdy.mesh`, else one flat axis of its partitions times replicas."""
    mesh = _named_mesh(module)
    stated = _stated_devices(module) or 1
    return _flat(stated) if mesh.size == 1 and stated > 1 else mesh


def _devices(module: Any, *, where: str, collectives: bool) -> Mesh:
    """The mesh that the module states, else as many devices as its collectives name, where it may have such.

    Raises:
        InputError: The collectives contradict what is stated, or do not say enough.
    """
    mesh = module_mesh(module)
    if not collectives:
        return mesh
    is_stated = bool(mesh.axes) or _stated_devices(module) is not None
    named = count_devices(module, stated=mesh.size if is_stated else None, where=where)
    return _flat(named) if named > mesh.size else mesh


def _named_mesh(module: Any) -> Mesh:
    best = Mesh()
    for op in module.body.operations:
        if op.operation.name == "sdy.mesh":
            attr = sdy.MeshAttr(op.operation.attributes["mesh"])
            mesh = Mesh(axes=tuple((a.name, a.size) for a in map(sdy.MeshAxisAttr, attr.axes)))
            best = mesh if mesh.size > best.size or not best.axes else best
    return best


def _stated_devices(module: Any) -> int | None:
    """Partitions times replicas; None where neither is above one and one is not given: it may be anything."""
    attributes = module.operation.attributes
    names = ("mhlo.num_partitions", "mhlo.num_replicas")
    counts = [int(ir.IntegerAttr(attributes[name]).value) for name in names if name in attributes]
    count = math.prod(counts)
    return count if count > 1 or len(counts) == len(names) else None


def _flat(devices: int) -> Mesh:
    """The mesh of a program that is per-device already: explicit collectives, no axes."""
    return Mesh(axes=(("devices", devices),))


def from_module(
    module: Any,
    *,
    name: str,
    source: str,
    sha256: str | None = None,
    names: tuple[str, ...] | None = None,
    text: str | None = None,
) -> Program:
    """A `Program` around a parsed module, its arguments read from attributes and debug locations.

    Args:
        module: The MLIR module.
        name: The program's.
        source: The module's origin, for messages.
        sha256: Of what it was read from; by default of its bytecode.
        names: Of its arguments; by default those of debug locations.
        text: What it was parsed from, where that was MLIR text: no op has to be asked about what no word in it names.
    """
    main = entry_function(module, where=source)
    names = names or argument_names(module, where=source)
    block = main.operation.regions[0].blocks[0]
    marked = main.attributes.get("arg_attrs")
    aliases = _module_aliases(module)
    arguments = []
    for index in range(len(block.arguments)):
        marks: Any = ir.DictAttr(marked[index]) if marked is not None else {}
        alias = (
            ir.IntegerAttr(marks["tf.aliasing_output"]).value if "tf.aliasing_output" in marks else aliases.get(index)
        )
        label = names[index] if index < len(names) else ""
        arguments.append(
            Argument(
                name=label or f"arg{index}",
                role=role_of(label),
                donated=alias is not None or "jax.buffer_donor" in marks,
                aliased_output=alias,
            )
        )
    return Program(
        name=name,
        module=module,
        mesh=_devices(module, where=source, collectives=text is None or may_name_devices(text)),
        arguments=tuple(arguments),
        source=source,
        sha256=sha256 or hashlib.sha256(to_bytecode(module)).hexdigest(),
        partitioned="meshcast.partitioned" in module.operation.attributes,
        named=text is None or "loc" in text,
    )


def _module_aliases(module: Any) -> dict[int, int]:
    """Outputs by the parameter whose buffer they take, as HLO's header says it (`input_output_alias`)."""
    name = "mhlo.input_output_alias"
    found: dict[int, int] = {}
    if name not in module.operation.attributes:
        return found
    for each in module.operation.attributes[name]:
        entry = ir.DictAttr(each)
        alias = ir.DictAttr(entry["alias"])
        output = list(ir.DenseI64ArrayAttr(entry["output_index"]))
        if len(ir.DenseI64ArrayAttr(alias["parameter_index"])) == 0:  # a whole parameter, not an element of a tuple
            found[ir.IntegerAttr(alias["parameter_number"]).value] = output[0] if output else 0
    return found


def argument_names(module: Any, *, where: str) -> tuple[str, ...]:
    """Names of the entry function's arguments from debug locations, empty where there is none.

    Where the entry function only wraps another one (`jax.export` with symbolic sizes), the inner names count.
    """
    main = entry_function(module, where=where)
    arguments = list(main.operation.regions[0].blocks[0].arguments)
    names = [_location_name(value) for value in arguments]
    if all(names):
        return tuple(names)
    functions = [op for op in module.body.operations if op.operation.name == "func.func" and len(op.regions[0].blocks)]
    if len(functions) == 1:
        return tuple(names)  # it calls nobody: its arguments' uses, of which there may be as many as ops, say nothing
    parameters = {string_of(op.attributes["sym_name"]): op.regions[0].blocks[0].arguments for op in functions}
    for index, value in enumerate(arguments):
        for use in value.uses if not names[index] else ():
            user = use.owner.operation
            if user.name == "func.call":
                callee = symbol_of(user.attributes["callee"])
                names[index] = names[index] or _location_name(parameters[callee][use.operand_number])
    return tuple(names)


def result_names(module: Any, *, where: str) -> tuple[str, ...]:
    """Paths of the entry function's results as JAX notes them (`result[0]['w']`), empty where there is none."""
    main = entry_function(module, where=where)
    count = len(ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).results)
    if "res_attrs" not in main.attributes:
        return ("",) * count
    names = []
    for index in range(count):
        marks = ir.DictAttr(main.attributes["res_attrs"][index])
        said = string_of(marks["jax.result_info"]) if "jax.result_info" in marks else ""
        names.append(said if not said or said.startswith("result") else f"result{said}")  # older JAX leaves it out
    return tuple(names)


def _location_name(value: Any) -> str:
    location = getattr(value, "location", None)
    text = getattr(location, "name_str", "") or ""
    return str(text)
