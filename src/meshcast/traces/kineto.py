"""Chrome's JSON as PyTorch's profiler (Kineto) writes it, a file a rank, with the fields that Holistic Trace Analysis reads.

HTA tells communication from computing by names alone: what NCCL runs begins with `nccl`, copies with `Memcpy`; anything else is
computing, unless it has words in it that HTA knows otherwise, which are taken apart here. Streams are numbers; a launch on the
host goes before each kernel, with its `correlation`. Times are microseconds with three digits. What the host does has no times
of its own in the model. Launches are drawn one after the other from the start of the step, equally long, none behind its
kernel's start: so that whoever looks for what a device waits for does not find the host, which it does not wait for there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from meshcast.base import UsageError
from meshcast.hardware import FROM_HOST, TO_HOST
from meshcast.traces.levels import use_levels
from meshcast.traces.slices import (
    COMPUTE_TRACK,
    COPY_TRACK,
    MARKS,
    JobTimeline,
    Level,
    MovedBytes,
    RankTimeline,
    Slice,
    laned,
)
from meshcast.workload import DTYPE_BITS

MICROSECONDS = 1e6
# The longest launch, enough to be seen in a viewer; kernels are drawn that much later than the host's clock begins.
LAUNCH_US = 2.0
INNER_SHARE = 0.8  # of an operator on the host: its call of the driver, which viewers and HTA want inside of it
STEP = "ProfilerStep#1"  # as PyTorch's profiler marks steps
HOST_THREAD = 1
SUFFIXES = (".json", ".json.gz")
COMPUTE_STREAM, COPY_STREAM, FIRST_CHANNEL = 7, 8, 20  # HTA keeps 0 and -1 for the host
# How NCCL's kernels, and torch.distributed's calls, name what we call by StableHLO's names.
NCCL = {
    "all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter", "all_to_all": "AlltoAll",
    "collective_permute": "SendRecv", "collective_broadcast": "Broadcast", "collective_reduce": "Reduce",
    "send": "SendRecv", "receive": "SendRecv",
}  # fmt: skip
TORCH = {
    "all_reduce": "allreduce", "all_gather": "_allgather_base", "reduce_scatter": "_reduce_scatter_base",
    "all_to_all": "all_to_all", "collective_permute": "send", "collective_broadcast": "broadcast",
    "collective_reduce": "reduce", "send": "send", "receive": "recv",
}  # fmt: skip
DTYPES = {
    "f64": "Double", "f32": "Float", "f16": "Half", "bf16": "BFloat16", "i64": "Long", "i32": "Int", "i16": "Short",
    "i8": "Char", "ui8": "Byte", "i1": "Bool", "f8E4M3FN": "Float8_e4m3fn", "f8E5M2": "Float8_e5m2",
}  # fmt: skip
# How CUPTI calls copies, by what our slices say they are.
DEVICE_COPY = "Memcpy DtoD (Device -> Device)"
COPIES = {FROM_HOST: "Memcpy HtoD (Pinned -> Device)", TO_HOST: "Memcpy DtoH (Device -> Pinned)"}
# Words that make HTA take a kernel for something else than computing.
MISTAKEN = re.compile(
    r"^(nccl|hip|hccl|packet|job_exe|pe_exe|runFunction|cpum_exe|collective_sub)|Memcpy|Memset|dma|Sync|ncclKernel"
)


def check_name(path: Path) -> None:
    """Refuses names that readers of such traces do not take.

    Raises:
        UsageError: It ends otherwise.
    """
    if not path.name.endswith(SUFFIXES):
        raise UsageError(
            f"{path.name} is no name that its readers take", where="-o", fix="let it end in .json or .json.gz"
        )


def rank_path(path: Path, rank: int, files: int) -> Path:
    """The file of a rank: as named if it is the only one, else with the rank before the ending."""
    if files == 1:
        return path
    suffix = next(each for each in reversed(SUFFIXES) if path.name.endswith(each))
    return path.with_name(f"{path.name.removesuffix(suffix)}.{rank}{suffix}")


def other_ranks(path: Path) -> list[Path]:
    """Files that are named as ranks of this place: of this export, or of an earlier one."""
    suffix = next(each for each in reversed(SUFFIXES) if path.name.endswith(each))
    named = re.compile(re.escape(path.name.removesuffix(suffix)) + r"\.[0-9]+" + re.escape(suffix))
    return [each for each in path.parent.iterdir() if named.fullmatch(each.name)]


def write_kineto(job: JobTimeline, rank: int, name: str, kind: RankTimeline, out: IO[bytes]) -> int:
    """Writes a rank; how many of its slices are drawn."""
    events = _Events(job=job, rank=rank)
    header = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": rank, "name": job.facts.get("device", "")}],
        "displayTimeUnit": "ms",
        "traceName": job.name,
        "prediction": dict(job.facts)
        | {"step_s": job.step_s, "ranks_alike": int(kind.ranks.size), "folded": job.folded},
    }
    # HTA finds ranks by looking through lines for `"rank": N`.
    distributed = json.dumps({"backend": "nccl", "rank": rank, "world_size": job.ranks})
    out.write(b"{\n" + f'"distributedInfo": {distributed},\n'.encode())
    for key, value in header.items():
        out.write(f"{json.dumps(key)}: {json.dumps(value)},\n".encode())
    out.write(b'"traceEvents": [\n')
    separator = b""
    for event in events.all(name, kind):
        out.write(separator + json.dumps(event, separators=(",", ":")).encode())
        separator = b",\n"
    out.write(b"\n]}\n")
    return events.drawn


@dataclass(slots=True, kw_only=True)
class _Events:
    job: JobTimeline
    rank: int
    drawn: int = 0
    _streams: dict[str, int] = field(default_factory=dict)
    _groups: dict[tuple[int, ...], str] = field(default_factory=dict)
    _said: dict[int, tuple[Any, dict[str, Any]]] = field(default_factory=dict)  # by the identity of what is exchanged

    def all(self, name: str, kind: RankTimeline) -> Iterator[dict[str, Any]]:
        """Every event of a rank."""
        slices = laned(each for each in kind.slices(self.rank) if each.what.category not in MARKS)
        host = self.rank + _HOST_PROCESSES
        yield _named("process_name", self.rank, 0, name=name)
        yield _named("process_labels", self.rank, 0, labels=str(self.job.facts.get("device", "")))
        yield _named("process_name", host, 0, name=f"{name}: its host")
        yield _named("thread_name", host, HOST_THREAD, name="launches")
        pace = launch_pace(slices)
        last = max([pace * len(slices), *(each.end * MICROSECONDS + LAUNCH_US for each in slices)])
        yield {
            "ph": "X", "cat": "user_annotation", "name": STEP, "pid": host, "tid": HOST_THREAD, "ts": 0.0,
            "dur": _digits(last), "args": {},
        }  # fmt: skip
        for number, each in enumerate(slices, start=1):
            yield from self._launch(number, each, pace)
            yield self._kernel(number, each)
            self.drawn += 1
        for track, stream in self._streams.items():
            yield _named("thread_name", self.rank, stream, name=f"stream {stream}: {track}")
        for level in (*kind.memory(), *use_levels(slices, kind, self.job.step_s)):
            yield from self._counter(level)

    def _launch(self, number: int, each: Slice, pace: float) -> Iterator[dict[str, Any]]:
        """The operator on the host, and the launch inside of it."""
        start, end = (_digits(pace * turn) for turn in (number - 1, number))
        inner = _digits(end - INNER_SHARE * (end - start))
        said: dict[str, Any] = {"External id": number}
        if "source" in each.what.facts:
            said["source"] = each.what.facts["source"]
        place = {"ph": "X", "pid": self.rank + _HOST_PROCESSES, "tid": HOST_THREAD}
        name = _name(each.what.name)
        yield place | {"cat": "cpu_op", "name": name, "ts": start, "dur": _digits(end - start), "args": said}
        launch = "cudaMemcpyAsync" if each.what.category == "copy" else "cudaLaunchKernel"
        args = {"External id": number, "correlation": number}
        yield place | {"cat": "cuda_runtime", "name": launch, "ts": inner, "dur": _digits(end - inner), "args": args}

    def _kernel(self, number: int, each: Slice) -> dict[str, Any]:
        stream = self._stream(each.track)
        args: dict[str, Any] = {"device": self.rank, "stream": stream, "correlation": number, "External id": number}
        args |= {key: value for key, value in each.what.facts.items() if key not in ("kind", "dtype")}
        if each.turns > 1:
            args["launches"] = each.turns
        name, category = _name(each.what.name), "kernel"
        exchange = each.what.exchange
        if exchange is not None:
            name = f"ncclDevKernel_{NCCL.get(exchange.kind, exchange.kind)}"
            args |= self._exchanged(exchange) | {"op": each.what.name}
        elif each.what.category == "copy":
            name, category = COPIES.get(str(each.what.facts.get("kind")), DEVICE_COPY), "gpu_memcpy"
            args["op"] = each.what.name
            if "bytes" in args and each.end > each.start:
                args["memory bandwidth (GB/s)"] = each.turns * args["bytes"] / (each.end - each.start) / 1e9
        else:
            args |= {key: each.what.facts[key] for key in ("kind", "dtype") if key in each.what.facts}
        # Ends are rounded as starts are, so that what follows without a gap still does.
        start, end = (_digits(moment * MICROSECONDS + LAUNCH_US) for moment in (each.start, each.end))
        return {
            "ph": "X", "cat": category, "name": name, "pid": self.rank, "tid": stream, "ts": start,
            "dur": _digits(end - start), "args": args,
        }  # fmt: skip

    def _exchanged(self, exchange: MovedBytes) -> dict[str, Any]:
        if id(exchange) not in self._said:
            members = exchange.members(self.rank)
            bits = DTYPE_BITS.get(exchange.dtype, 8)  # what is only known as bytes is counted in bytes
            group = self._groups.setdefault(members, str(len(self._groups)))
            said = {
                "Collective name": TORCH.get(exchange.kind, exchange.kind),
                "In msg nelems": exchange.input_bytes * 8 // bits,
                "Out msg nelems": exchange.output_bytes * 8 // bits,
                "Group size": len(members),
                "dtype": DTYPES.get(exchange.dtype, exchange.dtype or "Byte"),
                "Process Group Name": group,
                "Process Group Description": exchange.kind,
                "Process Group Ranks": json.dumps(members),
            }
            if exchange.group is None:
                peer = self.rank + exchange.peer
                said |= {"Src Rank": peer} if exchange.kind == "receive" else {"Dst Rank": peer}
            self._said[id(exchange)] = exchange, said
        return self._said[id(exchange)][1]

    def _stream(self, track: str) -> int:
        if track not in self._streams:
            fixed = {COMPUTE_TRACK: COMPUTE_STREAM, COPY_TRACK: COPY_STREAM}
            used = set(fixed.values()) | set(self._streams.values())
            self._streams[track] = fixed.get(track) or max(FIRST_CHANNEL, max(used) + 1)
        return self._streams[track]

    def _counter(self, level: Level) -> Iterator[dict[str, Any]]:
        for at, value in level.steps:
            yield {
                "ph": "C", "name": level.name, "pid": self.rank, "tid": 0, "ts": _digits(at * MICROSECONDS + LAUNCH_US),
                "args": {level.unit: value},
            }  # fmt: skip


_HOST_PROCESSES = 1_000_000  # the host of a rank has this more as its number


def launch_pace(slices: Sequence[Slice]) -> float:
    """Microseconds of a launch, so that all of them one after the other come before what they launch: `min (start + 2) / k`."""
    starts = (each.start * MICROSECONDS + LAUNCH_US for each in slices)
    return min((start / number for number, start in enumerate(starts, start=1)), default=LAUNCH_US)


def _named(label: str, process: int, thread: int, **args: str) -> dict[str, Any]:
    return {"name": label, "ph": "M", "pid": process, "tid": thread, "ts": 0, "args": args}


def _name(name: str) -> str:
    """A name that HTA takes for computing."""
    return MISTAKEN.sub(lambda found: found[0][0] + "_" + found[0][1:], name)


def _digits(microseconds: float) -> float:
    return round(microseconds, 3)
