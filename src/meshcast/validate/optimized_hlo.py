"""Kernels of a program that XLA has compiled: what its optimized, scheduled HLO launches, and the bytes each moves.

Bytes cross a fusion's boundary: of an operand that is only sliced or gathered inside, the slices; of an update in
place, the update; a library call's workspace is not counted. A loop's body counts as often as XLA says it runs.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from meshcast.capture import hlo_lines
from meshcast.capture.hlo_lines import Instruction
from meshcast.workload.graph import DTYPE_BITS

CLASSES = ("gemm", "convolution", "attention", "reduction", "loop", "other")
# fmt: off
_NO_KERNEL = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call", "fusion-done",
    "copy-done", "after-all", "partition-id", "replica-id", "add-dependency", "opt-barrier",
})
# fmt: on
_PARTIAL = frozenset({"dynamic-slice", "slice", "gather"})
_HEADER = re.compile(r"(ENTRY )?%?(\S+) \(.*\{$")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"?(\d+)')
_DTYPES = {"pred": "i1", "s4": "i4", "u4": "ui4", "s8": "i8", "u8": "ui8", "s16": "i16", "u16": "ui16", "s32": "i32"}
_DTYPES |= {"u32": "ui32", "s64": "i64", "u64": "ui64", "c64": "complex<f32>", "c128": "complex<f64>"}
_DTYPES |= {"f8e4m3fn": "f8E4M3FN", "f8e5m2": "f8E5M2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernel:
    """One instruction that launches something, `count` times a run."""

    name: str
    kind: str  # one of CLASSES
    bytes: int
    count: int


def read_optimized(path: Path) -> list[CompiledKernel]:
    """The kernels of a module's text, in order; nothing where the file is missing."""
    if not path.is_file():
        return []
    raw = path.read_bytes()
    return list(_Module((gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()).kernels())


class _Module:
    def __init__(self, text: str) -> None:
        self._computations: dict[str, list[Instruction]] = {}
        self._entry = ""
        current: list[Instruction] = []
        for line in text.splitlines():
            if line.startswith("  "):
                if (instruction := hlo_lines.parse(line)) is not None:
                    current.append(instruction)
            elif (header := _HEADER.match(line)) is not None:
                current = self._computations.setdefault(header.group(2), [])
                self._entry = header.group(2) if header.group(1) else self._entry

    def kernels(self) -> Iterator[CompiledKernel]:
        yield from self._walk(self._entry, 1)

    def _walk(self, name: str, count: int) -> Iterator[CompiledKernel]:
        instructions = self._computations.get(name, [])
        shapes = {instruction.name: instruction.shape for instruction in instructions}
        for instruction in instructions:
            if instruction.opcode == "while":
                trips = _TRIPS.search(instruction.attributes.get("backend_config", ""))
                yield from self._walk(_called(instruction, "body"), count * (int(trips.group(1)) if trips else 1))
            elif instruction.opcode == "call":
                yield from self._walk(_called(instruction, "to_apply"), count)
            elif instruction.opcode == "conditional":
                branches = instruction.attributes.get("branch_computations", "{}")[1:-1]
                for branch in hlo_lines.split(branches)[:1]:
                    yield from self._walk(branch.lstrip("%"), count)
            elif instruction.opcode not in _NO_KERNEL:
                yield self._kernel(instruction, shapes, count)

    def _kernel(self, instruction: Instruction, shapes: dict[str, str], count: int) -> CompiledKernel:
        body = self._computations.get(_called(instruction, "calls"), [])
        moved = _fusion_bytes(body) if body else _call_bytes(instruction, shapes)
        return CompiledKernel(name=instruction.name, kind=_kind(instruction, body), bytes=moved, count=count)


def _called(instruction: Instruction, key: str) -> str:
    return instruction.attributes.get(key, "").lstrip("%")


def _kind(instruction: Instruction, body: Sequence[Instruction]) -> str:
    target = instruction.attributes.get("custom_call_target", "")
    ops = {inner.opcode for inner in body}
    if "cublas" in target or "dot" in ops or instruction.opcode == "dot":
        return "gemm"
    if "fmha" in target:
        return "attention"
    if "conv" in target or "convolution" in ops:
        return "convolution"
    if instruction.opcode in ("custom-call", "sort", "fft", "cholesky"):
        return "other"
    return "reduction" if "reduce" in ops else "loop"


def _size(shape: str) -> int:
    array = hlo_lines.array(shape)
    return (array.elements * DTYPE_BITS.get(_DTYPES.get(array.dtype, array.dtype), 32) + 7) // 8 if array else 0


def _whole(shape: str) -> int:
    return sum(_size(element) for element in hlo_lines.elements(shape))


def _call_bytes(instruction: Instruction, shapes: dict[str, str]) -> int:
    read = sum(_whole(shapes.get(operand.lstrip("%").partition("#")[0], "")) for operand in instruction.operands)
    results = hlo_lines.elements(instruction.shape)
    workspace = len(results) > 1 and results[-1].startswith(("s8[", "u8["))
    return read + sum(_size(result) for result in (results[:-1] if workspace else results))


def _fusion_bytes(body: Sequence[Instruction]) -> int:
    by_name = {f"%{instruction.name}": instruction for instruction in body}
    users: dict[str, list[tuple[Instruction, int]]] = {}
    for instruction in body:
        for position, operand in enumerate(instruction.operands):
            users.setdefault(operand, []).append((instruction, position))
    root = next(instruction for instruction in body if instruction.root)
    results = [by_name[operand] for operand in root.operands] if root.opcode == "tuple" else [root]
    moved = sum(_written(result, by_name) for result in results)
    for instruction in body:
        if instruction.opcode == "parameter":
            whole = _whole(instruction.shape)
            moved += min(
                whole, sum(_read(user, at, whole, users) for user, at in users.get(f"%{instruction.name}", ()))
            )
    return moved


def _read(user: Instruction, position: int, whole: int, users: dict[str, list[tuple[Instruction, int]]]) -> int:
    """Bytes of an operand that one user reads; renaming it reads what the new name's users do."""
    if user.opcode == "bitcast":
        readers = users.get(f"%{user.name}", ())
        return sum(_read(reader, at, whole, users) for reader, at in readers) if readers else whole
    if position == 0 and user.opcode in _PARTIAL:
        return _whole(user.shape)
    if position == 0 and user.opcode in ("dynamic-update-slice", "scatter"):
        return 0
    return whole


def _written(result: Instruction, by_name: dict[str, Instruction]) -> int:
    while result.opcode == "bitcast" and result.operands[0] in by_name:
        result = by_name[result.operands[0]]
    if result.opcode == "dynamic-update-slice" and result.operands[1] in by_name:
        return _whole(by_name[result.operands[1]].shape)
    return _whole(result.shape)
