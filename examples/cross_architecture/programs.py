"""Writes the example's programs: one StableHLO file each, the same for every device.

    python examples/cross_architecture/programs.py

The files are committed; this script is how they were made. They are lowered for CUDA: for TPUs JAX writes the same text
for all of them but ResNet-50, where it leaves out the padding before the gradient of the max pooling, which CUDA needs.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from meshcast import capture, zoo

FOLDER = Path(__file__).parent / "programs"
CHIPS = 8
SIZE = 16384  # of the square products over 8 chips; the product of one chip has an eighth of their FLOPs


def gemm() -> tuple[Any, ...]:
    """A square bf16 product on one chip."""
    square = jax.ShapeDtypeStruct((SIZE // 2, SIZE // 2), jnp.bfloat16)
    return lambda x, w: x @ w, (square, square), {}


def sharded_gemm(x_axes: P, w_axes: P, y_axes: P) -> tuple[Any, ...]:
    """A square bf16 product over 8 chips; the shardings say which collective it takes."""
    mesh = AbstractMesh((CHIPS,), ("chips",), axis_types=(AxisType.Auto,))
    x, w = (
        jax.ShapeDtypeStruct((SIZE, SIZE), jnp.bfloat16, sharding=NamedSharding(mesh, axes))
        for axes in (x_axes, w_axes)
    )
    return lambda x, w: x @ w, (x, w), {"out_shardings": NamedSharding(mesh, y_axes)}


PROGRAMS = {
    "gemm-1-chip": gemm,
    # Columns of x and rows of w on each chip: partial sums of the whole product are added up over all chips.
    "gemm-8-all-reduce": lambda: sharded_gemm(P(None, "chips"), P("chips", None), P(None, None)),
    # Rows of x on each chip, and w stored in parts as FSDP does it: gathered before it is used.
    "gemm-8-all-gather": lambda: sharded_gemm(P("chips", None), P("chips", None), P("chips", None)),
    "resnet50-train-8": lambda: zoo.build("resnet50", mesh={"data": CHIPS}, batch=512),
    "gpt2-train-8": lambda: zoo.build("gpt2-small", mesh={"data": CHIPS}, batch=64),
    "llama3-8b-train-8": lambda: zoo.build("llama3-8b", mesh={"fsdp": CHIPS}, batch=8, seq=4096),
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, build in PROGRAMS.items():
        fn, args, options = build()
        program = capture(fn, *args, name=name, platform="cuda", options=options)
        # No time stamp: the same program is the same file.
        (FOLDER / f"{name}.mlir.gz").write_bytes(gzip.compress(program.text.encode(), mtime=0))
        print(f"{name}: {program.devices} chips, {len(program.text):,} characters")


if __name__ == "__main__":
    main()
