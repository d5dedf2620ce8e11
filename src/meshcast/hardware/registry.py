"""Devices and clusters by name or path. Listing names parses nothing; loading a name parses its file and its bases."""

from __future__ import annotations

import functools
import os
import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from meshcast.base import UnsupportedError, UsageError, nearest
from meshcast.hardware import astra, document, link_loader, loader, what_if
from meshcast.hardware.checked import DATA_SHEET
from meshcast.hardware.cluster import Cluster, single
from meshcast.hardware.device import Device
from meshcast.hardware.link import LinkTechnology

Folder = Literal["devices", "clusters", "links"]

_CATALOGUE = Path(__file__).parent / "catalogue"
_ALIASES = re.compile(r"^aliases\s*=\s*\[.*\]", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """All devices, clusters and link technologies that come with meshcast."""

    devices: tuple[Device, ...]
    clusters: tuple[Cluster, ...]
    links: tuple[LinkTechnology, ...] = ()


def device_names() -> tuple[str, ...]:
    """The names of the catalogue's devices, without aliases."""
    return _names("devices")


def cluster_names() -> tuple[str, ...]:
    """The names of the catalogue's clusters, without aliases."""
    return _names("clusters")


def link_names() -> tuple[str, ...]:
    """The names of the catalogue's link technologies, without aliases."""
    return _names("links")


def catalogue() -> Catalogue:
    """Everything in the catalogue, loaded."""
    return Catalogue(
        devices=tuple(map(load_device, device_names())),
        clusters=tuple(map(load_cluster, cluster_names())),
        links=tuple(map(load_link, link_names())),
    )


def load_device(name_or_path: str | Path) -> Device:
    """The device with this name or alias, or in this file.

    Raises:
        UnsupportedError: No such device.
        InputError: The file cannot be read or does not follow the schema.
    """
    if _is_path(name_or_path):
        return _read_device(Path(name_or_path))
    return _named_device(_find("devices", str(name_or_path)))


def load_cluster(name_or_path: str | Path) -> Cluster:
    """The cluster with this name or alias, or in this file.

    Raises:
        UnsupportedError: No such cluster, or no such device as it names.
        InputError: The file cannot be read or does not follow the schema.
    """
    if _is_path(name_or_path):
        return _read_cluster(Path(name_or_path))
    return _named_cluster(_find("clusters", str(name_or_path)))


def load_link(name_or_path: str | Path) -> LinkTechnology:
    """The link technology with this name or alias, or in this file.

    Raises:
        UnsupportedError: No such technology.
        InputError: The file cannot be read or does not follow the schema.
    """
    if _is_path(name_or_path):
        return _read_link(Path(name_or_path))
    return _named_link(_find("links", str(name_or_path)))


def resolve(name_or_path: str | Path | Device | Cluster) -> Cluster:
    """The cluster that a name or file stands for; a device stands for its default cluster, made of that very device.

    `DEVICE@FILE.yml` is that device on a network of ASTRA-sim's; `NAME+memory.bandwidth=6.7TB/s` has other numbers (`what_if`). A
    cluster stands for itself.

    Raises:
        UnsupportedError: Neither a cluster nor a device has this name.
        UsageError: Several are named, or an ASTRA-sim network is given without a device.
        InputError: The file cannot be read or does not follow the schema.
    """
    if isinstance(name_or_path, Cluster):
        return name_or_path
    if isinstance(name_or_path, Device):
        return _default_cluster(name_or_path)
    name, changes = what_if.split(str(name_or_path))
    if changes:
        cluster = resolve(name)
        return what_if.changed(cluster, changes, functools.partial(_device_document, name, cluster))
    if name.endswith(astra.SUFFIXES):
        return _on_astra_network(name)
    if _is_path(name_or_path):
        schema = document.read_document(Path(name_or_path)).data.get("schema")
        is_cluster = isinstance(schema, str) and schema.startswith("meshcast.cluster/")
    else:
        is_cluster = _lookup("clusters", name) is not None
        if not is_cluster and _lookup("devices", name) is None:
            known = [*_index("clusters"), *_index("devices")]
            if "," in name:
                raise UsageError(
                    f"one device or cluster is asked for, and {name!r} are several",
                    where="--on",
                    fix=f"meshcast compare TARGET --on {name} sets them side by side",
                )
            if Path(name).is_dir():
                raise UsageError(
                    "is a folder, not a device or a cluster", where=f"--on {name}", fix="name a .toml file"
                )
            fix = nearest(name, known, listed_by="meshcast devices")
            raise UnsupportedError(f"no device or cluster {name!r} in the catalogue", fix=fix)
    if is_cluster:
        return load_cluster(name_or_path)
    return _default_cluster(load_device(name_or_path))


def swept_numbers(name: str) -> dict[str, float]:
    """The numbers that a name changes of its hardware, in SI units: of `h100+memory.bandwidth=4TB/s` the bandwidth.

    Raises:
        MeshcastError: There is no such hardware, or number.
    """
    base, changes = what_if.split(name)
    return what_if.changed_numbers(_swept(base), changes) if changes else {}


@functools.lru_cache(maxsize=16)
def _swept(base: str) -> Cluster:
    return resolve(base)


def _default_cluster(device: Device) -> Cluster:
    if device.default_cluster is None:
        return single(device)
    # A what-if device keeps the network of what it is based on.
    return replace(load_cluster(device.default_cluster), device=device)


def is_own(name: str) -> bool:
    """Whether hardware is named by a file of the user's own, also where single numbers of it are changed."""
    base, _ = what_if.split(name)
    return _is_path(base) or base.endswith(astra.SUFFIXES)


def _device_document(name: str, cluster: Cluster) -> document.Document:
    """The document that a cluster's device was read from: the catalogue's, or the file that is asked for.

    Raises:
        UsageError: It is a file that only the cluster's own file names.
    """
    device = cluster.device.name
    if device in device_names():
        return _named_document(_find("devices", device))
    if _is_path(name) and document.read_document(Path(name)).data.get("schema") == loader.DEVICE_SCHEMA:
        return _read_document(Path(name))
    raise UsageError(
        f"{device} is a file of {name}'s own", where=what_if.FLAG, fix="change the number in the device's file"
    )


def _read_document(path: Path) -> document.Document:
    return loader.read(path, functools.partial(_beside, "devices"), schema=loader.DEVICE_SCHEMA)


@functools.cache
def _named_document(path: Path) -> document.Document:
    """A document of the catalogue, which does not change under us."""
    return _read_document(path)


def _on_astra_network(name: str) -> Cluster:
    device, at, file = name.partition("@")
    if not at:
        raise UsageError(
            "an ASTRA-sim network file does not say which device sits on it",
            where=name,
            fix=f"name one: h100-sxm@{name}",
        )
    return astra.network_cluster(astra.read_network(Path(file)), resolve(device).device, name=Path(file).stem)


def _is_path(name_or_path: str | Path) -> bool:
    text = str(name_or_path)
    return isinstance(name_or_path, Path) or text.endswith(".toml") or os.sep in text or "/" in text


@functools.cache
def _names(folder: Folder) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (_CATALOGUE / folder).glob("*.toml")))


