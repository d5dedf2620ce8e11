"""The child process that compiles a program for virtual CPU devices, only for XLA to dump it once partitioned.

Usage: `python -m meshcast.partition._xla_spmd_child PROGRAM DEVICES`, where PROGRAM is a file with StableHLO in MLIR
text or bytecode. The dump is asked for through `XLA_FLAGS`, which the parent sets; nothing comes out on stdout. The
parent may kill this process as soon as the dump is there: what XLA does after partitioning is of no interest.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from jaxlib import _jax, xla_client

from meshcast.base import end_with_parent
from meshcast.partition.xla_options import compile_options


def main(arguments: list[str]) -> None:
    """Compiles the program in `arguments[0]` for `arguments[1]` devices."""
    program, devices = Path(arguments[0]).read_bytes(), int(arguments[1])
    client: Any = xla_client.make_cpu_client()
    client.compile_and_load(program, _jax.DeviceList(tuple(client.devices())), compile_options(devices))


if __name__ == "__main__":
    end_with_parent()
    main(sys.argv[1:])
