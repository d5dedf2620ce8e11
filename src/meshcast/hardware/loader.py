"""From a TOML file to a `Device` or `Cluster`: bases merged, every key checked, errors with file and line."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast, get_args

from meshcast.base import Dimension, InputError
from meshcast.hardware import document
from meshcast.hardware.checked import DATA_SHEET, Checked, HowChecked
from meshcast.hardware.cluster import Cluster, NetworkLevel
from meshcast.hardware.device import (
    DTYPES,
    CellArray,
    CellEnergy,
    CommunicationCores,
    Core,
    Device,
    Energy,
    Kind,
    TensorCores,
)
from meshcast.hardware.document import Document
from meshcast.hardware.levels import read_level
from meshcast.hardware.link import LinkTechnology
from meshcast.hardware.reader import Reader

_OURS = "meshcast."
DEVICE_SCHEMA = "meshcast.device/1"
CLUSTER_SCHEMA = "meshcast.cluster/1"


class LoadLink(Protocol):
    """Loads the link technology that a file names."""

    def __call__(self, name: str, user: Path) -> LinkTechnology:
        """The technology called `name` in the file `user`."""
        ...


# What names a file is its own, never its base's.
_OWN = ("schema", "name", "title", "aliases", "base", "checked")


def read(path: Path, find: Callable[[str, Path], Path], *, schema: str) -> Document:
    """The document at `path` merged over its bases.

    Args:
        path: The file.
        find: Turns a base's name or path into a path.
        schema: What the file is expected to be.

    Raises:
        InputError: It, or a base of it, cannot be read, or is a file of another kind.
    """
    own = document.read_document(path)
    said = own.data.get("schema")
    # Before its base is looked for, which would be among files of the kind that is expected.
    if isinstance(said, str) and said.startswith(_OURS) and _kind(said) != _kind(schema):
        raise InputError(
            f"a {_kind(schema)} is asked for, and this file describes a {_kind(said)} (schema {said!r})",
            where=own.place(("schema",)),
            fix=f"name a file with schema {schema!r}",
        )
    return _based(own, find, ())


def _kind(schema: str) -> str:
    """`device` of `meshcast.device/1`."""
    return schema.removeprefix(_OURS).partition("/")[0]


def _read(path: Path, find: Callable[[str, Path], Path], children: tuple[Path, ...]) -> Document:
    if path.resolve() in children:
        raise InputError("a file cannot be based on itself", where=str(path), fix="remove a 'base' from the circle")
    return _based(document.read_document(path), find, children)


def _based(own: Document, find: Callable[[str, Path], Path], children: tuple[Path, ...]) -> Document:
    """A document merged over its bases, of which none is one of its children."""
    name = own.data.get("base")
    if not isinstance(name, str):
        return own
    base = _read(find(name, own.path), find, (*children, own.path.resolve()))
    if "schema" not in own.data:
        raise InputError(
            f"the file does not say what it is: its base {name!r} has schema {base.data.get('schema')!r}",
            where=own.place(("base",)),
            fix=f"write schema = {json.dumps(base.data.get('schema'))} above it",
        )
    if base.data.get("schema") != own.data.get("schema"):
        raise InputError(
            f"base {name!r} is a file of another kind",
            where=own.place(("base",)),
            fix="name a device for a device, and a cluster for a cluster",
        )
    inherited = {key: value for key, value in base.data.items() if key not in _OWN}
    return replace(own, data=_merge(inherited, own.data), base=base)


def merged(below: Document, above: dict[str, Any]) -> Document:
    """A document with some of its keys changed, based on it."""
    return replace(below, data=_merge(below.data, above), base=below)


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Tables merged key by key; a quantity, a list or a plain value replaces what was below it."""
    merged = dict(below)
    for key, value in above.items():
        under = below.get(key)
        tables = isinstance(value, dict) and isinstance(under, dict) and "value" not in value
        merged[key] = _merge(cast(dict[str, Any], under), value) if tables else value
    return merged


def device(doc: Document) -> Device:
    """The device that a document describes.

    Raises:
        InputError: The document does not follow the schema.
    """
    file = Reader(doc)
    head(file, DEVICE_SCHEMA)
    matrix_energy = file.by_dtype("energy", "matrix", of=Dimension.ENERGY_PER_FLOP, dtypes=DTYPES, may_be_zero=True)
    memory_energy = file.optional("energy", "memory", of=Dimension.ENERGY_PER_BYTE, may_be_zero=True)
    clock = file.quantity("compute", "clock", of=Dimension.FREQUENCY)
    result = Device(
        name=file.text("name"),
        title=file.text("title", default="") or file.text("name"),
        vendor=file.text("vendor"),
        kind=cast(Kind, file.choice("kind", among=get_args(Kind))),
        architecture=file.text("architecture"),
        released=file.text("released"),
        aliases=file.texts("aliases"),
        matrix_flops=file.by_dtype("matrix", of=Dimension.COMPUTE, dtypes=DTYPES),
        vector_flops=file.by_dtype("vector", of=Dimension.COMPUTE, dtypes=DTYPES),
        transcendental_rate=file.optional("compute", "transcendental", of=Dimension.COMPUTE),
        cores=file.count("compute", "cores"),
        clock_hz=clock,
        peak_clock_hz=file.optional("compute", "peak_clock", of=Dimension.FREQUENCY) or clock,
        memory_bytes=file.quantity("memory", "capacity", of=Dimension.BYTES),
        memory_bandwidth=file.quantity("memory", "bandwidth", of=Dimension.BANDWIDTH),
        cache_bytes=file.quantity("cache", "capacity", of=Dimension.BYTES),
        cache_bandwidth=file.optional("cache", "bandwidth", of=Dimension.BANDWIDTH),
        cache_partitions=file.count("cache", "partitions", default=1),
        tdp_watts=file.quantity("power", "tdp", of=Dimension.POWER),
        idle_watts=file.optional("power", "idle", of=Dimension.POWER, may_be_zero=True),
        launch_latency_s=file.quantity("compute", "launch_latency", of=Dimension.TIME, may_be_zero=True),
        host_bandwidth=file.optional("host", "bandwidth", of=Dimension.BANDWIDTH),
        energy=Energy(matrix=matrix_energy, memory_per_byte=memory_energy) if matrix_energy or memory_energy else None,
        core=_core(file) if file.names("core") else None,
        tensor_cores=_tensor_cores(file) if file.names("tensor_cores") else None,
        cells=_cells(file) if file.names("cells") else None,
        communication=_communication(file) if file.names("communication") else None,
        checked=_checked(file),
        bases=tuple(str(below.data.get("name")) for below in _below(doc)),
        # An empty name is how a file that has a base says that it has no cluster.
        default_cluster=file.text("default_cluster", default="") or None,
        notes=file.text("notes", default=""),
        facts=file.facts,
        sources=file.sources(),
    )
    if "f32" not in result.vector_flops:
        file.reject(("vector", "f32"), "missing key 'vector.f32': types without a rate of their own run at it")
    file.finish()
    return result