@functools.cache
def _index(folder: Folder) -> dict[str, Path]:
    """Names and aliases to paths. Only the line of aliases is parsed: a lookup must not cost reading every file."""
    paths = {name: _CATALOGUE / folder / f"{name}.toml" for name in _names(folder)}
    for path in tuple(paths.values()):
        if line := _ALIASES.search(path.read_text(encoding="utf-8")):
            paths.update(dict.fromkeys(tomllib.loads(line[0])["aliases"], path))
    return paths


def _find(folder: Folder, name: str) -> Path:
    if found := _lookup(folder, name):
        return found
    fix = nearest(name, _index(folder), listed_by="meshcast devices")
    raise UnsupportedError(f"no {folder[:-1]} {name!r} in the catalogue", fix=fix)


def _lookup(folder: Folder, name: str) -> Path | None:
    """The file of the catalogue that a name, an alias or another spelling of one of them stands for; None where none does."""
    # The file named like it comes first, so that the usual case opens one file and not all of them.
    if name in _names(folder):
        return _CATALOGUE / folder / f"{name}.toml"
    return _index(folder).get(name) or _spellings(folder).get(_spelling(name))


def catalogue_name(name: str) -> str | None:
    """What the catalogue calls the cluster or device that goes by a name; None where it has none."""
    found = _lookup("clusters", name) or _lookup("devices", name)
    return found.stem if found is not None else None


@functools.cache
def _spellings(folder: Folder) -> dict[str, Path]:
    """Spellings that stand for one file each: `DGX H100`, `h100_sxm`, `TPU v5p` and `v5p` are what they seem to be."""
    found: dict[str, set[Path]] = {}
    for name, path in _index(folder).items():
        found.setdefault(_spelling(name), set()).add(path)
    return {spelt: paths.pop() for spelt, paths in found.items() if len(paths) == 1}


def _spelling(name: str) -> str:
    """A name without what people write differently: capitals, what stands between its parts, and who makes it."""
    spelt = "".join(letter for letter in name.lower() if letter not in "-_ ")
    for maker in ("nvidia", "amd", "google", "cloud", "tpu"):
        spelt = spelt.removeprefix(maker)
    return spelt


@functools.cache
def _named_device(path: Path) -> Device:
    return _read_device(path)


@functools.cache
def _named_cluster(path: Path) -> Cluster:
    return _read_cluster(path)


@functools.cache
def _named_link(path: Path) -> LinkTechnology:
    return _read_link(path)


def _read_link(path: Path) -> LinkTechnology:
    return link_loader.link(loader.read(path, functools.partial(_beside, "links"), schema=link_loader.LINK_SCHEMA))


def _read_device(path: Path) -> Device:
    device = loader.device(loader.read(path, functools.partial(_beside, "devices"), schema=loader.DEVICE_SCHEMA))
    # What a file of one's own says of checks is nothing that this project knows of.
    return device if path.parent == _CATALOGUE / "devices" else replace(device, checked=DATA_SHEET)


def _read_cluster(path: Path) -> Cluster:
    return loader.cluster(
        loader.read(path, functools.partial(_beside, "clusters"), schema=loader.CLUSTER_SCHEMA),
        _device_beside,
        _link_beside,
    )


def _beside(folder: Folder, name: str, user: Path) -> Path:
    """The file that `name` means inside the file `user`: paths are relative to it."""
    if _is_path(name):
        return user.parent / name
    try:
        return _find(folder, name)
    except UnsupportedError as error:
        raise UnsupportedError(error.message, where=str(user), fix=error.fix) from None


def _device_beside(name: str, user: Path) -> Device:
    path = _beside("devices", name, user)
    return load_device(path) if _is_path(name) else _named_device(path)


def _link_beside(name: str, user: Path) -> LinkTechnology:
    path = _beside("links", name, user)
    return _read_link(path) if _is_path(name) else _named_link(path)
