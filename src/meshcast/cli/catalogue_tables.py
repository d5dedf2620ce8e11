"""The catalogue for `meshcast devices`: all devices and clusters, or one entry with the source of every number."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshcast.base import UnsupportedError, format_bytes, format_rate
from meshcast.hardware import (
    Cluster,
    Device,
    Fact,
    NetworkLevel,
    Source,
    catalogue,
    load_cluster,
    load_device,
    read_document,
    resolve,
)
from meshcast.results import Section, columns, print_sections

CATALOGUE_SCHEMA = "meshcast.catalogue/1"
ENTRY_SCHEMA = "meshcast.catalogue-entry/1"


def catalogue_json() -> dict[str, Any]:
    """All devices and clusters with their main figures in SI units, schema `meshcast.catalogue/1`."""
    known = catalogue()
    return {
        "schema": CATALOGUE_SCHEMA,
        "devices": [_device_json(device) for device in known.devices],
        "clusters": [_cluster_json(cluster) for cluster in known.clusters],
    }


def print_catalogue() -> None:
    """Prints all devices and clusters."""
    known = catalogue()
    devices = [
        (
            device.name,
            _peak(device, "bf16", "f16", "f32"),
            _peak(device, "f8", "i8"),
            format_bytes(device.memory_bytes),
            format_rate(device.memory_bandwidth),
            f"{device.tdp_watts:.0f} W",
            device.default_cluster or "none",
            device.title,
        )
        for device in known.devices
    ]
    clusters = [
        (cluster.name, cluster.device.name, f"{cluster.max_devices:,}", _levels(cluster)) for cluster in known.clusters
    ]
    heads = columns("device", ">peak", ">8 bit", ">memory", ">bandwidth", ">power", "?cluster", "?what it is")
    note = "peaks are dense, of the matrix engine"
    print_sections(
        [
            Section(title="Devices", columns=heads, rows=devices, note=note),
            Section(
                title="Clusters",
                columns=columns("cluster", "device", ">devices", "levels, from the inside out"),
                rows=clusters,
                note="rates are per device and direction; meshcast devices NAME gives every number with its source",
            ),
        ]
    )


def entry_json(name: str) -> dict[str, Any]:
    """One device or cluster with every fact and its source, schema `meshcast.catalogue-entry/1`."""
    entry = find_entry(name)
    described = _device_json(entry) if isinstance(entry, Device) else _cluster_json(entry)
    facts = {
        key: {
            "value": fact.value,
            "unit": fact.unit,
            "text": fact.text,
            "source": _source_json(fact.source, entry.sources),
            "note": fact.note,
        }
        for key, fact in entry.facts.items()
    }
    return {
        "schema": ENTRY_SCHEMA,
        "type": "device" if isinstance(entry, Device) else "cluster",
        **described,
        "notes": entry.notes,
        "facts": facts,
    }


def print_entry(name: str) -> None:
    """Prints one device or cluster: what it is, every number as its file has it, and the sources."""
    entry = find_entry(name)
    about = [("aliases", ", ".join(entry.aliases))] if entry.aliases else []
    if isinstance(entry, Device):
        about += [
            ("kind", f"{entry.vendor} {entry.kind}, {entry.architecture}, {entry.released}"),
            ("cluster", entry.default_cluster or "none in the catalogue"),
        ]
    else:
        about.append(("device", f"{entry.device.name}, {entry.device.title}"))
        about += [(level.name, f"{level.technology}, {_reach(level)}") for level in entry.levels]
    if entry.notes:
        about.append(("notes", entry.notes))
    print_sections(
        [
            Section(title=f"{entry.name}: {entry.title}", rows=about),
            Section(title="Numbers", columns=columns("fact", "value", "source", "note"), rows=_fact_rows(entry.facts)),
            Section(title="Sources", rows=_source_rows(entry.sources, entry.facts)),
        ]
    )


def find_entry(name: str) -> Device | Cluster:
    """The device or cluster of this name, alias or file.

    Raises:
        UnsupportedError: Neither a device nor a cluster has this name.
        InputError: The file cannot be read or does not follow its schema.
    """
    if name.endswith(".toml") or "/" in name:
        is_cluster = str(read_document(Path(name)).data.get("schema", "")).startswith("meshcast.cluster/")
        return load_cluster(name) if is_cluster else load_device(name)
    for load in (load_device, load_cluster):
        try:
            return load(name)
        except UnsupportedError:
            continue
    return resolve(name)  # raises, with the nearest of all names


def _fact_rows(facts: Mapping[str, Fact]) -> list[tuple[str, ...]]:
    return [(key, fact.text, fact.source, fact.note or "") for key, fact in facts.items()]


def _source_rows(sources: Mapping[str, Source], facts: Mapping[str, Fact]) -> list[tuple[str, str]]:
    """The sources in use; a file based on another inherits some that it no longer cites."""
    cited = {fact.source for fact in facts.values()}
    rows: list[tuple[str, str]] = []
    for key, source in sources.items():
        if key in cited:
            rows.append((key, source.title))
            rows += [("", line) for line in (source.url, source.note) if line]
    return rows


def _source_json(key: str, sources: Mapping[str, Source]) -> dict[str, str | None]:
    """A fact's source; derived, assumed and users' own numbers have no title: their note says how."""
    source = sources.get(key)
    return {"key": key, "title": source.title if source else None, "url": source.url if source else None}


def _device_json(device: Device) -> dict[str, Any]:
    return {
        "name": device.name,
        "title": device.title,
        "vendor": device.vendor,
        "kind": device.kind,
        "architecture": device.architecture,
        "released": device.released,
        "aliases": list(device.aliases),
        "matrix_flops": dict(device.matrix_flops),
        "vector_flops": dict(device.vector_flops),
        "memory_bytes": device.memory_bytes,
        "memory_bandwidth": device.memory_bandwidth,
        "cache_bytes": device.cache_bytes,
        "cache_partitions": device.cache_partitions,
        "tdp_watts": device.tdp_watts,
        "default_cluster": device.default_cluster,
        "checked": {"how": device.checked.how, "against": device.checked.against or None},
    }


def _cluster_json(cluster: Cluster) -> dict[str, Any]:
    levels = [
        {
            "name": level.name,
            "technology": level.technology,
            "topology": level.topology,
            "size": level.size,
            "bandwidth": level.bandwidth,
            "latency_s": level.latency_s,
            "in_network_reduction": level.in_network_reduction,
        }
        for level in cluster.levels
    ]
    return {
        "name": cluster.name,
        "title": cluster.title,
        "device": cluster.device.name,
        "aliases": list(cluster.aliases),
        "max_devices": cluster.max_devices,
        "levels": levels,
    }


def _peak(device: Device, *dtypes: str) -> str:
    present = next((dtype for dtype in dtypes if dtype in device.matrix_flops), None)
    return f"{format_rate(device.matrix_flops[present], 'FLOP/s')} {present}" if present else "none"


def _levels(cluster: Cluster) -> str:
    return "; ".join(f"{level.name} {_reach(level)}" for level in cluster.levels)


def _reach(level: NetworkLevel) -> str:
    return f"{level.size:,} at {format_rate(level.bandwidth)} ({level.topology})"
