"""Our links beside those of Chakra's own linker, kernel by kernel, on a recording of `facebookresearch/param`.

    python benchmarks/linked_like_chakra.py INPUTS --chakra CHAKRA --param PARAM --python PYTHON

CHAKRA and PARAM are checkouts of mlcommons/chakra and facebookresearch/param, PYTHON an interpreter with Holistic Trace Analysis
(`make .venv/.hta-ready`: .venv/hta/bin/python). Chakra's linker knows operators by `Record function id`, which the recording's
profiler did not write yet, and takes the second generation of the schema alone: both are written into copies, the numbers by our
matching (whose every operator has the name of its event).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from meshcast.recorded.events import read_device_trace
from meshcast.recorded.linking import link_rank
from meshcast.recorded.matching import matched
from meshcast.recorded.operators import read_host_trace

RUN = """
import sys, types, logging
logging.disable(logging.CRITICAL)
sys.path[:0] = [{param!r}, {parent!r}]
for name in ("chakra", "chakra.src"):
    package = types.ModuleType(name); package.__path__ = [{chakra!r} if name == "chakra" else {chakra!r} + "/src"]
    sys.modules[name] = package
from chakra.src.trace_link.trace_linker import TraceLinker
TraceLinker().link({rank}, {host!r}, {device!r}, {out!r})
"""


def main() -> None:
    """Prints what agrees."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("inputs", type=Path)
    for name in ("chakra", "param", "python"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--rank", type=int, default=0)
    asked = parser.parse_args()
    host_file = asked.inputs / "dlrm_pytorch_et" / f"dlrm_eg_{asked.rank}.json"
    device_file = next((asked.inputs / "dlrm_kineto").glob(f"worker{asked.rank}_*.json"))
    host, device = read_host_trace(host_file), read_device_trace(device_file)
    records = {device.host.external[place]: each.record for place, each in matched(host, device.host).items()}
    with tempfile.TemporaryDirectory() as folder:
        names = {each: str(Path(folder) / f"{each}.json") for each in ("host", "device", "out")}
        Path(names["host"]).write_text(json.dumps(_second_generation(json.loads(host_file.read_text()))))
        profile = json.loads(device_file.read_text())
        for event in profile["traceEvents"]:
            if event.get("cat") in ("cpu_op", "user_annotation") and (
                record := records.get(event["args"].get("External id"))
            ):
                event["args"]["Record function id"] = record
        Path(names["device"]).write_text(json.dumps(profile))
        code = RUN.format(
            param=str(asked.param.resolve() / "et_replay"), chakra=str(asked.chakra.resolve()),
            parent=str(asked.param.resolve()), rank=asked.rank, **names,
        )  # fmt: skip
        subprocess.run([asked.python, "-c", code], check=True, capture_output=True)
        theirs = json.loads(Path(names["out"]).read_text())["nodes"]
    _compare(theirs, link_rank(device, host).drafts)


def _second_generation(trace: dict[str, Any]) -> dict[str, Any]:
    """The same trace in the schema's second generation."""
    nodes = []
    for node in trace["nodes"]:
        keys = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema")
        made = {"id": node["id"], "name": node["name"].replace("execution_graph", "execution_trace")}
        made["ctrl_deps"] = node["parent"]
        for whole, part in (("inputs", "input"), ("outputs", "output")):
            made[whole] = {"values": node[whole], "shapes": node[f"{part}_shapes"], "types": node[f"{part}_types"]}
        made["attrs"] = [{"name": key, "type": "uint64", "value": node[key]} for key in keys]
        nodes.append(made)
    return {**trace, "schema": "1.0.2-chakra.0.0.4", "nodes": nodes}


def _compare(theirs: list[dict[str, Any]], ours: list[Any]) -> None:
    record_of = {node["id"]: _record(node) for node in theirs if "cat" not in node}
    kernels = {(node["name"], node["ts"]): node for node in theirs if "cat" in node}
    counts: Counter[str] = Counter()
    for draft in ours:
        if draft.host or draft.waits:
            continue
        counts["pieces of device work of ours"] += 1
        node = kernels.get((draft.name, draft.start // 1000))
        if node is None:
            counts[f"only ours: {draft.name.split('(')[0][:40]}"] += 1
            continue
        counts["in both"] += 1
        counts["same duration"] += node["inclusive_dur"] * 1000 == draft.duration
        counts["same stream"] += node["stream"] == draft.lane
        same = draft.operator is not None and record_of[node["ctrl_deps"]] == draft.operator.record
        counts["same operator"] += same
        if not same:
            mine = draft.operator.name if draft.operator is not None else "none"
            other = next(each["name"] for each in theirs if each["id"] == node["ctrl_deps"])
            counts[f"ours {mine}, theirs {other}"] += 1
    counts["pieces of device work of theirs"] = len(kernels)
    timed = {_record(node): node for node in theirs if "cat" not in node and "inclusive_dur" in node}
    for draft in ours:
        if draft.host and draft.operator is not None:
            counts["operators of ours"] += 1
            counts["operators with the same start"] += (
                timed.get(draft.operator.record, {}).get("ts", 0) * 1000 == draft.start
            )
    for name, count in counts.items():
        print(f"{count:6,} {name}")


def _record(node: dict[str, Any]) -> int:
    return next(int(each["value"]) for each in node["attrs"] if each["name"] == "rf_id")


if __name__ == "__main__":
    main()
