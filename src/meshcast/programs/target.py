"""TARGET, as the command line takes it.

A file, `module:function`, `path.py:function`, a Hugging Face `config.json` or its folder, or a model of the zoo.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from meshcast import zoo
from meshcast.base import InputError, MeshcastError, UsageError, expect, nearest, refuse_nul
from meshcast.programs.program import Program
from meshcast.programs.user_code import import_function, keep_off_accelerators, neighbours_importable, stdout_to_stderr
from meshcast.programs.user_lines import raised

if TYPE_CHECKING:
    from jax.export import Exported
    from jax.stages import Lowered

STANDARD_INPUT = "-"
_RETURNS = (
    "a function without arguments returns a Program, a Lowered, an Exported, an ExportedProgram of PyTorch, (fn, args) or "
    "(fn, args, options), where fn may be a PyTorch module"
)


class TorchExported(Protocol):
    """A `torch.export.ExportedProgram`, for type checkers that have no torch: to them its own name would be anything."""

    @property
    def graph_module(self) -> Any:
        """Its operators."""

    @property
    def graph_signature(self) -> Any:
        """Which of its inputs are parameters, buffers and arguments."""


# What `load` takes; a tuple is a function or a module, its arguments, and options.
Target: TypeAlias = "str | Path | bytes | Program | Lowered | Exported | TorchExported | tuple[Any, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """What a target's own text cannot say."""

    platform: str = "cuda"
    dims: Mapping[str, int] = field(default_factory=dict)
    mesh: Mapping[str, int] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


def load(target: Target, options: CaptureOptions | None = None, **overrides: Any) -> Program:
    """The program a target names, or is: `load("step.mlir")`, `load("gpt2-small", settings={"batch": 8})`.

    Args:
        target: What the command line takes, as text or path; or an object: a `Program`, a `jax.stages.Lowered`, a
            `jax.export.Exported` or its bytes, `(fn, args)` or `(fn, args, jit_options)`, or with tensors of PyTorch
            `(module, args)` or `(module, args, options)`, or a `torch.export.ExportedProgram`.
        options: What the target itself cannot say.
        **overrides: Single ones, by the field names of `CaptureOptions`: `platform`, `dims`, `mesh`, `settings`.

    Raises:
        MeshcastError: There is no such target, it cannot be read, or an option is not one of these.
    """
    options = _chosen(CaptureOptions() if options is None else options, overrides)
    if isinstance(target, (str, Path)):
        refuse_nul(target, where="target")
    else:
        _refuse_settings(options, "objects", where="target")
        return _from_object(target, options, name=None, where="target")
    text = str(target)
    path = Path(text)
    if path.suffix in {".yaml", ".yml"}:
        raise UsageError(
            "a YAML file is no target: pipelines are TOML",
            where=text,
            fix="write the pipeline as a .toml file (docs/pipelines.md); programs are StableHLO",
        )
    if text == STANDARD_INPUT:
        return _from_standard_input(options)
    if (builder := zoo.model_named(target)) is not None:
        return _from_builder(builder, options)
    if path.exists() and not path.is_dir():
        if path.suffix == ".py":
            raise UsageError("a Python file needs a function", where=text, fix=f"write {text}:FUNCTION")
        return _from_file(path, options)
    head, colon, function = text.rpartition(":")
    if colon and function.isidentifier():
        return _from_function(head, function, text, options)
    if path.is_dir():
        raise InputError("is a folder, not a program, and has no config.json", where=text, fix="name a file in it")
    if "/" in text or path.suffix in {".mlir", ".mlirbc", ".hlo", ".gz", ".et", ".json", ".py"}:
        raise InputError("no such file", where=text, fix="check the path")
    raise UsageError(f"{text!r} is neither a file, a module:function nor a model", where="TARGET", fix=zoo.hint(text))


def _chosen(options: CaptureOptions, overrides: Mapping[str, Any]) -> CaptureOptions:
    """The options of a call, with single ones changed."""
    fix = "such as settings={'batch': 64}, or CaptureOptions(settings={'batch': '64'}) of meshcast.programs"
    expect(options, CaptureOptions, "CaptureOptions or None", where="options", fix=fix)
    known = [each.name for each in fields(CaptureOptions)]
    for name in overrides:
        if name not in known:
            raise UsageError(f"load has no option {name!r}", where="load", fix=nearest(name, known))
    given = dict(overrides)
    if "settings" in given:
        expect(given["settings"], Mapping, "a dict", where="settings", fix=fix)
        given["settings"] = {name: str(value) for name, value in given["settings"].items()}
    return replace(options, **given)


def _from_standard_input(options: CaptureOptions) -> Program:
    from meshcast.programs.files import from_bytes, read_stream

    _refuse_settings(options, "standard input", where=STANDARD_INPUT)
    data = read_stream(sys.stdin.buffer, where="standard input")
    return from_bytes(data, name="stdin", where="standard input", dims=options.dims)


def _from_file(path: Path, options: CaptureOptions) -> Program:
    from meshcast.programs.files import read_program

    _refuse_settings(options, "files", where=str(path))
    return read_program(path, dims=options.dims)


