"""Writes a folder of convolutions for `benchmarks/corpus/measure.py`: layers of networks, with both gradients and updates.

    python -m benchmarks.convolutions FOLDER [--count 300]
    python benchmarks/corpus/measure.py FOLDER OUT --quick --compilers 4

More compilers at a time run out of the GPU's memory while cuDNN's algorithms are tried, and the best of them fail.

A program is one layer and what training makes of it: `y = f(conv(x, w))`, the gradients by `x` and by `w`, and for some an
update of `w` (momentum or Adam), which XLA fuses with the transposes around cuDNN's layouts. Layers are drawn by a seed over what
networks have: 1x1, square and long filters, along a line, in the plane and in space, strided, grouped, depthwise, of few and of
odd channels, channels last and first, in f32, bf16 and f16. The id says all. Part `apart`, every second one by the SHA-256 of
its id, is for judging what is set with the others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.folders import Case, write_folder

SEED = 17
MOST_FLOPS = 4e11
MOST_BYTES = 1.5e9
CHANNELS = (8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512, 768, 1024)
SHARES = {"pointwise": 0.2, "square": 0.34, "few": 0.12, "depthwise": 0.12, "grouped": 0.08, "line": 0.1, "space": 0.04}


@dataclass(frozen=True)
class Layer:
    """A layer's sizes, and what is computed of it."""

    kind: str
    dtype: str
    batch: int
    size: int  # of each side of the image
    cin: int
    cout: int
    k: int
    stride: int
    groups: int
    dims: int
    first: bool  # channels before the image
    update: str  # none, momentum, adam

    @property
    def id(self) -> str:
        """All of it in a name."""
        return "conv-" + "-".join(f"{key}{value}" for key, value in asdict(self).items())

    @property
    def outputs(self) -> int:
        """Pixels of the result."""
        return int((-(-self.size // self.stride)) ** self.dims)

    @property
    def fits(self) -> bool:
        """Whether it is of a size that a network has, and quickly measured."""
        width = 4 if self.dtype == "float32" else 2
        flops = 2 * self.batch * self.outputs * self.cout * self.cin / self.groups * self.k**self.dims
        moved = self.batch * (self.size**self.dims * self.cin + self.outputs * self.cout) * width
        return 1e7 < flops < MOST_FLOPS and 1e5 < moved < MOST_BYTES and self.k <= self.size


def layers() -> Iterator[Layer]:
    """Layers without end, drawn by the seed."""
    random = np.random.default_rng(SEED)
    kinds, shares = list(SHARES), list(SHARES.values())

    def one(values: Any) -> Any:
        return values[random.integers(len(values))]

    while True:
        kind = kinds[random.choice(len(kinds), p=shares)]
        dims = {"line": 1, "space": 3}.get(kind, 2)
        size = int(2 ** random.uniform(*{1: (6, 13), 2: (2, 7.5), 3: (2, 5.5)}[dims]))
        size = one((size, 7, 14, 28, 56, 112)) if dims == 2 and random.random() < 0.5 else size
        cin, cout = one(CHANNELS), one(CHANNELS)
        groups = 1
        if kind == "few":
            cin = one((1, 2, 3, 4, 6))
        elif kind == "depthwise":
            groups = cin
            cout = cin * one((1, 1, 1, 2))
        elif kind == "grouped":
            cin = cout = one((64, 128, 192, 256, 384, 512, 1024))
            groups = one((2, 4, 8, 32))
        elif random.random() < 0.4:
            cout = cin
        layer = Layer(
            kind=kind,
            dtype=one(("float32", "float32", "float32", "bfloat16", "bfloat16", "float16")),
            batch=one((1, 2, 4, 8, 16, 32, 64, 128)),
            size=size,
            cin=cin,
            cout=cout,
            k=1 if kind == "pointwise" else one((3, 3, 3, 5, 7, 4)),
            stride=one((1, 1, 1, 2)),
            groups=groups,
            dims=dims,
            first=bool(random.random() < 0.25),
            update=one(("none", "momentum", "adam")),
        )
        if layer.fits:
            yield layer


def step(layer: Layer) -> tuple[Any, list[Any]]:
    """The program's function, and its arguments."""
    image = "DHW"[-layer.dims :]
    places = ("N" + ("C" + image if layer.first else image + "C"), image + "IO")
    sizes = (layer.size,) * layer.dims
    outputs = (-(-layer.size // layer.stride),) * layer.dims

    def arranged(pixels: tuple[int, ...], channels: int) -> Any:
        shape = (layer.batch, channels, *pixels) if layer.first else (layer.batch, *pixels, channels)
        return jax.ShapeDtypeStruct(shape, jnp.dtype(layer.dtype))

    weights = jax.ShapeDtypeStruct((*(layer.k,) * layer.dims, layer.cin // layer.groups, layer.cout), jnp.float32)

    def forward(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x, w.astype(x.dtype), (layer.stride,) * layer.dims, "SAME", feature_group_count=layer.groups,
            dimension_numbers=(places[0], places[1], places[0]),
        )  # fmt: skip

    def run(x: Any, w: Any, dy: Any, m: Any, v: Any) -> Any:
        y, back = jax.vjp(forward, x, w)
        dx, dw = back(dy)
        if layer.update == "none":
            return jax.nn.relu(y), dx, dw
        m = 0.9 * m + dw
        if layer.update == "momentum":
            return jax.nn.relu(y), dx, w - 0.1 * m, m
        v = 0.99 * v + 0.01 * dw * dw
        return jax.nn.relu(y), dx, w - 0.1 * m / (jnp.sqrt(v) + 1e-8), m, v

    return run, [arranged(sizes, layer.cin), weights, arranged(outputs, layer.cout), weights, weights]


def main() -> None:
    """Writes `programs/ID.mlir.gz` and `index.jsonl`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--last", type=Path, help="measurements.jsonl whose rows are to be measured after all others")
    asked = parser.parse_args()
    found: dict[str, Layer] = {}
    for layer in layers():
        found[layer.id] = layer
        if len(found) >= asked.count:
            break
    if asked.last:
        known = {row["id"] for row in map(json.loads, asked.last.read_text().splitlines())}
        found = dict(sorted(found.items(), key=lambda item: item[0] in known))
    cases = [Case(name, *step(layer), dtype=layer.dtype) for name, layer in found.items()]
    write_folder(asked.folder, cases, library="layers", group="conv", mode="train")


if __name__ == "__main__":
    main()
