"""Sources: where programs come from. Each is read, or run, once, and captured once for each way it is asked for.

A source is made by looking at a target (`source_of`), which neither reads a file nor runs a function: that is done when the
first program is asked for.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from meshcast import zoo
from meshcast.base import AnsweredOnce, InputError, MeshcastError, UsageError, refuse_nul
from meshcast.programs.profiles import refuse_profile_file
from meshcast.programs.program import Program
from meshcast.programs.target import STANDARD_INPUT, CaptureOptions, Target, setting_value
from meshcast.programs.user_code import import_function, keep_off_accelerators, neighbours_importable, stdout_to_stderr
from meshcast.programs.user_lines import raised

_RETURNS = (
    "a function without arguments returns a Program, a Lowered, an Exported, an ExportedProgram of PyTorch, (fn, args) or "
    "(fn, args, options), where fn may be a PyTorch module"
)
# What is called so can only be a file.
_SUFFIXES = {".mlir", ".mlirbc", ".hlo", ".gz", ".et", ".json", ".py"}
# And what ends like a file can hardly be a model, whose names have digits behind their dots (`qwen2.5-7b`).
_ENDING = re.compile(r"\.[A-Za-z]\w{0,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A model of the zoo, or of a Hugging Face configuration: a program for each mesh, settings and platform."""

    builder: zoo.Builder

    @property
    def called(self) -> str:
        """What errors call it."""
        return self.builder.name

    def program(self, options: CaptureOptions) -> Program:
        """The model with its settings, over the mesh."""
        keep_off_accelerators()
        mesh = None if options.mesh is None else tuple(options.mesh.items())
        program = _captured_model(self.builder, mesh, tuple(options.settings.items()), options.platform)
        return _without_dims(program, options, where=self.builder.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSource:
    """A file, or a function that is run, by its name; whether there is one is found out when a program is asked for."""

    called: str
    _kept: AnsweredOnce = field(default_factory=AnsweredOnce, repr=False, compare=False)

    def program(self, options: CaptureOptions) -> Program:
        """The program in the file, or of what the function gives.

        Raises:
            InputError: There is no such file, or it cannot be read.
            UsageError: It names neither a file nor a function; or the function cannot be used.
        """
        refuse_nul(self.called, where="target")
        path = Path(self.called)
        if path.suffix in {".yaml", ".yml"}:
            raise UsageError(
                "a YAML file is no target: pipelines are TOML",
                where=self.called,
                fix="write the pipeline as a .toml file (docs/pipelines.md); programs are StableHLO",
            )
        if path.exists() and not path.is_dir():
            return self._of_file(path, options)
        head, colon, function = self.called.rpartition(":")
        if colon and function.isidentifier():
            return self._of_function(head, function, options)
        if path.is_dir():
            raise InputError(
                "is a folder, not a program: it has no config.json, and nothing that explore or compare wrote",
                where=self.called,
                fix="name a file, or a run folder (report)",
            )
        if "/" in self.called or path.suffix in _SUFFIXES:
            raise InputError("no such file", where=self.called, fix="check the path")
        if _ENDING.fullmatch(path.suffix):
            raise InputError(
                "no such file", where=self.called, fix="check the path; a function is written module:function"
            )
        if "=" in self.called:
            raise UsageError(
                f"{self.called!r} is no target", where="TARGET", fix=f"a setting is written --set {self.called}"
            )
        if any(zoo.spelling(known) == zoo.spelling(self.called) for known in zoo.RECOMMENDERS):
            raise UsageError(
                f"{self.called!r} has embedding tables, which are shared out over devices: it is no single program",
                where="TARGET",
                fix=f"meshcast predict {self.called} and meshcast tables plan take it (docs/recommenders.md)",
            )
        raise UsageError(
            f"{self.called!r} is neither a file, a module:function nor a model",
            where="TARGET",
            fix=zoo.hint(self.called),
        )

    def _of_file(self, path: Path, options: CaptureOptions) -> Program:
        from meshcast.programs.files import read_program

        if path.suffix == ".py":
            raise UsageError("a Python file needs a function", where=self.called, fix=f"write {self.called}:FUNCTION")
        _refuse_settings(options, "files", where=str(path))
        # What a file holds has been lowered for a platform already, or for none: its sizes alone are still to be said.
        return self._kept.answer(_sizes(options), lambda: read_program(path, dims=options.dims))

    def _of_function(self, head: str, function: str, options: CaptureOptions) -> Program:
        if options.settings:
            raise UsageError(
                "--set applies to models of the zoo; give the function defaults instead",
                where=self.called,
                fix="leave --set out, and write the values into the function",
            )
        key = (options.platform, options.kernels, _sizes(options))
        return self._kept.answer(key, lambda: self._captured(head, function, options))

    def _captured(self, head: str, function: str, options: CaptureOptions) -> Program:
        keep_off_accelerators()
        # What the user's code prints must not come between our JSON lines; it may import its neighbours when it is traced, too.
        with stdout_to_stderr(), neighbours_importable(head):
            made = self._kept.answer(None, lambda: _returned(head, function, self.called))
            return _from_object(made, options, name=function, where=self.called)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSource:
    """What standard input holds, which can be read once."""

    called: str = STANDARD_INPUT
    _kept: AnsweredOnce = field(default_factory=AnsweredOnce, repr=False, compare=False)

    def program(self, options: CaptureOptions) -> Program:
        """The program that it holds."""
        from meshcast.programs.files import from_bytes, read_stream

        where = "standard input"
        _refuse_settings(options, where, where=STANDARD_INPUT)
        data = self._kept.answer(None, lambda: read_stream(sys.stdin.buffer, where=where))
        return self._kept.answer(
            _sizes(options), lambda: from_bytes(data, name="stdin", where=where, dims=options.dims)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSource:
    """A program itself, or what one is captured from."""

    made: Any
    called: str = ""  # it has no name
    _kept: AnsweredOnce = field(default_factory=AnsweredOnce, repr=False, compare=False)

    def program(self, options: CaptureOptions) -> Program:
        """The object's program."""
        _refuse_settings(options, "objects", where="target")
        key = (options.platform, options.kernels, _sizes(options))
        return self._kept.answer(key, lambda: _from_object(self.made, options, name=None, where="target"))


ProgramSource: TypeAlias = ModelSource | NamedSource | StreamSource | ObjectSource


def source_of(target: Target) -> ProgramSource:
    """Where a target's programs come from.

    Raises:
        InputError: A file is no configuration of Hugging Face's, lacks a size, or is a profiler's trace.
        UnsupportedError: Its model, or a variant of it, is not in the zoo.
    """
    if not isinstance(target, (str, Path)):
        return ObjectSource(made=target)
    if str(target) == STANDARD_INPUT:
        return StreamSource()
    path = Path(target)
    if path.suffix == ".json" and "\0" not in str(target) and path.is_file():  # as a configuration is
        refuse_profile_file(path)
    builder = zoo.model_named(target)
    return ModelSource(builder=builder) if builder is not None else NamedSource(called=str(target))


def _sizes(options: CaptureOptions) -> Hashable:
    return tuple(options.dims.items())


def _refuse_settings(options: CaptureOptions, kind: str, *, where: str) -> None:
    if options.settings:
        raise UsageError(f"--set applies to models of the zoo, not to {kind}", where=where, fix="leave it out")


@lru_cache(maxsize=16)
def _captured_model(
    builder: zoo.Builder, mesh: tuple[tuple[str, int], ...] | None, given: tuple[tuple[str, str], ...], platform: str
) -> Program:
    """The program of a model, kept: other hardware is asked about the same program."""
    from meshcast.programs.jax_function import capture

    settings = {key: setting_value(value) for key, value in given}
    try:
        fn, args, jit_options = builder(None if mesh is None else dict(mesh), **settings)
    except (TypeError, ValueError) as error:
        if not settings:
            raise
        said = ", ".join(f"{key}={value}" for key, value in given)
        raise UsageError(
            f"{builder.name} cannot be built with {said}: {error}",
            where="--set",
            fix="leave out what it names, or give it another value: meshcast models NAME has all settings",
        ) from error
    program = capture(fn, *args, name=builder.name, platform=platform, options=jit_options, uneven=True)
    return replace(program, notes=builder.remarks(None if mesh is None else dict(mesh), **settings))


def _returned(head: str, function: str, text: str) -> Any:
    """What a function of the user's own returns.

    Raises:
        InputError, UsageError: It cannot be imported, wants arguments, or fails.
    """
    builder = import_function(head, function, text)
    try:
        inspect.signature(builder).bind()
    except TypeError as error:
        message = f"{function}() cannot be called without arguments: {error}"
        raise UsageError(message, where=text, fix=_RETURNS) from None
    except ValueError:
        pass  # a builtin without a signature
    try:
        return builder()
    except MeshcastError:
        raise
    except (Exception, SystemExit) as error:
        raise raised(error, f"{function}() failed", where=text) from error


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
        program = capture_torch(fn, args, jit_options, name=name, platform=options.platform, kernels=options.kernels)  # type: ignore[arg-type]
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
