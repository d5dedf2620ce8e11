"""`link_traces`: files of PyTorch's traces become the Chakra traces of a job, as protobuf or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshcast.base import InputError, UsageError, piece, tell, whole_files
from meshcast.chakra import (
    RECORDED_ON,
    Attribute,
    Node,
    NodeValues,
    groups_path,
    json_lines,
    rank_path,
    trace_messages,
)
from meshcast.traces.recorded.drafts import Draft
from meshcast.traces.recorded.events import read_device_trace
from meshcast.traces.recorded.linking import link_rank
from meshcast.traces.recorded.operators import HANDED_ON, Operator, read_host_trace
from meshcast.traces.recorded.together import LinkedJob, linked_job
from meshcast.traces.recorded.work import work_of

NAME = "job"  # what the files of a linked job begin with
SUMMARY = "linked.json"
FORMS = ("protobuf", "json")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedFiles:
    """What was written.

    Attributes:
        files: All of them, traces first.
        summary: What was found, as `linked.json` has it.
    """

    files: tuple[Path, ...]
    summary: dict[str, Any]


def link_traces(
    hosts: Sequence[Path], devices: Sequence[Path], out: Path, *, step: int | None = None, form: str = "protobuf"
) -> LinkedFiles:
    """Links the traces of a job's ranks and writes them.

    Args:
        hosts: Execution traces, a file a rank or a folder of them; none at all where profiles are to do.
        devices: Kineto's profiles, likewise, in the same order.
        out: A folder.
        step: One of the profiler's steps alone.
        form: `protobuf` or `json`.

    Raises:
        UsageError: There are not as many of one as of the other.
        InputError: A file cannot be read, or files do not belong together.
    """
    if form not in FORMS:
        raise UsageError(f"no form {form!r}", where="--form", fix="one of " + ", ".join(FORMS))
    host_files, device_files = _listed(hosts), _listed(devices)
    if not device_files:
        raise UsageError("no profile is given", where="--device", fix="give Kineto's trace of every rank")
    if host_files and len(host_files) != len(device_files):
        raise UsageError(
            f"{len(host_files)} execution traces and {len(device_files)} profiles", where="--host",
            fix="give one of each for every rank, in the same order",
        )  # fmt: skip
    ranks, count = [], len(device_files)
    for number, path in enumerate(device_files):  # half of the work: writing them is the other
        with piece(f"reading rank {number + 1} of {count}", done=number, total=2 * count):
            host = read_host_trace(host_files[number]) if host_files else None
            ranks.append(link_rank(read_device_trace(path), host, step))
    tell("putting ranks together", done=count, total=2 * count)
    job = linked_job(ranks)
    return _write(job, out, form, [*host_files, *device_files])


def _listed(paths: Sequence[Path]) -> list[Path]:
    """Files, those of a folder by the numbers in their names."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [each for pattern in ("*.json", "*.json.gz") for each in path.glob(pattern)]
            if not inside:
                raise InputError("has no *.json or *.json.gz", where=str(path), fix="give the folder of the traces")
            found += sorted(inside, key=lambda each: ([int(n) for n in _NUMBER.findall(each.name)], each.name))
        else:
            found.append(path)
    return found


def _write(job: LinkedJob, out: Path, form: str, sources: Sequence[Path]) -> LinkedFiles:
    prefix = out / NAME
    summary = _summary(job, sources)
    files = []
    with whole_files(prefix) as staged:
        for number, rank in enumerate(job.ranks):
            count = len(job.ranks)
            tell(f"writing rank {number + 1} of {count}", done=count + number, total=2 * count)
            metadata: dict[str, Attribute] = {"source": "linked", RECORDED_ON: rank.device_name}
            parts: Iterator[bytes]
            nodes = (_node(each, job, number) for each in rank.drafts)
            path = rank_path(prefix, number)
            if form == "json":
                path = path.with_suffix(".json")
                parts = (line.encode() for line in json_lines(nodes, metadata=metadata))
            else:
                parts = trace_messages(nodes, metadata=metadata)
            with staged.path(path).open("wb") as file:
                file.writelines(parts)
            files.append(path)
        if job.groups:
            staged.path(groups_path(prefix)).write_text(json.dumps({k: list(v) for k, v in job.groups.items()}) + "\n")
            files.append(groups_path(prefix))
        path = prefix.with_name(f"{NAME}.{SUMMARY}")
        staged.path(path).write_text(json.dumps(summary, indent=1) + "\n")
        files.append(path)
        for old in (each for each in out.glob(f"{NAME}.*") if each not in files):
            staged.without(old)  # of a job that was linked here before: ranks that this one does not have
    return LinkedFiles(files=tuple(files), summary=summary)


