"""Partitioning with Shardy's passes inside jaxlib: no devices, any mesh, milliseconds; in a child process.

The result is the program of one device in Shardy's own terms: global types, a sharding on every op, and explicit
`sdy.all_gather`, `sdy.reduce_scatter`, `sdy.all_reduce`, `sdy.all_to_all`, `sdy.collective_permute` ops whose groups
are mesh axes. The workload reader divides the types by their shardings.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshcast.capture import mlir
from meshcast.capture.program import Program, module_mesh
from meshcast.errors import MeshcastError, UnsupportedError, UsageError, nearest
from meshcast.mesh import Mesh
from meshcast.partition.divisibility import check_divisible
from meshcast.partition.flatten import flatten


def child_environment() -> dict[str, str]:
    """Our environment, with this very package importable however the parent found it."""
    package_root = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")]))}


class ShardyChild:
    """One child process, kept for the next program; a new one is started after a crash, a fork or an interrupt."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: Any = None
        self._owner = 0  # the process that started the child: a forked copy of us must not talk over the same pipe
        self._lock = threading.Lock()

    def partition(self, data: bytes, mesh: Mapping[str, int] | None, *, optimise: bool, where: str) -> bytes:
        """The partitioned module's bytecode."""
        request = {"bytes": len(data), "mesh": dict(mesh) if mesh else None, "optimise": optimise}
        with self._lock:
            process = self._running()
            try:
                answer, result = _exchange(process, json.dumps(request).encode() + b"\n" + data)
            except (BrokenPipeError, EOFError):
                raise self._crash(where) from None
            except BaseException:  # interrupted half-way: what is still in the pipe belongs to nobody
                self.close()
                raise
        if not answer["ok"]:
            raise _refusal(answer["message"], where)
        return result

    def close(self) -> None:
        """Ends the child, if it is ours."""
        if self._process is None or self._owner != os.getpid():
            return
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._process = None
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner != os.getpid():
            self._process = self._errors = None
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._owner = os.getpid()
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
            self._process = subprocess.Popen(
                [sys.executable, "-m", "meshcast.partition._shardy_child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=child_environment(),
            )
        return self._process

    def _crash(self, where: str) -> UnsupportedError:
        """What is known after the child died without an answer."""
        assert self._process is not None
        code = self._process.wait()
        self._errors.seek(0)
        tail = self._errors.read().decode(errors="replace").strip().splitlines()[-3:]
        self.close()
        return UnsupportedError(
            f"Shardy aborted on this program (exit {code}): " + (" | ".join(tail) or "without a message"),
            where=where,
            fix="constrain the sharding where it is ambiguous, or check the program with XLA's partitioner (--partitioner xla)",
        )


def _exchange(process: subprocess.Popen[bytes], request: bytes) -> tuple[dict[str, Any], bytes]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(request)
    process.stdin.flush()
    header = process.stdout.readline()
    if not header:
        raise EOFError
    answer = json.loads(header)
    return answer, process.stdout.read(answer.get("bytes", 0))


_child = ShardyChild()
atexit.register(_child.close)


def partition(program: Program, *, mesh: Mapping[str, int] | None = None, optimise: bool = True) -> Program:
    """The program of one device, with explicit collectives; unsharded programs come back as they are.

    Args:
        program: A captured program.
        mesh: Axis sizes that replace the program's own; unnamed axes keep theirs.
        optimise: Merge collectives as XLA's later passes do; False stops where XLA's partitioner itself stops.
    """
    target = _resized(program, mesh)
    if program.partitioned or not _is_sharded(program):
        if mesh and not program.partitioned:
            raise UsageError("the program has no mesh to override", where=program.name, fix="capture it with shardings")
        return program if program.partitioned else flatten(program)
    if target.size == 1:
        return flatten(replace(program, mesh=target))
    check_divisible(program, target)
    data = _child.partition(program.bytecode, mesh, optimise=optimise, where=program.name)
    module = mlir.parse(data, where=program.name)
    return replace(program, module=module, mesh=module_mesh(module), partitioned=True)


def _is_sharded(program: Program) -> bool:
    return any(op.operation.name == "sdy.mesh" for op in program.module.body.operations)


def _resized(program: Program, mesh: Mapping[str, int] | None) -> Mesh:
    if not mesh:
        return program.mesh
    known = program.mesh.sizes
    for axis in mesh:
        if axis not in known:
            raise UsageError(f"the program's mesh ({program.mesh}) has no axis {axis!r}", where="--mesh", fix=nearest(axis, known))
    return Mesh(axes=tuple((name, mesh.get(name, size)) for name, size in program.mesh.axes))


def _refusal(message: str, where: str) -> MeshcastError:
    first = next((line for line in message.splitlines() if "error" in line), message.strip().splitlines()[0] if message.strip() else "")
    return UnsupportedError(f"Shardy cannot partition this program: {first.strip()}", where=where, fix="see the op named; constrain or re-shard it")