def _refuse_settings(options: CaptureOptions, kind: str, *, where: str) -> None:
    if options.settings:
        raise UsageError(f"--set applies to models of the zoo, not to {kind}", where=where, fix="leave it out")


def _from_builder(builder: zoo.Builder, options: CaptureOptions) -> Program:
    """A model with its settings, over the mesh."""
    keep_off_accelerators()
    mesh = None if options.mesh is None else tuple(options.mesh.items())
    program = _captured_model(builder, mesh, tuple(options.settings.items()), options.platform)
    return _without_dims(program, options, where=builder.name)


@lru_cache(maxsize=16)
def _captured_model(
    builder: zoo.Builder, mesh: tuple[tuple[str, int], ...] | None, given: tuple[tuple[str, str], ...], platform: str
) -> Program:
    """The same question has the same answer, which is kept: other hardware is asked about the same program."""
    from meshcast.programs.jax_function import capture

    settings = {key: setting_value(value) for key, value in given}
    try:
        fn, args, jit_options = builder(None if mesh is None else dict(mesh), **settings)
    except (TypeError, ValueError) as error:
        if not settings:
            raise
        said = ", ".join(f"{key}={value}" for key, value in given)
        raise UsageError(f"{builder.name} cannot be built with {said}: {error}", where="--set") from error
    program = capture(fn, *args, name=builder.name, platform=platform, options=jit_options)
    return replace(program, notes=builder.remarks(None if mesh is None else dict(mesh), **settings))


def setting_value(text: str) -> Any:
    """A number, a truth, a list of numbers (`3,4,6,3`) or the text itself."""
    if "," in text:
        parts = tuple(setting_value(part) for part in text.split(",") if part)
        return parts if all(isinstance(part, int) for part in parts) else text
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def whole_setting(settings: Mapping[str, Any], name: str) -> int | None:
    """A count among settings, as text or read already; None where it is not set.

    Raises:
        UsageError: It is no positive integer below 2^63.
    """
    value = settings.get(name)
    value = setting_value(value) if isinstance(value, str) else value
    if value is not None and (type(value) is not int or not 1 <= value < 1 << 63):
        raise UsageError(
            f"the setting {name} is a positive integer below 2^63, not {value!r}",
            where="--set",
            fix=f"write such as {name}=8",
        )
    return value


def _from_function(head: str, function: str, text: str, options: CaptureOptions) -> Program:
    if options.settings:
        raise UsageError("--set applies to models of the zoo; give the function defaults instead", where=text)
    keep_off_accelerators()
    # What the user's code prints must not come between our JSON lines.
    with stdout_to_stderr(), neighbours_importable(head):
        builder = import_function(head, function, text)
        try:
            inspect.signature(builder).bind()
        except TypeError as error:
            message = f"{function}() cannot be called without arguments: {error}"
            raise UsageError(message, where=text, fix=_RETURNS) from None
        except ValueError:
            pass  # a builtin without a signature
        try:
            made = builder()
        except MeshcastError:
            raise
        except (Exception, SystemExit) as error:
            raise raised(error, f"{function}() failed", where=text) from error
        return _from_object(made, options, name=function, where=text)


def _from_object(made: Any, options: CaptureOptions, *, name: str | None, where: str) -> Program:
    """The program of a Python object."""
    from meshcast.programs.exported import from_exported
    from meshcast.programs.files import from_bytes
    from meshcast.programs.jax_function import capture, from_lowered
    from meshcast.programs.pytorch import capture_torch, holds_torch, of_exported_program

    if isinstance(made, Program):
        return _without_dims(made, options, where=where)
    if isinstance(made, (bytes, bytearray)):
        return from_bytes(bytes(made), name=name or "program", where=where, dims=options.dims)
    if hasattr(made, "mlir_module_serialized"):
        return from_exported(made, name=name, dims=options.dims)
    if hasattr(made, "compiler_ir"):
        return _without_dims(from_lowered(made, name=name or "program"), options, where=where)
    made = of_exported_program(made)
    said = f"{name}() returned" if name else "cannot predict"
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not callable(made[0]):
        raise UsageError(f"{said} {_described(made)}", where=where, fix=_RETURNS)
    fn, args, jit_options = (*made, {}) if len(made) == 2 else made
    if not isinstance(args, (tuple, list)):
        fix = "write (fn, (x,)) for one argument: args is a tuple of pytrees of shapes or tensors"
        raise UsageError(f"{said} arguments as {_described(args)}, not as a tuple", where=where, fix=fix)
    if not isinstance(jit_options, Mapping):
        raise UsageError(f"{said} options as {_described(jit_options)}, not as a dict", where=where, fix=_RETURNS)
    if holds_torch(fn) or holds_torch((args, jit_options.get("kwargs"))):
        program = capture_torch(fn, args, jit_options, name=name, platform=options.platform)
    else:
        program = capture(fn, *args, name=name, platform=options.platform, options=jit_options)
    return _without_dims(program, options, where=where)


def _without_dims(program: Program, options: CaptureOptions, *, where: str) -> Program:
    """A program whose shapes were fixed when it was captured: sizes for it would have no effect."""
    from meshcast.programs.dynamic_shapes import refuse_unused

    refuse_unused(options.dims, (), where=where)
    return program


def _described(value: Any) -> str:
    kind = type(value).__name__
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else kind