def _summary(job: LinkedJob, sources: Sequence[Path]) -> dict[str, Any]:
    return {
        "measured_span_s": job.span * 1e-9,
        "ranks": [
            {
                "rank": number, "nodes": len(rank.drafts), "span_s": (rank.end - rank.start) * 1e-9,
                "operators": rank.operators[0], "linked_operators": rank.operators[1], "device_work": rank.work[0],
                "linked_device_work": rank.work[1], "clock_ahead_s": skew * 1e-9, "recorded_on": rank.device_name,
                "collectives": len(rank.drafts.collectives()),
            }
            for number, (rank, skew) in enumerate(zip(job.ranks, job.skews, strict=True))
        ],
        "groups": {name: list(ranks) for name, ranks in job.groups.items()},
        "notes": job.notes, "sources": [path.name for path in sources],
    }  # fmt: skip


def _node(draft: Draft, job: LinkedJob, rank: int) -> Node:
    """A draft as a node, with the names of attributes that Chakra's own converter uses."""
    said: dict[str, Attribute] = {"is_cpu_op": draft.host, "tid" if draft.host else "stream": draft.lane}
    said["duration_ns"] = draft.duration
    operator = draft.operator
    if operator is not None:
        said |= {key: _plain(operator.said[key]) for key in HANDED_ON if key in operator.said and key != "tid"}
        said["et_id"] = operator.number
    if draft.external >= 0:
        said["external_id"] = draft.external
    if draft.waits or draft.pause:
        said["op_type"] = "wait" if draft.waits else "pause"
    if draft.communication is not None:
        said |= _communication(draft, job, rank)
    elif not draft.host and not draft.waits:
        said |= _work(draft)
    return Node(
        number=draft.number, name=draft.name, kind=draft.kind,
        control_deps=(draft.parent,) if draft.parent else (), data_deps=draft.deps,
        start_us=max(0, draft.start // 1000),
        duration_us=round(draft.duration / 1000), attributes=said,
        inputs=_values(operator, read=True) if draft.host else None,
        outputs=_values(operator, read=False) if draft.host else None,
    )  # fmt: skip


def _plain(value: object) -> Attribute:
    return value if isinstance(value, (bool, int, float, str)) else str(value)


def _values(operator: Operator | None, *, read: bool) -> NodeValues | None:
    if operator is None:
        return None
    parts = (
        (operator.values, operator.shapes, operator.types)
        if read
        else (operator.out_values, operator.out_shapes, operator.out_types)
    )
    values, shapes, types = (json.dumps(part) for part in parts)
    return NodeValues(values=values, shapes=shapes, types=types)


def _communication(draft: Draft, job: LinkedJob, rank: int) -> dict[str, Attribute]:
    said = draft.communication
    assert said is not None
    found: dict[str, Attribute] = {"comm_size": said.size}
    if group := job.group_of(rank, said):
        found["pg_name"] = group
    if said.code is not None:
        return {"comm_type": int(said.code), **found}
    return {**found, "comm_dst" if said.sends else "comm_src": max(0, said.peer), "comm_tag": 0}


def _work(draft: Draft) -> dict[str, Attribute]:
    """Operations and bytes of a kernel, of those of the operator that launched it; of copies, what they move."""
    if draft.moved:
        return {"tensor_size": draft.moved}
    if draft.operator is None:
        return {}
    flops, matrix, moved, dtype = work_of(draft.operator)
    if not moved:
        return {}
    found: dict[str, Attribute] = {"num_ops": max(1, flops), "matrix_ops": matrix, "tensor_size": moved}
    return {**found, "dtype": dtype} if dtype else found
