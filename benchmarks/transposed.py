"""Writes a folder of transposed convolutions for `benchmarks/corpus/measure.py`: layers that enlarge, with both gradients.

    python -m benchmarks.transposed FOLDER [--count 56]
    python benchmarks/corpus/measure.py FOLDER OUT --quick --compilers 4

A program is one layer of an autoencoder, a U-Net or a generator and what training makes of it: `y = conv_transpose(x, w)`, and
the gradients by `x` and by `w`. The last is what is asked for: XLA has no call of cuDNN for it
(`lower/convolutions/cudnn_convolutions.py`). Layers are drawn by a seed; the id says all. Part `apart`, every second one by the
SHA-256 of its id, is for judging what is set with the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.folders import Case, write_folder

SEED = 23
MOST_FLOPS = 1e11


@dataclass(frozen=True)
class Layer:
    """A layer's sizes: of the smaller image, which is enlarged `stride` times."""

    dtype: str
    batch: int
    size: int
    cin: int
    cout: int
    k: int
    stride: int
    padding: str

    @property
    def id(self) -> str:
        """All of it in a name."""
        return "transposed-" + "-".join(f"{key}{value}" for key, value in asdict(self).items())

    @property
    def flops(self) -> float:
        """Of the forward pass."""
        return 2.0 * self.batch * self.size**2 * self.cin * self.cout * self.k**2


def layers() -> Iterator[Layer]:
    """Layers without end, drawn by the seed."""
    random = np.random.default_rng(SEED)

    def one(values: Any) -> Any:
        return values[random.integers(len(values))]

    while True:
        k, stride, padding = one(
            (
                (3, 2, "SAME"),
                (3, 2, "SAME"),
                (4, 2, "SAME"),
                (2, 2, "SAME"),
                (5, 2, "SAME"),
                (4, 2, "VALID"),
                (3, 1, "SAME"),
            )
        )
        layer = Layer(
            dtype=one(("float32", "float32", "bfloat16")),
            batch=one((4, 8, 16, 32, 64, 128)),
            size=one((4, 7, 8, 14, 16, 28, 32, 40, 64, 80)),
            cin=one((16, 32, 64, 128, 256, 512)),
            cout=one((1, 3, 16, 32, 64, 64, 128, 256)),
            k=k,
            stride=stride,
            padding=padding,
        )
        if 1e8 < layer.flops < MOST_FLOPS:
            yield layer


def step(layer: Layer) -> tuple[Any, list[Any]]:
    """The program's function, and its arguments."""
    dtype = jnp.dtype(layer.dtype)

    def forward(x: Any, w: Any) -> Any:
        return jax.lax.conv_transpose(
            x, w.astype(x.dtype), (layer.stride,) * 2, layer.padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    x = jax.ShapeDtypeStruct((layer.batch, layer.size, layer.size, layer.cin), dtype)
    w = jax.ShapeDtypeStruct((layer.k, layer.k, layer.cin, layer.cout), jnp.float32)

    def run(x: Any, w: Any, dy: Any) -> Any:
        y, back = jax.vjp(forward, x, w)
        return jax.nn.relu(y), *back(dy)

    return run, [x, w, jax.eval_shape(forward, x, w)]


def main() -> None:
    """Writes `programs/ID.mlir.gz` and `index.jsonl`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=56)
    asked = parser.parse_args()
    found: dict[str, Layer] = {}
    for layer in layers():
        found[layer.id] = layer
        if len(found) >= asked.count:
            break
    cases = [Case(name, *step(layer), dtype=layer.dtype) for name, layer in found.items()]
    write_folder(asked.folder, cases, library="layers", group="conv", mode="train")


if __name__ == "__main__":
    main()
