"""TARGET, as the command line takes it.

A file, `module:function`, `path.py:function`, a Hugging Face `config.json` or its folder, or a model of the zoo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from meshcast.base import UsageError, expect, nearest, read_counts, read_mesh
from meshcast.programs.program import Program

if TYPE_CHECKING:
    from jax.export import Exported
    from jax.stages import Lowered

STANDARD_INPUT = "-"


class TorchExported(Protocol):
    """A `torch.export.ExportedProgram`, for type checkers that have no torch: to them its own name would be anything."""

    @property
    def graph_module(self) -> Any:
        """The operators of the exported program."""

    @property
    def graph_signature(self) -> Any:
        """Which of its inputs are parameters, buffers and arguments."""


# What `load` takes; a tuple is a function or a module, its arguments, and options.
Target: TypeAlias = "str | Path | bytes | Program | Lowered | Exported | TorchExported | tuple[Any, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """Options of a capture that a target's own text cannot state: platform, sizes, mesh, settings.

    A mesh may be given as a text (`data=8`) or a `Mesh`, too; it is kept as sizes by name.
    """

    platform: str = "cuda"
    dims: Mapping[str, int] = field(default_factory=dict)
    mesh: Mapping[str, int] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    kernels: str = "xla"  # of PyTorch's modules, whose kernels: see `capture_torch`

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", read_counts("dims", self.dims))
        object.__setattr__(self, "mesh", read_mesh("mesh", self.mesh))


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
    from meshcast.programs.sources import source_of

    return source_of(target).program(_chosen(CaptureOptions() if options is None else options, overrides))


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
