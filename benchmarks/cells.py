"""Clocks and energy of products on arrays of cells, ours beside ZigZag's: python benchmarks/cells.py [--write FILE.csv]

The convolutions of `fqconv-kws` and `fqconv-resnet20` as products of their windows, at several widths, on the catalogue's NPUs.
ZigZag is needed (meshcast doctor --install zigzag, or MESHCAST_ZIGZAG_PYTHON). The table that tests compare with
(`tests/estimate/cells/zigzag_answers.csv`) was written by this.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator

from meshcast.estimate.cells.energy import array_energy
from meshcast.estimate.cells.mapping import CellMapping, mapped_product
from meshcast.estimate.outside.zigzag_cells import ask_zigzag
from meshcast.estimate.products import ArrayProduct
from meshcast.hardware import CellArray, Device

DEVICES = ("aimc-28nm", "edge-tpu")
WIDTHS = ((8, 8), (4, 4), (2, 4))  # of weights, of activations
LAYERS = {
    "kws embedding": (98, 39, 100),
    "kws layer": (98, 135, 45),
    "resnet20 stage 1": (1024, 144, 16),
    "resnet20 stage 3": (64, 576, 64),
}
COLUMNS = ("device", "layer", "m", "k", "n", "weight_bits", "activation_bits", "ideal_clocks", "clocks", "array_joules")


def mappings() -> Iterator[tuple[str, str, CellMapping]]:
    """Every layer at every width on every device: (device, layer, mapping)."""
    for name in DEVICES:
        cells = Device.load(name).cells
        assert cells is not None
        for layer, (m, k, n) in LAYERS.items():
            for weight, activation in WIDTHS:
                yield name, layer, mapped_product(ArrayProduct(count=1, m=m, n=n, k=k), weight, activation, cells)


def _its_way(mapping: CellMapping, cells: CellArray) -> float:
    """Our clocks by ZigZag's convention: weights that the cells hold all at once arrive while they compute."""
    at_once = mapping.tiles <= (2 if cells.double_buffered else 1)
    return max(mapping.work_clocks, mapping.load_clocks) if at_once else mapping.clocks


def main() -> None:
    """Asks ZigZag, prints both and the distance, and writes its answers where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", help="a CSV file for ZigZag's answers")
    given = parser.parse_args()
    rows = []
    print(
        f"{'device':10} {'layer':18} w a {'clocks':>8} {'ZigZag':>8} {'apart':>7} {'its way':>7} "
        f"{'array pJ':>10} {'ZigZag':>10} {'apart':>7}"
    )
    for device, layer, mapping in mappings():
        cells = Device.load(device).cells
        assert cells is not None
        answer = ask_zigzag(mapping, cells)
        parts = array_energy(mapping, cells)
        kept = ("inputs", "cells", "bit lines", "converters", "adders") if cells.converter_bits else ("cells",)
        ours = sum(parts[part] for part in kept)
        product = mapping.product
        print(
            f"{device:10} {layer:18} {mapping.weight_bits} {mapping.activation_bits} {mapping.clocks:8.0f} {answer.total:8.0f} "
            f"{mapping.clocks / answer.total - 1:+7.1%} {_its_way(mapping, cells) / answer.total - 1:+7.1%} "
            f"{ours * 1e12:10.0f} {answer.array_joules * 1e12:10.0f} "
            f"{ours / answer.array_joules - 1:+7.1%}",
            flush=True,
        )
        rows.append(
            (device, layer, product.m, product.k, product.n, mapping.weight_bits, mapping.activation_bits,
             answer.ideal, answer.total, answer.array_joules)
        )  # fmt: skip
    if given.write:
        with open(given.write, "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
        print(f"wrote {given.write}", file=sys.stderr)


if __name__ == "__main__":
    main()
