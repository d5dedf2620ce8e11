"""What an answer depends on, as one hash: the program or traces, the hardware, the settings, and everything that answers."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from meshcast.hardware import Cluster
from meshcast.jobs import TraceFiles
from meshcast.lower import FLAG_VARIABLES
from meshcast.options import Options
from meshcast.programs import Program
from meshcast.workload import registered_rules


def cell_key(program: Program, cluster: Cluster, options: Options) -> str:
    """The key of a program's answer on a cluster: equal keys have equal answers."""
    return _key((program.name, program.sha256, str(program.mesh)), cluster, options)


def traces_key(content: str, cluster: Cluster, options: Options) -> str:
    """The key of an answer about traces, by their `traces_content`."""
    return _key(("traces", content), cluster, options)


def traces_content(files: TraceFiles) -> str:
    """A hash of a job's name and of everything in its files: traces, groups, and what a manifest says of equal ranks."""
    digests = {path: _file_digest(path) for path in dict.fromkeys(files.by_rank.values())}
    classes = files.manifest.classes if files.manifest is not None else ()
    said = [
        files.name,
        repr([(rank, digests[path]) for rank, path in files.by_rank.items()]),
        _file_digest(files.groups),
        repr([(each.ranks, each.ambiguous, sorted(each.values.items())) for each in classes]),
    ]
    return hashlib.sha256("\0".join(said).encode()).hexdigest()


def _key(asked: Iterable[str], cluster: Cluster, options: Options) -> str:
    parts = [
        tool_digest(),
        *asked,
        repr(cluster),
        repr(options.key),
        *(_file_digest(path) for path in (options.estimate.profile, options.network.fabric, options.network.placement)),
        # A rule of the user's own shows its address: it can change without changing its name, so nothing is reused.
        repr(registered_rules()),
        repr([os.environ.get(variable) for variable in FLAG_VARIABLES]),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@functools.cache
def tool_digest() -> str:
    """A hash of our own code and data, and of what is installed: an extra more may answer what nobody could before."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    installed = {(dist.metadata["Name"], dist.version) for dist in metadata.distributions()}
    digest.update(repr(sorted(installed)).encode())
    return digest.hexdigest()


def _file_digest(path: str | Path | None) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path is not None else ""
    except OSError:
        return "unreadable"  # and then the answer is an error that says so
