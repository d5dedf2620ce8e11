"""The graphs that are learnt from and those that are set apart.

    python -m meshcast.traces.synthetic.corpus      # writes data/corpus.json.gz again, minutes

- models of the zoo by plans, lowered for a GPU;
- programs that were measured on a GPU (`data/measured`), lowered for it: families of their own (`measured-gpt`, ...);
- execution traces of real jobs, where they are at hand (`recorded_corpus`): `recorded-dlrm`, .... What is learnt of them is
  shipped, not the graphs.

Models are set apart whole: no plan and no size of theirs is learnt from in the same family.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

from meshcast.base import BugError, write_whole
from meshcast.jobs import ProgramJob, resolve_job
from meshcast.options import Options
from meshcast.traces import read_host_trace
from meshcast.traces.synthetic.graphs import OpGraph, packed, unpacked_graph
from meshcast.traces.synthetic.lowered_graphs import graph_of
from meshcast.traces.synthetic.recorded_graphs import recorded_graph
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
# Folders of measured programs, each with the device that they ran on; those of libraries are called LIBRARY_WHAT.
MEASURED = ("h200-zoo", "h200-models", "h200-later-models", "h200-later-libraries")
MEASURED_ON = "h200"
# Models of configuration files, which are no family of the zoo's.
CONFIGURED = {"camembert": "bert", "xlm-roberta": "bert"}
EVERY = 4  # of a family's measured models is set apart
# Execution traces of facebookresearch/param (et_replay/tests/inputs, unpacked): files of all ranks that are looked at, how many
# ranks there are, and whether it is set apart.
RECORDED = {
    "dlrm": ("dlrm_pytorch_et/dlrm_eg_*.json", 8, False), "linear": ("linear_et.json.gz", 1, False),
    "gpt2": ("hf_GPT2_et.json", 1, False), "resnet": ("resnet_1gpu_et.json", 1, False),
    "resnet-2gpu": ("1.1.0-chakra.0.0.4/resnet_2gpu_et.json.gz", 2, True),
}  # fmt: skip
RECORDED_MODEL = "param-{}"


def made_corpus() -> Iterator[OpGraph]:
    """Every graph that is shipped, captured or read and lowered."""
    yield from zoo_corpus()
    yield from measured_corpus(Path(__file__).parents[3] / "data" / "measured")


def measured_corpus(folder: Path) -> Iterator[OpGraph]:
    """The graphs of measured programs, in the folder that has those of every measurement."""
    paths = sorted(path for each in MEASURED for path in (folder / each / "programs").glob("*.mlir.gz"))
    models = {path: measured_model(path) for path in paths}
    families: dict[str, list[str]] = {}
    for model, family in sorted(set(models.values())):
        families.setdefault(family, []).append(model)
    apart = {(model, family) for family, row in families.items() for model in row[EVERY - 1 :: EVERY]}
    for path, (model, family) in models.items():
        job = resolve_job(path, Options(on=MEASURED_ON, lowering="modelled", levers=False))
        if not isinstance(job, ProgramJob):
            raise BugError(f"{path} is no program of one device")
        yield graph_of(
            job.lowered, name=f"{path.parents[1].name} {path.name.removesuffix('.mlir.gz')}", model=model, family=family,
            held_out=(model, family) in apart, peak=job.run.memory.peak,
        )  # fmt: skip


def measured_model(path: Path) -> tuple[str, str]:
    """The model and the family of a measured program: `gpt2-small-batch16-seq512`, `transformers_opt_train`."""
    name = path.name.removesuffix(".mlir.gz")
    library, _, rest = name.partition("_")
    if rest:
        return f"measured-{library}-{rest.rsplit('_', 2 if rest.endswith('f32') else 1)[0]}", f"measured-{library}"
    known = {model: family for family, each in reversed(FAMILIES.items()) for model in each.shapes}  # of two the first
    model = max((each for each in known if name.startswith(f"{each}-")), key=len, default="")
    family = known.get(model) or next(
        (family for text, family in CONFIGURED.items() if name.startswith(text)), "decoder"
    )
    return f"measured-{model or re.split('-(mode|batch)', name)[0]}", f"measured-{family}"


def recorded_corpus(folder: Path) -> Iterator[OpGraph]:
    """The graphs of execution traces in a folder as `facebookresearch/param` has them; those that are not there are left out."""
    for job, (pattern, ranks, held_out) in RECORDED.items():
        for number, path in enumerate(sorted(folder.glob(pattern))):
            yield recorded_graph(
                read_host_trace(path), name=f"{RECORDED_MODEL.format(job)} {number}", model=RECORDED_MODEL.format(job),
                family=f"recorded-{job.partition('-')[0]}", ranks=ranks, held_out=held_out,
            )  # fmt: skip


def zoo_corpus() -> Iterator[OpGraph]:
    """The graphs of the zoo's models by plans."""
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
    content = gzip.decompress((files("meshcast.traces.synthetic") / "data" / FILE).read_bytes())
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
