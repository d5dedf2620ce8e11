"""What an answer depends on, as one hash: the program, the hardware, the settings, and everything that answers."""

from __future__ import annotations

import functools
import hashlib
import os
from dataclasses import fields
from importlib import metadata
from pathlib import Path

from meshcast.capture.program import Program
from meshcast.hardware import Cluster
from meshcast.lower.xla_tpu.compiler import FLAG_VARIABLES
from meshcast.options import Options
from meshcast.workload.custom_calls import registered_rules


def cell_key(program: Program, cluster: Cluster, options: Options) -> str:
    """The key of a program's answer on a cluster: equal keys have equal answers."""
    settings = [(option.name, getattr(options, option.name)) for option in fields(options)]
    parts = [
        tool_digest(),
        program.name,
        program.sha256,
        str(program.mesh),
        repr(cluster),
        # A mapping's order has no meaning.
        repr([(name, sorted(value.items()) if hasattr(value, "items") else value) for name, value in settings]),
        *(_file_digest(path) for path in (options.profile, options.fabric, options.placement)),
        # A rule of the user's own shows its address: it can change without changing its name, so nothing is reused.
        repr(registered_rules()),
        repr([os.environ.get(variable) for variable in FLAG_VARIABLES]),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@functools.cache
def tool_digest() -> str:
    """A hash of our own code and data, and of what is installed: an extra more may answer what nobody could before."""
    root = Path(__file__).resolve().parents[1]
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
