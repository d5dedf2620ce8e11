"""`Program`: StableHLO plus what the text alone cannot say: the mesh, what each argument is, where it came from."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from meshcast.capture.mlir import ir, sdy, to_bytecode
from meshcast.errors import InputError
from meshcast.mesh import Mesh


class Role(StrEnum):
    """What an argument of the program is, where it is known."""

    PARAMETER = "parameter"
    OPTIMIZER_STATE = "optimizer_state"
    BATCH = "batch"
    CACHE = "cache"
    UNKNOWN = "unknown"


_ROLE_PATTERNS = (
    (Role.OPTIMIZER_STATE, re.compile(r"opt|adam|moment|\b(mu|nu)\b")),
    (Role.PARAMETER, re.compile(r"param|weight|variables")),
    (Role.CACHE, re.compile(r"cache|\bkv\b")),
    (Role.BATCH, re.compile(r"batch|token|input|image|label|target|\bids\b")),
)


def role_of(name: str) -> Role:
    """The role an argument's own name gives away, or unknown: never guessed from shapes."""
    head = re.split(r"[\[.]", name.lower(), maxsplit=1)[0]
    for role, pattern in _ROLE_PATTERNS:
        if pattern.search(head):
            return role
    return Role.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of the entry function."""

    name: str
    role: Role
    donated: bool
    aliased_output: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A captured program. `module` is an MLIR module object; treat it as read-only (stages clone before rewriting)."""

    name: str
    module: Any
    mesh: Mesh
    arguments: tuple[Argument, ...]
    source: str
    sha256: str
    partitioned: bool = False

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

    def __str__(self) -> str:
        return f"Program {self.name}: {len(self.arguments)} arguments, mesh {self.mesh}, from {self.source}"


def entry_function(module: Any, *, where: str) -> Any:
    """The public `main` function, or the only function there is."""
    functions = [op for op in module.body.operations if op.operation.name == "func.func"]
    if not functions:
        raise InputError("the module is empty: it has no function", where=where, fix="export a program with an entry function")
    for function in functions:
        if ir.StringAttr(function.attributes["sym_name"]).value == "main":
            return function
    public = [f for f in functions if "sym_visibility" not in f.attributes or "private" not in str(f.attributes["sym_visibility"])]
    if len(public) == 1:
        return public[0]
    names = ", ".join("@" + ir.StringAttr(f.attributes["sym_name"]).value for f in functions[:5])
    raise InputError(f"no function named @main among {len(functions)} functions ({names})", where=where, fix="name the entry function @main")


def module_mesh(module: Any) -> Mesh:
    """The largest `sdy.mesh` of the module; one device where there is none."""
    best = Mesh()
    for op in module.body.operations:
        if op.operation.name == "sdy.mesh":
            attr = sdy.MeshAttr(op.operation.attributes["mesh"])
            mesh = Mesh(axes=tuple((a.name, a.size) for a in map(sdy.MeshAxisAttr, attr.axes)))
            best = max(best, mesh, key=lambda m: m.size)
    if best.size == 1 and "mhlo.num_partitions" in module.operation.attributes:
        # A program that is per-device already (explicit collectives, no mesh): one flat axis of its devices.
        attributes = module.operation.attributes
        count = ir.IntegerAttr(attributes["mhlo.num_partitions"]).value
        if "mhlo.num_replicas" in attributes:
            count *= ir.IntegerAttr(attributes["mhlo.num_replicas"]).value
        if count > 1:
            return Mesh(axes=(("devices", count),))
    return best


def from_module(
    module: Any, *, name: str, source: str, sha256: str | None = None, names: tuple[str, ...] | None = None
) -> Program:
    """A `Program` around a parsed module, its arguments read from attributes and debug locations."""
    main = entry_function(module, where=source)
    block = main.operation.regions[0].blocks[0]
    attributes = main.attributes["arg_attrs"] if "arg_attrs" in main.attributes else None
    arguments = []
    for index, value in enumerate(block.arguments):
        marks = ir.DictAttr(attributes[index]) if attributes is not None else {}
        alias = ir.IntegerAttr(marks["tf.aliasing_output"]).value if "tf.aliasing_output" in marks else None
        label = names[index] if names is not None and index < len(names) else _location_name(value)
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
        mesh=module_mesh(module),
        arguments=tuple(arguments),
        source=source,
        sha256=sha256 or hashlib.sha256(to_bytecode(module)).hexdigest(),
        partitioned="meshcast.partitioned" in module.operation.attributes,
    )


def _location_name(value: Any) -> str:
    location = getattr(value, "location", None)
    text = getattr(location, "name_str", "") or ""
    return str(text)
