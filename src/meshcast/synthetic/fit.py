"""Learns the shipped model again from the shipped graphs, without those that are set apart.

python -m meshcast.synthetic.fit      # writes data/model.json.gz, seconds
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from meshcast.base import write_whole
from meshcast.synthetic.corpus import shipped_corpus
from meshcast.synthetic.model import FILE, learnt


def main() -> None:
    """Writes it."""
    graphs = [graph for graph in shipped_corpus() if not graph.held_out]
    text = json.dumps(learnt(graphs).to_json(), separators=(",", ":"))
    path = Path(__file__).parent / "data" / FILE
    write_whole(path, gzip.compress(text.encode(), 9, mtime=0))
    print(f"{len(graphs)} graphs, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
