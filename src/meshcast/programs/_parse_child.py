"""The child process that reads programs before we do: what is damaged can abort jaxlib's readers or take all memory."""

from __future__ import annotations

from typing import Any

from meshcast.base import READER_BYTES, serve
from meshcast.programs import hlo_text, mlir


def answer(request: dict[str, Any], data: bytes) -> bytes:
    """HLO text as StableHLO text, bytecode as bytecode of our own writing; of MLIR text nothing, once it was read."""
    form, where = request["form"], request["where"]
    if form == "hlo":
        return hlo_text.to_stablehlo(data.decode(), where=where).encode()
    if form == "portable":
        module = mlir.deserialize_portable(data, where=where)
    else:
        module = mlir.parse_module(data.decode() if form == "text" else data, where=where)
    if request["names"]:
        _read_names(module.operation)
    return b"" if form == "text" else mlir.to_bytecode(module)


def _read_names(operation: Any) -> None:
    """Reads the name in every debug location: the bindings end the process at one that is no UTF-8."""
    for op in mlir.operations(operation):
        arguments = (argument for region in op.regions for block in region.blocks for argument in block.arguments)
        for each in (op, *arguments):
            for part in ("name_str", "filename"):
                getattr(each.location, part, None)


if __name__ == "__main__":
    serve(answer, memory_bytes=READER_BYTES)
