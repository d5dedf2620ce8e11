"""ASTRA-sim's `system.json`, `remote_memory.json` and communicator groups, read and written.

Keys that ASTRA-sim reads and one collective does not feel are carried along, so that a file that is read and written says
the same. Keys that ASTRA-sim does not know it passes over in silence; here they are errors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args

from meshcast.base import InputError, UsageError, json_value, nearest, unreadable, whole_files
from meshcast.hardware import AstraNetwork, network_text
from meshcast.network.astra.config import ASTRA_KINDS, AstraSystem, implementation

MemoryType = Literal[
    "NO_MEMORY_EXPANSION", "PER_NODE_MEMORY_EXPANSION", "PER_NPU_MEMORY_EXPANSION", "MEMORY_POOL"
]  # fmt: skip
SPLITS, MEMORY_RATE = "preferred-dataset-splits", "local-mem-bw"
NETWORK_FILE, SYSTEM_FILE, MEMORY_FILE = INPUT_FILES = ("network.yml", "system.json", "remote_memory.json")
# Read by ASTRA-sim, in some release, and not modelled: values of these are carried along as they are.
CARRIED = frozenset({
    "L", "o", "g", "G", "local-reduction-delay", "model-shared-bus", "peak-perf", "roofline-enabled", "trace-enabled",
    "replay-only", "track-local-mem", "local-mem-trace-filename", "boost-mode", "intra-dimension-scheduling",
    "inter-dimension-scheduling", "per-node-custom-implementation",
    *(f"{kind.replace('_', '-')}-implementation-custom" for kind in ASTRA_KINDS),
})  # fmt: skip
# Numbers and choices of a system file: the field of `AstraSystem`, and what reads a value.
_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "scheduling-policy": ("scheduling", lambda value: _choice(value, ("LIFO", "FIFO", "EXPLICIT"))),
    "collective-optimization": ("optimisation", lambda value: _choice(value, ("baseline", "localBWAware"))),
    "endpoint-delay": ("endpoint_delay_ns", lambda value: _whole(value, least=0)),
    "active-chunks-per-dimension": ("active_chunks", lambda value: _whole(value, least=1)),
    SPLITS: ("splits", lambda value: _whole(value, least=1)),
    MEMORY_RATE: ("local_memory_bandwidth", lambda value: _positive(value)),
    **{f"{kind.replace('_', '-')}-implementation": (kind, lambda value: _algorithms(value)) for kind in ASTRA_KINDS},
}
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteMemory:
    """Memory beyond the NPUs' own.

    Attributes:
        kind: Whose it is.
        latency_ns: The latency of an access; None where there is no such memory, as of the fields behind.
        bandwidth: GB/s.
    """

    kind: MemoryType = "NO_MEMORY_EXPANSION"
    latency_ns: float | None = None
    bandwidth: float | None = None
    nodes: int | None = None
    npus_per_node: int | None = None


_REMOTE: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "memory-type": ("kind", lambda value: _choice(value, get_args(MemoryType))),
    "remote-mem-latency": ("latency_ns", lambda value: _positive(value)),
    "remote-mem-bw": ("bandwidth", lambda value: _positive(value)),
    "num-nodes": ("nodes", lambda value: _whole(value, least=1)),
    "num-npus-per-node": ("npus_per_node", lambda value: _whole(value, least=1)),
}


def read_system(path: Path) -> AstraSystem:
    """The system layer's settings in a file.

    Raises:
        InputError: It cannot be read, a key is unknown, or a value is none that ASTRA-sim takes.
    """
    data = _read_object(path)
    fields: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for key, value in data.items():
        if key in _FIELDS:
            fields[_FIELDS[key][0]] = _parsed(path, key, value, _FIELDS[key][1])
        elif key in CARRIED:
            others[key] = value
        else:
            raise InputError(f"unknown key {key!r}", where=str(path), fix=nearest(key, {*_FIELDS, *CARRIED}))
    if "splits" not in fields:
        raise InputError(
            f"no {SPLITS}", where=str(path), fix=f'add "{SPLITS}": 4, the number of chunks of a collective'
        )
    return AstraSystem(**fields, others=others)


def system_text(system: AstraSystem) -> str:
    """The settings as a file: what is set, and what else it said."""
    data = {key: getattr(system, name) for key, (name, _) in _FIELDS.items()}
    data = {key: list(value) if isinstance(value, tuple) else value for key, value in data.items()}
    return _text({key: value for key, value in data.items() if value not in (None, [])} | dict(system.others))


def read_remote_memory(path: Path) -> RemoteMemory:
    """The remote memory in a file.

    Raises:
        InputError: It cannot be read, or a key or value is none that ASTRA-sim takes.
    """
    data = _read_object(path)
    fields: dict[str, Any] = {}
    for key, value in data.items():
        if key not in _REMOTE:
            raise InputError(f"unknown key {key!r}", where=str(path), fix=nearest(key, _REMOTE))
        fields[_REMOTE[key][0]] = _parsed(path, key, value, _REMOTE[key][1])
    if "kind" not in fields:
        raise InputError("no memory-type", where=str(path), fix='add "memory-type": "NO_MEMORY_EXPANSION"')
    return RemoteMemory(**fields)


def remote_memory_text(memory: RemoteMemory) -> str:
    """The remote memory as a file."""
    data = {key: getattr(memory, name) for key, (name, _) in _REMOTE.items()}
    return _text({key: value for key, value in data.items() if value is not None})


def read_groups(path: Path, npus: int) -> dict[int, tuple[int, ...]]:
    """Communicator groups by number: the NPUs of each, in order.

    Raises:
        InputError: It cannot be read, or names an NPU that is not there or is there twice.
    """
    groups: dict[int, tuple[int, ...]] = {}
    for key, members in _read_object(path).items():
        where = f"{path}: group {key}"
        if not key.isdecimal() or int(key) < 1:
            raise InputError(f"a group is called {key!r}", where=str(path), fix="call groups by numbers from 1")
        if not isinstance(members, list) or not members or not all(type(member) is int for member in members):
            raise InputError("is no list of NPUs", where=where, fix="write [0, 1, 2]")
        if beyond := [member for member in members if not 0 <= member < npus]:
            raise InputError(
                f"has NPU {beyond[0]}, the network has {npus}", where=where, fix=f"use numbers 0 to {npus - 1}"
            )
        if len(set(members)) != len(members):
            raise InputError(f"{len(members)} NPUs are named, {len(set(members))} of them different", where=where)
        groups[int(key)] = tuple(members)
    return groups


def groups_text(groups: Mapping[int, Sequence[int]]) -> str:
    """Communicator groups as a file."""
    return _text({str(number): list(members) for number, members in groups.items()})


def input_texts(network: AstraNetwork, system: AstraSystem, memory: RemoteMemory) -> dict[str, tuple[str, str]]:
    """Names and texts of the three files that every run needs, by ASTRA-sim's flags."""
    return {
        "network-configuration": (NETWORK_FILE, network_text(network)),
        "system-configuration": (SYSTEM_FILE, system_text(system)),
        "remote-memory-configuration": (MEMORY_FILE, remote_memory_text(memory)),
    }


