"""A recorded step of torchrec's DLRM: its time, kernels by kind, and the model, tables and plan that its traces tell.

Traces are those of PyTorch's profiler, one a rank, with shapes. Ranks begin to be profiled some milliseconds apart, and all wait
for the last in the first exchange: the step is the last one's, and a collective's kernel counts as the rank sees it that comes to
it last. Layers follow from the shapes of `linear`, tables from each rank's fused look-up, whose elements and indices tables of
the list add up to in one way alone; those that no rank has so are on all of them.
"""

from __future__ import annotations

import gzip
import itertools
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshcast.base import InputError, json_value, unreadable
from meshcast.jobs.embedding_tables.table import EmbeddingTable
from meshcast.zoo import DenseLayers

Event = dict[str, Any]
MOST_CHOICES = 10**6  # of tables, that a rank's look-up is held against
_LOOK_UP = re.compile(r"fbgemm::split_embedding_codegen_lookup_(?!dense)\w+_function")
_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_FIX = "give the folder of a torchrec DLRM's profile: a .json or .json.gz a rank, recorded with shapes"
_TELLERS = {
    "all-reduce": ("AllReduce", "all-reduce"), "all-to-all": ("SendRecv", "all-to-all"),
    "copies": ("emcpy", "emset", "copies"),
    "tables": ("embedding", "linearize", "cub::", "bounds_check", "permute_2D", "asynchronous", "tables", "radix_sort"),
    "products": ("gemm", "gemv", "mm", "splitKreduce", "dot_kernel", "reduce_1Block"),  # of cuBLAS
    "sums": ("reduce_kernel", "sum", "mean"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RecordedTrainer:
    """A step of all ranks.

    Attributes:
        step_s: Of the rank that began last.
        kinds_s: Seconds of its kernels by kind.
        events: Of its host, each of which the profiler took time for.
        batch: Samples of a rank.
        layers: The dense part.
        lists: Whether its optimizer takes parameters in lists.
        held: Names of the tables that each rank has to itself.
    """

    step_s: float
    kinds_s: dict[str, float]
    events: int
    batch: int
    layers: DenseLayers
    lists: bool
    held: tuple[tuple[str, ...], ...]

    def plan(self, tables: Sequence[EmbeddingTable]) -> list[dict[str, Any]]:
        """Where every table is, as a plan's file has it."""
        rank_of = {name: rank for rank, names in enumerate(self.held) for name in names}
        everywhere = list(range(len(self.held)))
        return [
            {"table": each.name, "sharding": "table_wise", "ranks": [rank_of[each.name]]}
            if each.name in rank_of
            else {"table": each.name, "sharding": "data_parallel", "ranks": everywhere}
            for each in tables
        ]


def kind_of(name: str) -> str:
    """What a kernel is, by its own name or that of a predicted launch."""
    return next((each for each, words in _TELLERS.items() if any(word in name for word in words)), "elementwise")


def read_trainer(folder: Path, tables: Sequence[EmbeddingTable]) -> RecordedTrainer:
    """The step that a folder of traces has, of a model with tables of that list.

    Raises:
        InputError: The traces are of something else.
    """
    ranks = [_events(path) for path in _files(folder)]
    begun = [_found(traced, "ProfilerStep", folder) for traced in ranks]
    last = max(range(len(ranks)), key=lambda rank: begun[rank]["ts"])
    batch, layers = _layers(ranks[last], len(tables), folder)
    host = [event for event in ranks[last] if event.get("cat") in ("cpu_op", "cuda_runtime")]
    return RecordedTrainer(
        step_s=1e-6 * begun[last]["dur"],
        kinds_s=_kinds(ranks, last, folder),
        events=len(host),
        batch=batch,
        layers=layers,
        lists=any(str(event["name"]).startswith("aten::_foreach") for event in host),
        held=tuple(_tables(traced, tables, batch * len(ranks), layers.dim, folder) for traced in ranks),
    )


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise InputError("is no folder of traces, one a rank", where=str(folder), fix=_FIX)
    found = [path for path in folder.iterdir() if path.name.endswith((".json", ".json.gz"))]
    if not found:
        raise InputError("has no traces", where=str(folder), fix=_FIX)
    # worker10 comes after worker9: by the first number of a name.
    return sorted(found, key=lambda path: ([int(n) for n in re.findall(r"\d+", path.name)[:1]], path.name))


def _events(path: Path) -> list[Event]:
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode()
    except EOFError as error:
        raise InputError(f"is cut off: {error}", where=str(path), fix=_FIX) from error
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(str(path), error, fix=_FIX) from error
    traced = json_value(text, where=str(path))
    events = traced.get("traceEvents") if isinstance(traced, dict) else traced
    if not isinstance(events, list) or not all(isinstance(each, dict) and "name" in each for each in events):
        raise InputError("has no list of events", where=str(path), fix=_FIX)
    return events


def _found(traced: Sequence[Event], start: str, folder: Path) -> Event:
    for event in traced:
        if str(event["name"]).startswith(start) and "dur" in event:
            return event
    raise InputError(
        f"a rank's trace has no {start}", where=str(folder), fix="profile with torch.profiler and its step()"
    )


def _kinds(ranks: Sequence[Sequence[Event]], last: int, folder: Path) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for event in ranks[last]:
        if event.get("cat") in _WORK and "nccl" not in event["name"]:
            found[kind_of(event["name"])] += 1e-6 * event["dur"]
    joint = [
        sorted((e for e in t if "nccl" in e["name"] and e.get("cat") == "kernel"), key=lambda e: e["ts"]) for t in ranks
    ]
    if len({len(each) for each in joint}) != 1:
        counts = ", ".join(str(len(each)) for each in joint)
        raise InputError(
            f"ranks have {counts} collectives", where=str(folder), fix="give every rank's trace of one step"
        )
    for each in zip(*joint, strict=True):
        found[kind_of(each[0]["name"])] += 1e-6 * min(event["dur"] for event in each)
    return dict(found)


def _layers(traced: Sequence[Event], features: int, folder: Path) -> tuple[int, DenseLayers]:
    """(samples, layers): two stacks of linear layers, the second of which reads the first one's result and dot products."""
    calls = sorted(
        (e for e in traced if e.get("cat") == "cpu_op" and e["name"] == "aten::linear"), key=lambda e: e["ts"]
    )
    shapes = [call.get("args", {}).get("Input Dims") for call in calls]
    if len(shapes) < 2 or not all(shapes):
        raise InputError(f"{len(shapes)} linear layers with shapes", where=str(folder), fix=_FIX)
    widths = [(weight[1], weight[0]) for _, weight, *_ in shapes]
    second = next((n for n in range(1, len(widths)) if widths[n][0] != widths[n - 1][1]), len(widths))
    bottom, top = tuple(m for _, m in widths[:second]), tuple(m for _, m in widths[second:])
    layers = DenseLayers(features=features, dim=bottom[-1], dense=widths[0][0], bottom=bottom, top=top)
    reads = widths[second][0] if top else 0
    if reads != layers.read:
        raise InputError(
            f"the layers above the interaction read {reads:,} columns, and DLRM's over {features} tables of {layers.dim} columns "
            f"are {layers.read:,}", where=str(folder), fix="give the tables of the model that was traced",
        )  # fmt: skip
    return int(shapes[0][0][0]), layers


def _tables(
    traced: Sequence[Event], tables: Sequence[EmbeddingTable], batch: int, dim: int, folder: Path
) -> tuple[str, ...]:
    calls = [e for e in traced if e.get("cat") == "cpu_op" and _LOOK_UP.fullmatch(str(e["name"]))]
    if len(calls) != 1:
        raise InputError(f"a rank has {len(calls)} fused look-ups, and one is understood", where=str(folder), fix=_FIX)
    shapes = calls[0]["args"]["Input Dims"]
    elements, count, indices = shapes[1][0], shapes[4][0], shapes[11][0]
    choices = itertools.islice(itertools.combinations(tables, count), MOST_CHOICES)
    fits = [
        each
        for each in choices
        if sum(table.rows * dim for table in each) == elements
        and round(sum(table.pooling for table in each) * batch) == indices
    ]
    if len(fits) != 1:
        raise InputError(
            f"{len(fits)} choices of {count} tables have a rank's {elements:,} elements and {indices:,} indices",
            where=str(folder), fix="give the tables of the model that was traced",
        )  # fmt: skip
    return tuple(table.name for table in fits[0])
