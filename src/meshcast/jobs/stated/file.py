"""A job's file: TOML, `schema = "meshcast.job/1"`, with the fields of a published run (`docs/runs.md`) in four tables.

What is told is kept as it is told: the same rules that read a row of published runs make a plan and a cluster of it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from meshcast.base import nearest
from meshcast.hardware import Document, Key, Reader, read_document
from meshcast.jobs.stated.activations import known_recomputation
from meshcast.jobs.stated.extras import Extras
from meshcast.jobs.stated.frameworks import canonical, known_names
from meshcast.jobs.stated.run import BATCH, DEGREES, SHAPE_FLAGS, SIZES, SOFTWARE_FLAGS, StatedRun
from meshcast.jobs.stated.software import ATTENTION
from meshcast.jobs.stated.systems import FABRICS, SCALE_UPS, scale_up_size
from meshcast.jobs.stated.vocabulary import not_understood, understood, why_not_understood

SCHEMA = "meshcast.job/1"
EVERY_KEY = "docs/runs.md has every key, and what it takes"
"""What helps where a file does not follow the schema."""
_NONE_AT_LEAST = ("shared_experts",)
_STAGES_OF_ZERO = 3
_BESIDE = (".toml",)
# The key of every field of `StatedRun` that does not have its own name there.
_KEYS = {
    "model": ("model", "name"), "device_note": ("cluster", "note"), "gbit_per_device": ("cluster", "scale_out_gbps_per_device"),
    "framework_version": ("software", "version"),
}  # fmt: skip
_TABLES = {
    "model": ("model", *SIZES, *SHAPE_FLAGS, "extra"),
    "plan": (BATCH, "mbs", *DEGREES, "zero", "precision", "recompute"),
    "cluster": (
        "device", "on", "devices", "device_note", "devices_per_host", "scale_up", "scale_out", "gbit_per_device", "slices",
    ),
    "software": ("framework", "framework_version", "stack", "attention", "overlap", *SOFTWARE_FLAGS),
}  # fmt: skip


def key_of(name: str) -> tuple[str, str]:
    """The table and key of a field."""
    if name in _KEYS:
        return _KEYS[name]
    return next(table for table, names in _TABLES.items() if name in names), name


def read_job(path: Path) -> tuple[StatedRun, Document]:
    """The run in a file, and the file with the lines of its keys.

    Raises:
        InputError: The file cannot be read or does not follow the schema; every mistake is named with its line.
    """
    document = read_document(path)
    read = _JobReader(document)
    if "schema" in document.data:
        read.choice("schema", among=(SCHEMA,))
    else:
        read.reject(("schema",), f"schema = {_toml(SCHEMA)} is missing: write it as the file's first line")
    read.text("name", default="")
    run = StatedRun(
        device=read.word("device"),
        on=read.beside("on", path.parent),
        devices=read.whole("cluster", "devices"),
        model=read.text("model", "name").lower(),
        device_note=read.word("device_note"),
        devices_per_host=read.count("devices_per_host"),
        scale_up=read.word("scale_up"),
        scale_out=read.word("scale_out"),
        gbit_per_device=read.number("gbit_per_device"),
        slices=read.count("slices"),
        counts=read.counts((*SIZES, BATCH)),
        degrees=read.counts(DEGREES, least=0),
        mbs=read.number("mbs"),
        precision=read.word("precision"),
        zero=read.count("zero", least=0, most=_STAGES_OF_ZERO),
        recompute=read.word("recompute"),
        attention=read.word("attention"),
        framework=read.word("framework"),
        framework_version=read.word("framework_version"),
        stack=read.beside("stack", path.parent),
        overlap=read.text("software", "overlap") if read.has("overlap") else None,
        flags={name: read.flag(*key_of(name)) for name in (*SHAPE_FLAGS, *SOFTWARE_FLAGS) if read.has(name)},
        extra=Extras.read("; ".join(read.texts("model", "extra"))),
    )
    _check(run, read)
    _check_extra(run, read)
    read.finish(fix=EVERY_KEY)
    return run, document


def job_text(run: StatedRun, *, name: str = "", notes: tuple[str, ...] = ()) -> str:
    """The file of a run, which `read_job` reads as the same run.

    Args:
        run: The run.
        name: What it is called.
        notes: Lines in front, as comments.
    """
    unknown = not_understood(run.extra)
    notes = (*notes, f"not understood, and left out: {', '.join(unknown)}") if unknown else notes
    lines = [*(f"# {' '.join(note.split())}" for note in notes), f"schema = {_toml(SCHEMA)}"]
    lines += [f"name = {_toml(name)}"] if name else []
    for table, names in _TABLES.items():
        said = [(key_of(each)[1], value) for each in names if (value := _value(run, each)) is not None]
        if said:
            lines += ["", f"[{table}]", *(f"{key} = {_toml(value)}" for key, value in said)]
    return "\n".join(lines) + "\n"


class _JobReader(Reader):
    """Reads fields by their names, each from its table; what is not there is not told."""

    def _problem(self, key: Key, message: str) -> None:
        value = self._lookup(key)
        wanted = r"\d+(?:\.\d+)?" if "number" in message else r"true|false" if "true or false" in message else None
        quoted = wanted and isinstance(value, str) and re.fullmatch(wanted, value, re.ASCII)
        told = quoted and message.endswith(f"got {value!r}")
        super()._problem(key, f"{message}: remove the quotes" if told else message)

    def _why_unknown(self, key: Key, known: Iterable[str]) -> str:
        name, *below = key
        if not below and isinstance(self._lookup(key), dict | list):
            return f"unknown table [{name}], {nearest(str(name), _TABLES)}"
        return super()._why_unknown(key, known)

    def has(self, name: str) -> bool:
        table, key = key_of(name)
        return key in self.names(table)

    def word(self, name: str) -> str:
        text = self.text(*key_of(name), default="")
        return text if name in ("device_note", "framework_version") else text.lower()

    def beside(self, name: str, folder: Path) -> str:
        """A name of the catalogue, or a file's path as seen from the job's."""
        text = self.text(*key_of(name), default="")
        file = folder / text
        return str(file) if text.endswith(_BESIDE) and not Path(text).is_absolute() else text

    def number(self, name: str) -> float | None:
        key = key_of(name)
        value = self._value(key)
        if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf):
            return None if value is None else float(value)
        self._problem(key, f"{'.'.join(key)}: expected a number of more than zero, without a unit, got {value!r}")
        return None

    def count(self, name: str, *, least: int = 1, most: int | None = None) -> int | None:  # type: ignore[override]
        limit = {} if most is None else {"most": most}
        # Asked for also where it is not there: a misspelt key is compared with it.
        found = self.whole(*key_of(name), default=least, least=least, **limit)
        return found if self.has(name) else None

    def counts(self, names: tuple[str, ...], *, least: int = 1) -> dict[str, int]:
        found = {name: self.count(name, least=0 if name in _NONE_AT_LEAST else least) for name in names}
        return {name: value for name, value in found.items() if value is not None}


def _check(run: StatedRun, read: _JobReader) -> None:
    """Words that a published run may have and nobody knows are mistakes in a file of one's own."""
    if bool(run.device) == bool(run.on):
        read.reject(
            ("cluster",), "cluster: a device of the catalogue (device) or a cluster (on) is needed, one of them"
        )
    if bool(run.framework) and bool(run.stack):
        read.reject(key_of("stack"), "software.stack: framework says it already; give one of them")
    known: Mapping[str, tuple[str, ...]] = {
        "attention": tuple(ATTENTION),
        "framework": tuple(sorted(known_names())),
        "scale_up": SCALE_UPS,
        "scale_out": FABRICS,
    }
    for name, words in known.items():
        said = canonical(run.framework) if name == "framework" else str(getattr(run, name))
        first = re.split(r"[-_ ]", said)[0] if name in ("scale_up", "scale_out") else said
        first = first.rstrip("0123456789") if name == "scale_up" else first
        if first and first not in words:
            table, key = key_of(name)
            read.reject((table, key), f"{table}.{key}: no {said!r} is known, {nearest(first, words)}")
    together, hosts = scale_up_size(run.scale_up), run.devices_per_host
    if together and hosts and together % hosts and hosts % together:
        read.reject(
            key_of("devices_per_host"),
            f"cluster.devices_per_host: hosts of {hosts} devices, and scale_up {run.scale_up!r} joins {together}, of which "
            f"neither divides the other: write devices_per_host = {together}, or another number behind scale_up",
        )
    if run.recompute and not known_recomputation(run.recompute):
        hint = nearest(run.recompute, ("none", "full", "selective", "policy:NAME", "policy:save:a+b", "offload:a+b"))
        read.reject(key_of("recompute"), f"plan.recompute: nothing is known as {run.recompute!r}, {hint}")


def _check_extra(run: StatedRun, read: _JobReader) -> None:
    for item in not_understood(run.extra):
        read.reject(key_of("extra"), f"model.extra: {why_not_understood(item)}")


def _value(run: StatedRun, name: str) -> object:
    """What a file says of a field; None where it says nothing."""
    for fields in (run.counts, run.degrees, run.flags):
        if name in fields:
            return fields[name]
    if name in (*SIZES, BATCH, *DEGREES, *SHAPE_FLAGS, *SOFTWARE_FLAGS):
        return None
    if name == "extra":
        return list(understood(run.extra)) or None
    value = getattr(run, name)
    return None if value == "" and name != "overlap" else value  # no rewrites at all are something to say


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}" if value == float(f"{value:g}") else repr(value)
    # JSON's texts and lists of texts are TOML's, but for characters beyond the first plane and DEL.
    return (
        json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F") if not isinstance(value, int) else str(value)
    )
