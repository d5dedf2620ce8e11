"""Our links beside those of Chakra's own linker and converter, node by node, on a recording of `facebookresearch/param`.

    python benchmarks/linked_like_chakra.py INPUTS --chakra CHAKRA --param PARAM --python PYTHON

CHAKRA and PARAM are checkouts of mlcommons/chakra and facebookresearch/param, PYTHON an interpreter with Holistic Trace Analysis
(`make .venv/.hta-ready`: .venv/hta/bin/python). Chakra's linker knows operators by `Record function id`, which the recording's
profiler did not write yet, and takes the second generation of the schema alone: both are written into copies, the numbers by our
matching (whose every operator has the name of its event). Its converter then runs here on what its linker wrote, with the classes
of `chakra.messages` for its schema's.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import types
from collections import Counter
from pathlib import Path
from typing import Any

from meshcast.chakra import COLLECTIVE_NAMES, NODE_TYPE_NAMES, ChakraTrace, Node, NodeType, NodeValues, read_trace
from meshcast.chakra.messages import message_classes
from meshcast.traces import link_traces
from meshcast.traces.recorded.drafts import REST
from meshcast.traces.recorded.events import read_device_trace
from meshcast.traces.recorded.linking import link_rank
from meshcast.traces.recorded.matching import matched
from meshcast.traces.recorded.operators import read_host_trace

UNKNOWN = 1000  # the type of a collective that Chakra's converter refuses
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
        converted = _converted(Path(names["out"]), Path(folder) / "converted.et", asked.chakra.resolve())
        link_traces([host_file], [device_file], Path(folder) / "ours")
        (linked,) = (Path(folder) / "ours").glob("job.*.et")
        ours = read_trace(linked)
    print("\nafter Chakra's converter")
    _compare_converted(theirs, converted, ours)


def _converted(linked: Path, out: Path, chakra: Path) -> ChakraTrace:
    """What Chakra's converter makes of what its linker wrote."""
    schema = types.ModuleType("chakra.schema.protobuf.et_def_pb2")
    for name, each in message_classes().items():
        setattr(schema, name, each)
    for names in (NODE_TYPE_NAMES, COLLECTIVE_NAMES):
        for number, name in enumerate(names):
            setattr(schema, name, number)
    for name, path in (
        ("chakra", ""),
        ("chakra.src", "src"),
        ("chakra.schema", "schema"),
        ("chakra.schema.protobuf", "schema"),
    ):
        package = types.ModuleType(name)
        package.__path__ = [str(chakra / path)]
        sys.modules[name] = package
    sys.modules[schema.__name__] = schema
    converter = importlib.import_module("chakra.src.converter.pytorch_converter")

    class Lenient(converter.PyTorchConverter):  # type: ignore[misc, name-defined]  # of a module that is there when it runs
        """Chakra's, but for kernels whose name tells no collective (`SendRecv`), at which it ends."""

        def get_collective_comm_type(self, name: str) -> int:
            try:
                return int(super().get_collective_comm_type(name))
            except ValueError:
                return UNKNOWN

    Lenient().convert(str(linked), str(out), False)
    return read_trace(out)


def _compare_converted(linked: list[dict[str, Any]], theirs: ChakraTrace, ours: ChakraTrace) -> None:
    """Host nodes by the operators' numbers, device nodes by name and begin."""
    counts: Counter[str] = Counter()
    begins = {int(node["id"]): node.get("ts") for node in linked}
    host = {int(str(node.attributes["rf_id"])): node for node in ours.nodes if _is_operator(node)}
    device = {(node.name, node.start_us): node for node in ours.nodes if not node.attributes.get("is_cpu_op")}
    for node in theirs.nodes:
        if node.attributes.get("is_cpu_op"):
            record = int(str(node.attributes["rf_id"]))
            mine = host.get(record)
            counts["host nodes of theirs"] += 1
            if mine is None:
                counts[f"host nodes without one of ours: {node.name if not record else 'others'}"] += 1
                continue
            counts["host nodes in both"] += 1
            counts["  same name"] += mine.name == node.name
            counts["  same schema of the operator"] += mine.attributes.get("op_schema") == node.attributes.get(
                "op_schema"
            )
            for what in ("inputs", "outputs"):
                said = [getattr(each, what) for each in (mine, node)]
                counts[f"  same shapes of {what}"] += _texts(said[0], "shapes") == _texts(said[1], "shapes")
                counts[f"  same types of {what}"] += _texts(said[0], "types") == _texts(said[1], "types")
            continue
        counts["device nodes of theirs"] += 1
        mine = device.get((node.name, int(begins.get(node.number) or -1)))
        if mine is None:
            counts[f"device nodes without one of ours: {node.name[:40]}"] += 1
            continue
        counts["device nodes in both"] += 1
        counts["  same stream"] += mine.attributes.get("stream") == node.attributes.get("stream")
        if mine.kind == node.kind == NodeType.COLLECTIVE:
            counts["  collectives in both"] += 1
            counts["  collectives whose type Chakra's converter refuses"] += node.attributes.get("comm_type") == UNKNOWN
            counts["  collectives of the same type"] += mine.attributes.get("comm_type") == node.attributes.get(
                "comm_type"
            )
            counts["  collectives of the same size"] += mine.attributes.get("comm_size") == node.attributes.get(
                "comm_size"
            )
            counts["  collectives of the same duration"] += mine.duration_us == node.duration_us
        elif mine.kind != node.kind:
            counts[f"  ours {mine.kind.name}, theirs {node.kind.name}: {node.name[:40]}"] += 1
        else:
            counts["  other work of the same duration"] += mine.duration_us == node.duration_us
    known = {int(str(node.attributes.get("rf_id", 0))) for node in theirs.nodes if node.attributes.get("is_cpu_op")}
    counts["host operators of ours without one of theirs"] = sum(record not in known for record in host)
    named = {(node.name, int(begins.get(node.number) or -1)) for node in theirs.nodes}
    for name, begin in device:
        if (name, begin) not in named:
            counts[f"device nodes of ours alone: {name[:40] if 'delay' not in name else 'delays'}"] += 1
    for name, count in counts.items():
        print(f"{count:6,} {name}")
    for name, trace in (("ours", ours), ("theirs", theirs)):
        print(
            f"{sum(node.duration_us for node in trace.nodes if node.attributes.get('is_cpu_op')):,} us of the host in {name}"
        )


def _is_operator(node: Node) -> bool:
    said = node.attributes
    return bool(said.get("is_cpu_op")) and "rf_id" in said and not node.name.endswith(REST)


def _texts(said: NodeValues | None, part: str) -> str:
    """A list as a text, by Python's or JSON's rules, without what tells those apart."""
    return "" if said is None else str(getattr(said, part)).replace('"', "'").replace(" ", "")


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
