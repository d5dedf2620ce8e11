"""Models of the zoo, their programs in each mode, and Hugging Face configurations, by the names that targets give them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshcast.base import UsageError, nearest
from meshcast.zoo.builder import MODES, Builder, ModelProgram
from meshcast.zoo.families import FAMILIES, ModelFamily
from meshcast.zoo.other_names import known_as
from meshcast.zoo.words import SERVE


def models() -> dict[str, Builder]:
    """Every model by name, as its first mode has it: mostly the training step."""
    return {
        name: builder(family, name, shape.config, shape.summary)
        for family in FAMILIES.values()
        for name, shape in family.shapes.items()
    }


def builder(family: ModelFamily, name: str, config: Any, summary: str) -> Builder:
    """The builder of one configuration."""
    return Builder(
        name=name, module=family.module, config=config, summary=summary, modes=family.modes, mode=family.modes[0]
    )


def programs(model: Builder) -> list[Builder]:
    """A model in each of its modes: its own name trains it, `NAME-decode` and its like are the others."""
    return [
        replace(
            model,
            name=model.name if mode == model.mode else f"{model.name}-{mode}",
            mode=mode,
            summary=f"{model.summary}: {MODES[mode][1]}",
        )
        for mode in model.modes
    ]


def zoo() -> dict[str, Builder]:
    """Every program by name."""
    return dict(_programs())


@functools.cache
def _programs() -> Mapping[str, Builder]:
    return {program.name: program for model in models().values() for program in programs(model)}


def model_named(target: object) -> Builder | None:
    """The model that a target names; None where it is anything else.

    A Hugging Face `config.json`, or a folder that has one, goes before a program of the zoo, and any other file of that name is
    itself; a folder that is no model's hides none of the zoo. A model may go by another name (`Llama-3.1-8B`), with a mode behind
    it or not.

    Raises:
        InputError: The file is no configuration, or lacks a size.
        UnsupportedError: Its model, or a variant of it, is not in the zoo.
    """
    if not isinstance(target, (str, Path)):
        return None
    path = Path(target)
    if path.exists():
        from meshcast.zoo.huggingface import config_path, read_builder

        if (config := config_path(path)) is not None:
            return read_builder(config)
        if not path.is_dir():
            return None
    return program_called(str(target))


@functools.cache
def program_called(name: str) -> Builder | None:
    """The program of the zoo that goes by a name, its own or another (`other_names`); None where there is none."""
    if (exact := _programs().get(name)) is not None:
        return exact
    model, _, mode = name.rpartition("-")
    if mode in MODES and (known := known_as(model, models())) is not None:
        return _programs().get(f"{known}-{mode}")
    return None if (known := known_as(name, models())) is None else _programs()[known]


def build(name: str, mesh: Mapping[str, int] | None = None, **overrides: Any) -> ModelProgram:
    """The named program over a mesh (`{"fsdp": 4, "tensor": 2}`; one device by default), with settings overridden."""
    if (builder := program_called(name)) is None:
        raise UsageError(f"no model {name!r} in the zoo", fix=hint(name))
    return builder(mesh, **overrides)


def hint(name: str) -> str:
    """What may be meant by a name that is not in the zoo: the modes that a model has, or the nearest name."""
    model, _, mode = name.rpartition("-")
    known = models()
    if mode == SERVE and mode in getattr(known.get(model), "all_modes", ()):
        return f"two programs serve a model: name it {model}, with --set mode=serve"
    if mode in MODES and model in known:
        return f"{model} has no mode {mode!r}; its modes are {', '.join(known[model].all_modes)}"
    if sizes := [known for known in models() if known.startswith(f"{name.lower()}-")]:
        return f"name its size: {', '.join(sizes)}"
    return nearest(name, zoo(), listed_by="meshcast models")
