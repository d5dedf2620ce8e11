"""Each profiler's files become the same type, and what is none of them is refused with a reason."""

from __future__ import annotations

import contextlib
import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.base.errors import InputError
from meshcast.base.files import unpacked
from meshcast.evidence.profiler import MeasuredTrace, read_traces
from tests.evidence.profiler.traces import Plane, kernel_event, kineto, xspace

EXAMPLES = Path(__file__).parents[3] / "examples" / "measured"
NSYS_TRACE = """Generating SQLite file run.sqlite from run.nsys-rep
Processing [run.sqlite] with [cuda_gpu_trace.py]...

Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Device,Ctx,Strm,Name
2000,500,12,8,1,1,128,1,1,NVIDIA H200 (0),1,7,"void gemm<float, 4>(int)"
1000,250,11,,,,,,,NVIDIA H200 (0),1,7,[CUDA memcpy Host-to-Device]
1500,250,13,8,1,1,128,1,1,NVIDIA H200 (1),1,7,elementwise
"""
NSYS_SUMMARY = """Time (%),Total Time (us),Instances,Avg (us),Med (us),Min (us),Max (us),StdDev (us),Name
75.0,"1,500.0",30,50,50,50,50,0,gemm
25.0,500.0,10,50,50,50,50,0,"add<a, b>"
"""


def written(folder: Path, content: bytes | str, name: str = "trace") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(folder: Path, content: bytes | str) -> list[MeasuredTrace]:
    return read_traces(written(folder, content))


KERNEL = kernel_event("k", 0.0, 1.0)
LAUNCH = {"ph": "X", "cat": "cuda_runtime", "name": "launch", "ts": 0.0, "dur": 1.0, "args": {"correlation": 7}}
NUMBERED = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "ts": 0.0, "dur": 1.0}

GPU: dict[str, Plane] = {
    "/device:GPU:0": {
        "Stream #14(Compute)": [
            ("fusion_3", 2000.0, 500.0, {"hlo_op": "fusion.3", "hlo_module": "jit_f", "name": "jit(f)/add"}),
            ("dot", 1000.0, 900.0, {"hlo_op": "command_buffer_1", "hlo_module": "jit_f"}),
        ],
        "Stream #15(MemcpyD2D)": [("MemcpyD2D", 1100.0, 100.0, {})],
        "XLA Modules": [("jit_f", 0.0, 9000.0, {})],
    },
    "/host:CPU": {"python": [("PjitFunction", 0.0, 9000.0, {})]},
}


@pytest.mark.parametrize("compressed", [False, True])
def test_a_jax_profile(tmp_path: Path, compressed: bool) -> None:
    content = xspace(GPU)
    (trace,) = read(tmp_path, gzip.compress(content) if compressed else content)
    assert (trace.format, trace.device) == ("xplane", "GPU:0")
    dot, copy, fusion = trace.kernels
    assert (dot.name, dot.op, dot.stream) == ("dot", "", "Stream #14")  # a CUDA graph is no instruction
    assert copy.start == pytest.approx(1.1e-6)
    assert (fusion.op, fusion.module, fusion.scope) == ("fusion.3", "jit_f", "jit(f)/add")
    assert fusion.duration == pytest.approx(5e-7)
    assert trace.modules == pytest.approx({"jit_f": 1.4e-6, "": 1e-7})


def test_loops_of_a_tpu_give_way_to_what_they_run(tmp_path: Path) -> None:
    ops = [
        ("%while.1 = (s32[]) while(...)", 0.0, 1000.0, {}),
        ("%fusion.2 = f32[8] fusion(...)", 0.0, 400.0, {"tf_op": "jit(f)/mul"}),
        ("%fusion.2 = f32[8] fusion(...)", 500.0, 400.0, {"tf_op": "jit(f)/mul"}),
        ("%copy.3 = f32[8] copy(...)", 1000.0, 100.0, {}),
    ]
    (trace,) = read(tmp_path, xspace({"/device:TPU:0": {"XLA Ops": ops, "Steps": [("1", 0.0, 1100.0, {})]}}))
    assert [kernel.op for kernel in trace.kernels] == ["fusion.2", "fusion.2", "copy.3"]
    assert trace.kernels[0].scope == "jit(f)/mul"