def write_inputs(folder: Path, network: AstraNetwork, system: AstraSystem, memory: RemoteMemory) -> dict[str, Path]:
    """Writes the three files that every run needs, and gives their paths by ASTRA-sim's flags.

    Raises:
        UsageError: The folder cannot be written to.
        OutputError: The disk is full.
    """
    texts = input_texts(network, system, memory)
    with whole_files(folder / NETWORK_FILE, fix="choose another folder") as staged:
        for name, text in texts.values():
            staged.path(folder / name).write_text(text, encoding="utf-8")
    return {flag: folder / name for flag, (name, _) in texts.items()}


def _text(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=2) + "\n"


def _read_object(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    data = json_value(text, where=str(path))
    if not isinstance(data, dict):
        raise InputError("is no JSON object", where=str(path), fix='write { "key": value, ... }')
    return cast("dict[str, Any]", data)


def _parsed(path: Path, key: str, value: Any, parse: Callable[[Any], T]) -> T:
    try:
        return parse(value)
    except (ValueError, UsageError) as error:
        fix = error.fix if isinstance(error, UsageError) else None
        said = error.message if isinstance(error, UsageError) else str(error)
        raise InputError(f"{key}: {said}", where=str(path), fix=fix) from None


def _choice(value: Any, known: Sequence[str]) -> str:
    if value not in known:
        raise ValueError(f"{value!r} is none of {', '.join(known)}")
    return cast(str, value)


def _whole(value: Any, *, least: int) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"{value!r} is no whole number of {least} or more")
    return value


def _positive(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise ValueError(f"{value!r} is no number above 0")
    return float(value)


def _algorithms(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{value!r} is no list of algorithms, one for each dimension")
    for name in value:
        implementation(name)
    return tuple(value)
