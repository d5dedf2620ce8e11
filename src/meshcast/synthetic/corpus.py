"""The graphs that are learnt from and those that are set apart: models of the zoo by plans, lowered for a GPU.

    python -m meshcast.synthetic.corpus      # writes data/corpus.json.gz again, a few minutes

Models are set apart whole: no plan of theirs is learnt from.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

from meshcast.base import BugError, write_whole
from meshcast.jobs import ProgramJob, resolve_job
from meshcast.options import Options
from meshcast.synthetic.graphs import OpGraph, packed, unpacked_graph
from meshcast.synthetic.lowered_graphs import graph_of
from meshcast.zoo import FAMILIES

FILE = "corpus.json.gz"
ON = "dgx-h100"
# Models with a batch, and plans of eight to sixteen devices; those behind are set apart.
LEARNT = {
    "llama3-8b": 16, "llama3-70b": 16, "llama3.2-1b": 32, "qwen3-8b": 16, "gemma2-2b": 16, "mixtral-8x7b": 16,
    "gpt2-small": 64, "gpt3-1.3b": 32, "bert-base": 64, "t5-base": 32, "mamba-370m": 16, "vit-b16": 128, "resnet50": 256,
    "dit-b4": 64,
}  # fmt: skip
SET_APART = {
    "mistral-7b": 16,
    "qwen2.5-3b": 16,
    "gpt2-medium": 64,
    "gpt3-2.7b": 32,
    "bert-large": 32,
    "vit-l16": 64,
    "resnet101": 128,
}
PLANS = ("dp=8", "fsdp=8", "tp=4,dp=2")
ONE_PLAN = {"resnet": ("dp=8",), "mamba": ("fsdp=8",), "dit": ("dp=8",)}


def made_corpus() -> Iterator[OpGraph]:
    """Every graph, captured and lowered."""
    family_of = {model: family for family, each in FAMILIES.items() for model in each.shapes}
    for models, held_out in ((LEARNT, False), (SET_APART, True)):
        for model, batch in models.items():
            for plan in ONE_PLAN.get(family_of[model], PLANS):
                options = Options(on=ON, plan=plan, settings={"batch": str(batch)}, lowering="modelled", levers=False)
                job = resolve_job(model, options)
                if not isinstance(job, ProgramJob):
                    raise BugError(f"{model} with {plan} is no program of one device")
                yield graph_of(
                    job.lowered, name=f"{model} {plan}", model=model, family=family_of[model], held_out=held_out,
                    peak=job.run.memory.peak,
                )  # fmt: skip


@cache
def shipped_corpus() -> tuple[OpGraph, ...]:
    """The graphs that are shipped."""
    content = gzip.decompress((files("meshcast.synthetic") / "data" / FILE).read_bytes())
    return tuple(map(unpacked_graph, json.loads(content)))


def main() -> None:
    """Writes them again."""
    graphs = []
    for graph in made_corpus():
        graphs.append(graph)
        print(f"{graph.name}: {len(graph.nodes)} nodes in {len(graph.layers())} layers", flush=True)
    text = json.dumps([packed(graph) for graph in graphs], separators=(",", ":"))
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "data" / FILE
    write_whole(path, gzip.compress(text.encode(), 9, mtime=0))
    print(f"{len(graphs)} graphs, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