def test_a_folder_is_its_newest_profile_with_every_host(tmp_path: Path) -> None:
    for run, hosts in (("2026_01_01", ["a"]), ("2026_02_01", ["a", "b"])):
        folder = tmp_path / "plugins" / "profile" / run
        folder.mkdir(parents=True)
        for host in hosts:
            written(folder, xspace(GPU), f"{host}.xplane.pb")
    assert [Path(trace.source).parent.name for trace in read_traces(tmp_path)] == ["2026_02_01"] * 2


@pytest.mark.parametrize("compressed", [False, True])
def test_a_pytorch_trace(tmp_path: Path, compressed: bool) -> None:
    events = [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "ts": 0, "dur": 10},
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#4", "ts": 10, "dur": 10},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 11, "dur": 5, "args": {"External id": 1}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 12, "dur": 1, "args": {"correlation": 5}},
        kernel_event("nvjet", 30.0, 4.0, correlation=5, grid=[8, 1, 1], block=[128, 1, 1], **{"External id": 1}),
        kernel_event("other", 40.0, 4.0, device=1, correlation=99),
        {"ph": "i", "name": "Iteration Start"},
    ]
    first, second = read(tmp_path, kineto(events, compressed=compressed))
    assert (first.device, first.device_name, second.device) == ("GPU:0", "NVIDIA H200", "GPU:1")
    assert (first.kernels[0].scope, first.kernels[0].step) == ("aten::mm", 4)
    assert second.kernels[0].step is None
    assert first.kernels[0].start == pytest.approx(30e-6)


def test_the_table_of_launches_of_nsight(tmp_path: Path) -> None:
    first, second = read(tmp_path, NSYS_TRACE)
    assert (first.format, first.device, first.device_name) == ("nsys-trace", "GPU:0", "NVIDIA H200")
    assert [kernel.name for kernel in first.kernels] == ["[CUDA memcpy Host-to-Device]", "void gemm<float, 4>(int)"]
    assert first.kernels[1].start == pytest.approx(2e-6)
    assert first.kernels[1].duration == pytest.approx(5e-7)
    assert second.device == "GPU:1"


def test_the_summary_of_kernels_of_nsight(tmp_path: Path) -> None:
    (trace,) = read(tmp_path, NSYS_SUMMARY)
    assert not trace.ordered
    gemm, add = trace.kernels
    assert (gemm.count, gemm.duration) == (30, pytest.approx(1.5e-3))
    assert add.name == "add<a, b>"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"some words about a trace", "no trace that we know"),
        (b'{"traceEvents": [', "not whole JSON"),
        (b'{"a": 1}', "without `traceEvents`"),
        (b"[]", "none of 0 events"),
        (kineto([{"ph": "X", "name": "x", "args": {"hlo_op": "y"}}]), ".xplane.pb beside it"),
        (kineto([{**kernel_event("k", 0.0, 1.0), "dur": "long"}]), "no readable time"),
        (kineto([{**kernel_event("k", 0.0, 1.0), "dur": -1}]), "no readable time"),
        (kineto([kernel_event("k", float("nan"), 1.0)]), "no readable time"),
        (kineto([{**KERNEL, "args": "none"}]), "event 0 ('k') has args that are no object but str"),
        (kineto([KERNEL, {**LAUNCH, "ts": "soon"}]), "event 1 (cuda_runtime, 'launch')"),
        (kineto([KERNEL, {**LAUNCH, "ts": None}]), "event 1 (cuda_runtime, 'launch')"),
        (kineto([KERNEL, {**LAUNCH, "args": {"correlation": [7]}}]), "event 1 (cuda_runtime, 'launch')"),
        (kineto([KERNEL, {**LAUNCH, "cat": "cpu_op", "args": {"External id": {}}}]), "event 1 (cpu_op, 'launch')"),
        (kineto([KERNEL, {**LAUNCH, "cat": ["cpu_op"], "args": 5}]), "event 1 ('launch') has args that are no object"),
        (kineto([KERNEL, {**NUMBERED, "dur": None}]), "event 1 (user_annotation, 'ProfilerStep#3')"),
        (b'{"traceEvents": ' + b"[" * 100_000, "not whole JSON"),
        (NSYS_TRACE.encode().replace(b"2000,500", b"inf,500"), "Start is 'inf', which is no number"),
        (NSYS_TRACE.encode().replace(b"2000,500", b"2000,x"), "does not fit the head"),
        (xspace({"/device:GPU:0": {"Stream #1": [("k", 0.0, -5.0, {})]}}), "cannot be read"),
        (xspace(GPU)[:-40], "not a whole XSpace message"),
        (b"\x00\x01\x02\xff", "not a whole XSpace message"),
        (gzip.compress(xspace(GPU))[:-30], "cut off"),
        (xspace({"/host:CPU": {"python": [("f", 0.0, 1.0, {})]}}), "planes: /host:CPU"),
        (b"SQLite format 3\x00 and more", "Nsight's database"),
        (NSYS_TRACE.splitlines()[3].encode(), "no rows"),
        (NSYS_TRACE.encode() + b"12,x,y\n", "3 cells under a head of 13"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(InputError) as refused:
        read_traces(path)
    assert said in str(refused.value)
    assert str(path) in str(refused.value.where)
    assert refused.value.exit_code == 2


def test_a_place_without_a_trace_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InputError, match=r"no profile|cannot be read"):
            read_traces(path)