def _below(doc: Document) -> Iterator[Document]:
    """The documents that one is based on, the nearest first."""
    while (base := doc.base) is not None:
        yield base
        doc = base


def _checked(file: Reader) -> Checked:
    """The table `[checked]`; without one nothing was checked."""
    if not file.names("checked"):
        return DATA_SHEET
    how = cast(HowChecked, file.choice("checked", "how", among=get_args(HowChecked)))
    return Checked(how=how, against=file.text("checked", "against"), clusters=file.flag("checked", "clusters"))


def _core(file: Reader) -> Core:
    return Core(
        compute_capability=file.version("core", "compute_capability", example="9.0a"),
        threads=file.count("core", "threads"),
        registers=file.count("core", "registers"),
        shared_memory_bytes=int(file.quantity("core", "shared_memory", of=Dimension.BYTES)),
        block_shared_memory_bytes=int(file.quantity("core", "block_shared_memory", of=Dimension.BYTES)),
    )


def _tensor_cores(file: Reader) -> TensorCores:
    table = "tensor_cores"
    return TensorCores(
        target=file.text(table, "target"),
        array_rows=file.count(table, "array_rows"),
        array_columns=file.count(table, "array_columns"),
        arrays=file.count(table, "arrays"),
        sublanes=file.count(table, "sublanes"),
        lanes=file.count(table, "lanes"),
        vector_alus=file.count(table, "vector_alus"),
        vmem_bytes=int(file.quantity(table, "vmem", of=Dimension.BYTES)),
        megacore=file.flag(table, "megacore", default=True),
    )


def _cells(file: Reader) -> CellArray:
    table = "cells"

    def joules(name: str) -> float:
        return file.quantity(table, "energy", name, of=Dimension.ENERGY_PER_FLOP, may_be_zero=True)

    return CellArray(
        rows=file.count(table, "rows"),
        columns=file.count(table, "columns"),
        arrays=file.count(table, "arrays"),
        cell_bits=file.count(table, "cell_bits"),
        input_bits=file.count(table, "input_bits"),
        converter_bits=file.count(table, "converter_bits", default=0),
        weight_bits_per_clock=file.count(table, "weight_bits_per_clock"),
        double_buffered=file.flag(table, "double_buffered"),
        energy=CellEnergy(
            input=joules("input"),
            cell=joules("cell"),
            bit_line=joules("bit_line"),
            converter=joules("converter"),
            adder=joules("adder"),
            register=joules("register"),
            vector=joules("vector"),
            buffer_per_byte=file.quantity(table, "energy", "buffer", of=Dimension.ENERGY_PER_BYTE, may_be_zero=True),
        ),
    )


def _communication(file: Reader) -> CommunicationCores:
    cores = file.count("communication", "cores")
    return CommunicationCores(
        cores=cores, in_network_cores=file.count("communication", "in_network_cores", default=cores)
    )


def cluster(doc: Document, load_device: Callable[[str, Path], Device], load_link: LoadLink) -> Cluster:
    """The cluster that a document describes; the two callables load what is named in the file at a path.

    Raises:
        InputError: The document does not follow the schema.
    """
    file = Reader(doc)
    head(file, CLUSTER_SCHEMA)
    find_link = functools.partial(load_link, user=doc.path)
    levels: list[NetworkLevel] = []
    for index in range(file.length("levels")):
        levels.append(read_level(file, index, find_link, inside=levels[-1].size if levels else 1))
    max_devices = file.count("max_devices")
    sizes = [level.size for level in levels]
    if not levels:
        file.reject(("levels",), "missing key 'levels'")
    elif sizes != sorted(set(sizes)) or sizes[-1] < max_devices:
        file.reject(
            ("levels",), f"levels go outwards: sizes {sizes} must grow, up to max_devices {max_devices} or more"
        )
    name, device_name = file.text("name"), file.text("device")
    title = file.text("title", default="") or name
    aliases, notes, sources = file.texts("aliases"), file.text("notes", default=""), file.sources()
    file.finish()
    return Cluster(
        name=name,
        title=title,
        device=load_device(device_name, doc.path),
        levels=tuple(levels),
        max_devices=max_devices,
        aliases=aliases,
        notes=notes,
        facts=file.facts,
        sources=sources,
    )


def head(file: Reader, schema: str) -> None:
    """Reads what every file has."""
    file.choice("schema", among=(schema,))
    file.text("base", default="")
