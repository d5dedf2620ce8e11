"""Learns the shipped model again from the shipped graphs, without those that are set apart, and from recordings.

    python -m meshcast.traces.synthetic.fit INPUTS      # writes data/model.json.gz, seconds

INPUTS is et_replay/tests/inputs of facebookresearch/param, its archives unpacked; without it nothing is learnt of recordings.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

from meshcast.base import write_whole
from meshcast.traces.synthetic.corpus import recorded_corpus, shipped_corpus
from meshcast.traces.synthetic.model import FILE, learnt


def main() -> None:
    """Writes it."""
    recorded = recorded_corpus(Path(sys.argv[1])) if len(sys.argv) > 1 else ()
    graphs = [graph for graph in (*shipped_corpus(), *recorded) if not graph.held_out]
    text = json.dumps(learnt(graphs).to_json(), separators=(",", ":"))
    path = Path(__file__).parent / "data" / FILE
    write_whole(path, gzip.compress(text.encode(), 9, mtime=0))
    print(f"{len(graphs)} graphs, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