def test_a_bad_row_is_named_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        read(tmp_path, NSYS_TRACE + "12,x,y\n")
    assert str(refused.value.where).endswith(":8")


@settings(deadline=None, max_examples=40)
@given(
    seed=st.sampled_from(["nsys", "kineto"]),
    place=st.integers(0, 400),
    byte=st.binary(max_size=3),
    cut=st.integers(0, 9),
)
def test_damaged_files_are_read_or_refused(seed: str, place: int, byte: bytes, cut: int) -> None:
    whole = NSYS_TRACE.encode() if seed == "nsys" else kineto([kernel_event("k", 1.0, 2.0, correlation=3)])
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), whole[:place] + byte + whole[place + cut :])
        traces = []
        with contextlib.suppress(InputError):
            traces = read_traces(path)
        assert all(trace.kernels for trace in traces)


def test_a_module_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    (trace,) = read(tmp_path, xspace(GPU))
    assert len(trace.of_module("jit_f").kernels) == 2
    with pytest.raises(InputError, match="jit_g") as refused:
        trace.of_module("jit_g")
    assert "jit_f" in str(refused.value.fix)


@pytest.mark.parametrize(
    ("name", "format_", "kernels"),
    [
        ("gpt2-small.xplane.pb.gz", "xplane", 6760),
        ("gpt2-small-graphs.xplane.pb.gz", "xplane", 6760),
        ("gpt2-small-torch.json.gz", "kineto", 4400),
    ],
)
def test_the_shipped_profiles(name: str, format_: str, kernels: int) -> None:
    (trace,) = read_traces(EXAMPLES / name)
    assert (trace.format, trace.device, trace.device_name) == (format_, "GPU:0", "NVIDIA H200")
    assert len(trace.kernels) == kernels


@pytest.mark.parametrize(
    ("unit", "said"), [(" (ticks)", "column 'Duration' is in 'ticks'"), ("", "column 'Duration' has no unit")]
)
def test_times_of_an_unknown_unit_are_refused(tmp_path: Path, unit: str, said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(NSYS_TRACE.replace("Duration (ns)", f"Duration{unit}"))
    with pytest.raises(InputError) as raised:
        read_traces(path)
    assert said in raised.value.message
    assert raised.value.fix


def test_what_is_packed_is_bounded() -> None:
    packed = gzip.compress(b"0" * 1000)
    assert unpacked(packed, where="x", largest=1000) == b"0" * 1000
    with pytest.raises(InputError, match="unpacks to more than 999 B"):
        unpacked(packed, where="x", largest=999)
    with pytest.raises(InputError, match="cut off"):
        unpacked(packed[:-9], where="x")


def test_a_folder_of_kineto_files_is_one_a_rank(tmp_path: Path) -> None:
    for rank, compressed in enumerate((False, True)):
        name = f"rank{rank}.json" + (".gz" if compressed else "")
        (tmp_path / name).write_bytes(kineto([kernel_event("k", 0.0, 1.0 + rank)], compressed=compressed))
    assert [trace.kernels[0].duration for trace in read_traces(tmp_path)] == [pytest.approx(1e-6), pytest.approx(2e-6)]
