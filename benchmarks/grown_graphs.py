"""Graphs grown by the shipped model: how many of them are valid, and CPU seconds.

python benchmarks/grown_graphs.py --graphs 1000 --nodes 1000
"""

from __future__ import annotations

import argparse
import time

from meshcast.traces import shipped_model


def main() -> None:
    """Prints both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=1000)
    asked = parser.parse_args()
    model = shipped_model()
    names = sorted({each.model for each in model.settings})
    begun = time.process_time()
    graphs = (model.grow(names[seed % len(names)], asked.nodes + seed % 100, seed) for seed in range(asked.graphs))
    complaints = [graph.complaints() for graph in graphs]
    print(f"{complaints.count([])} of {asked.graphs} graphs are valid, {time.process_time() - begun:.1f} s of CPU")


if __name__ == "__main__":
    main()
