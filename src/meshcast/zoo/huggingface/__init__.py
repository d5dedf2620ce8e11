"""Hugging Face configurations: the `config.json` published with a model's weights, as a model of the zoo.

Only sizes are read. What has no cost of its own (scaling of rotary frequencies, dropout, token ids) is passed over; what
would change the program and is not modelled is refused.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from meshcast.base import InputError, UnsupportedError, UsageError, json_value, unreadable
from meshcast.zoo.builder import Builder
from meshcast.zoo.families import FAMILIES
from meshcast.zoo.huggingface.fields import Fields
from meshcast.zoo.huggingface.quantisation import quantisation
from meshcast.zoo.huggingface.translations import TRANSLATIONS

CONFIG_FILE = "config.json"


def config_path(path: Path) -> Path | None:
    """The configuration that a path names: a JSON file, or a folder with a `config.json`; `None` for other paths."""
    if path.is_dir():
        return path / CONFIG_FILE if (path / CONFIG_FILE).is_file() else None
    return path if path.suffix == ".json" else None


def read_builder(path: Path) -> Builder:
    """The model of a configuration file.

    Raises:
        InputError: The file is no configuration, or lacks a size.
        UnsupportedError: Its model, or a variant of it, is not in the zoo.
    """
    where = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    values = json_value(text, where=where)
    name = path.parent.resolve().name if path.name == CONFIG_FILE else path.stem
    return builder_of(values, name=name, where=where)


def builder_of(values: Any, *, name: str, where: str) -> Builder:
    """The model of a configuration's values."""
    supported = "supported: " + ", ".join(sorted(TRANSLATIONS))
    if not isinstance(values, dict) or not isinstance(values.get("model_type"), str):
        raise InputError(
            "is no Hugging Face configuration: it has no model_type",
            where=where,
            fix=f"name a config.json; {supported}",
        )
    kind = values["model_type"]
    if kind not in TRANSLATIONS:
        raise UnsupportedError(f"model_type {kind!r} has no model here", where=where, fix=_misspelt(kind) + supported)
    module, translate = TRANSLATIONS[kind]
    try:
        config = translate(Fields(values=values, kind=kind, where=where))
    except UsageError as error:  # sizes that do not go together: the file's fault, not the command's
        raise InputError(error.message, where=where, fix=error.fix) from None
    family = FAMILIES[module]
    presets, notes = quantisation(values, module)
    return Builder(
        name=name,
        module=module,
        config=config,
        summary=f"{kind} of {where}",
        modes=family.modes,
        mode=family.modes[0],
        notes=notes,
        presets=presets,
    )


def _misspelt(kind: str) -> str:
    """The name that a word is a misspelling of. What only adds to a name, or ends early, is another model's name."""
    for known in difflib.get_close_matches(kind.lower().replace("-", "_"), TRANSLATIONS, cutoff=0.85):
        if known not in kind and not known.startswith(kind):
            return f"did you mean {known!r}? "
    return ""
