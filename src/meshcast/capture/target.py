"""TARGET, as the command line takes it: a file, `module:function`, `path.py:function`, or a model of the zoo."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshcast.capture.program import Program
from meshcast.errors import InputError, MeshcastError, UsageError, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """What a target's own text cannot say."""

    platform: str = "cuda"
    dims: Mapping[str, int] = field(default_factory=dict)
    mesh: Mapping[str, int] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


def load(target: str | Path | Program, options: CaptureOptions | None = None) -> Program:
    """The program a target names."""
    options = options or CaptureOptions()
    if isinstance(target, Program):
        return target
    text = str(target)
    path = Path(text)
    if path.is_file():
        if path.suffix == ".py":
            raise UsageError("a Python file needs a function", where=text, fix=f"write {text}:FUNCTION")
        return _from_file(path, options)
    head, colon, function = text.rpartition(":")
    if colon and function.isidentifier():
        return _from_function(head, function, text, options)
    if path.is_dir():
        raise InputError("is a folder, not a program", where=text, fix="name a file in it")
    if "/" in text or path.suffix in {".mlir", ".mlirbc", ".hlo", ".gz", ".et", ".json"}:
        raise InputError("no such file", where=text, fix="check the path")
    return _from_zoo(text, options)


def _from_file(path: Path, options: CaptureOptions) -> Program:
    from meshcast.capture.files import read_program

    if options.settings:
        raise UsageError("--set applies to models of the zoo, not to files", where=str(path))
    return read_program(path, dims=options.dims)


def _from_zoo(name: str, options: CaptureOptions) -> Program:
    from meshcast import models
    from meshcast.capture.jax_function import capture

    names = models.zoo()
    if name not in names:
        raise UsageError(
            f"{name!r} is neither a file, a module:function nor a model", where="TARGET", fix=nearest(name, names)
        )
    settings = {key: _value(value) for key, value in options.settings.items()}
    fn, args, jit_options = models.build(name, mesh=options.mesh, **settings)
    return capture(fn, *args, name=name, platform=options.platform, options=jit_options)


def _value(text: str) -> Any:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def _from_function(head: str, function: str, text: str, options: CaptureOptions) -> Program:
    from meshcast.capture.jax_function import capture

    builder = _import_function(head, function, text)
    if options.settings:
        raise UsageError("--set applies to models of the zoo; give the function defaults instead", where=text)
    try:
        made = builder()
    except MeshcastError:
        raise
    except TypeError as error:
        raise UsageError(f"{function}() could not be called without arguments: {error}", where=text) from error
    except Exception as error:
        raise InputError(f"{function}() raised {type(error).__name__}: {error}", where=text) from error
    if isinstance(made, Program):
        return made
    if hasattr(made, "mlir_module_serialized"):
        from meshcast.capture.exported import from_exported

        return from_exported(made, name=function, dims=options.dims)
    if hasattr(made, "compiler_ir"):
        from meshcast.capture.jax_function import from_lowered

        return from_lowered(made, name=function)
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not callable(made[0]):
        raise UsageError(
            f"{function}() returned {type(made).__name__}", where=text, fix="return a Program, (fn, args) or (fn, args, options)"
        )
    fn, args, jit_options = (*made, {}) if len(made) == 2 else made
    return capture(fn, *args, name=function, platform=options.platform, options=jit_options)


def _import_function(head: str, function: str, text: str) -> Callable[[], Any]:
    try:
        if head.endswith(".py"):
            path = Path(head)
            if not path.is_file():
                raise InputError("no such file", where=head, fix="check the path")
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules.setdefault(path.stem, module)
            sys.path.insert(0, str(path.parent.resolve()))
            spec.loader.exec_module(module)
        else:
            sys.path.insert(0, str(Path.cwd()))
            module = importlib.import_module(head)
    except MeshcastError:
        raise
    except Exception as error:  # the user's module may raise anything while it is imported
        raise InputError(f"cannot be imported: {type(error).__name__}: {error}", where=head) from error
    found = getattr(module, function, None)
    if not callable(found):
        names = [name for name in vars(module) if callable(getattr(module, name)) and not name.startswith("_")]
        raise UsageError(f"{head} has no function {function!r}", where=text, fix=nearest(function, names))
    return found  # type: ignore[no-any-return]
