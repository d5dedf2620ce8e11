"""The child process that reads Triton kernels: their code is bytecode inside a program, which may be damaged."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from jaxlib.mlir import ir
from jaxlib.triton import dialect

from meshcast.base import READER_BYTES, serve
from meshcast.workload.triton_code import kernel_work


def answer(request: dict[str, Any], data: bytes) -> bytes:
    """The work of the kernel whose bytecode is given over `{"grid": [x, y, z]}`, as JSON; an error otherwise."""
    context = ir.Context()
    dialect.register_dialect(context)
    context.load_all_available_dialects()
    with context:
        module = ir.Module.parse(data)
        x, y, z = request["grid"]
        return json.dumps(asdict(kernel_work(module, (x, y, z)))).encode()


if __name__ == "__main__":
    serve(answer, memory_bytes=READER_BYTES)
