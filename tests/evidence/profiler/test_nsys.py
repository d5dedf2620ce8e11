"""Nsight's tables as its releases, other units and other languages write them, and those that are not whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshcast.base.errors import InputError
from meshcast.evidence.profiler import MeasuredTrace, read_traces

HEAD = "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Device,Ctx,Strm,Name\n"
ROWS = (
    '1000000,250000,11,8,1,1,128,1,1,NVIDIA H200 (0),1,7,"gemm<float, 4>"\n'
    "2000000,500000,12,8,1,1,128,1,1,NVIDIA H200 (0),1,7,add\n"
)


def read(folder: Path, content: str | bytes) -> list[MeasuredTrace]:
    path = folder / "table.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_traces(path)


def times(trace: MeasuredTrace) -> list[tuple[float, float]]:
    return [(kernel.start, kernel.duration) for kernel in trace.kernels]


MILLISECONDS = [pytest.approx((1e-3, 0.25e-3)), pytest.approx((2e-3, 0.5e-3))]


@pytest.mark.parametrize(
    ("head", "rows"),
    [
        # nsys 2020, and 2024 with the column of green contexts and another unit
        ("Start(nsec),Duration(nsec),Device,Strm,Name", ["1000000,250000,H200 (0),7,a", "2000000,500000,H200 (0),7,b"]),
        (
            "Start (us),Duration (us),Device,Ctx,GreenCtx,Strm,Name",
            ["1000.000,250.0,H200 (0),1,,7,a", "2000,500,H200 (0),1,,7,b"],
        ),
        ("Start (μs),Duration (µs),Device,Name", ["1000,250,H200 (0),a", "2000,500,H200 (0),b"]),
        ("Start:ts_ns,Duration:dur_ns,Device,Name", ["1000000,250000,H200 (0),a", "2000000,500000,H200 (0),b"]),
        # thousands
        ("Start (ns),Duration (us),Device,Name", ['"1,000,000","250",H200 (0),a', '"2,000,000",500,H200 (0),b']),
        # spreadsheets of other languages
        ("Start (ns);Duration (us);Device;Name", ["1.000.000;250,0;H200 (0);a", "2.000.000;500,00;H200 (0);b"]),
        ("Start (ms);Duration (ms);Device;Name", ["1,000;0,25;H200 (0);a", "2;0.5;H200 (0);b"]),
        ("Start (ns);Duration (ns);Device;Name", ["1'000'000;250 000;H200 (0);a", "2000000;500000;H200 (0);b"]),
        ("Start (ns)\tDuration (ns)\tDevice\tName", ["1000000\t250000\tH200 (0)\ta", "2000000\t500000\tH200 (0)\tb"]),
        # cuda_kern_exec_trace, which has the host's call beside the kernel
        (
            "API Start (ns),API Dur (ns),Kernel Start (ns),Kernel Dur (ns),PID,TID,DevId,API Function,GridXYZ,Kernel Name",
            ["1,2,1000000,250000,3,4,0,cudaLaunchKernel,8 1 1,a", "1,2,2000000,500000,3,4,0,cudaLaunchKernel,8 1 1,b"],
        ),
    ],
)
def test_columns_units_and_numbers_of_every_kind(tmp_path: Path, head: str, rows: list[str]) -> None:
    (trace,) = read(tmp_path, "\n".join([head, *rows]) + "\n")
    assert times(trace) == MILLISECONDS
    assert [kernel.name for kernel in trace.kernels] == ["a", "b"]
    assert trace.device == "GPU:0"
    assert not trace.notes


def test_what_nsys_prints_around_a_table_is_passed_over(tmp_path: Path) -> None:
    summary = "Time (%),Total Time (ns),Instances,Name\n100.0,5,1,a\n"
    text = (
        "Generating SQLite file run.sqlite from run.nsys-rep\n\n"
        f" ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n{summary}\n"
        f"Processing [run.sqlite] with [cuda_gpu_trace.py]...\n\n ** CUDA GPU Trace (cuda_gpu_trace):\n\n{HEAD}{ROWS}\n"
        "Processed.\n"
    )
    (trace,) = read(tmp_path, text)
    assert (trace.format, times(trace)) == ("nsys-trace", MILLISECONDS)
    assert trace.kernels[0].name == "gemm<float, 4>"


def test_a_text_of_powershell(tmp_path: Path) -> None:
    (trace,) = read(tmp_path, (HEAD + ROWS).replace("\n", "\r\n").encode("utf-16"))
    assert times(trace) == MILLISECONDS


def test_a_name_with_commas_and_no_quotes(tmp_path: Path) -> None:
    (trace,) = read(tmp_path, HEAD + ROWS.replace('"', ""))
    assert trace.kernels[0].name == "gemm<float, 4>"


def test_devices_contexts_and_streams_are_told_apart(tmp_path: Path) -> None:
    row = "{start},10,1,1,1,1,32,1,1,NVIDIA H200 ({device}),{context},{stream},k\n"
    places = [(0, 1, 7), (0, 2, 7), (1, 1, 7), (1, 1, 8)]
    rows = [row.format(start=100 * i, device=d, context=c, stream=s) for i, (d, c, s) in enumerate(places)]
    first, second = read(tmp_path, HEAD + "".join(rows))
    assert [kernel.stream for kernel in first.kernels] == ["1/7", "2/7"]
    assert [kernel.stream for kernel in second.kernels] == ["1/7", "1/8"]
    assert any("2 contexts (1, 2)" in note for note in first.notes)
    assert not second.notes


@pytest.mark.parametrize("cut", range(1, len(ROWS) - len(ROWS.splitlines()[0]) - 1))
def test_a_table_that_is_cut_off_in_its_last_row_is_never_taken_for_whole(tmp_path: Path, cut: int) -> None:
    """Refused, or read with a note that names the line."""
    refused = ""
    traces: list[MeasuredTrace] = []
    try:
        traces = read(tmp_path, (HEAD + ROWS)[:-cut])
    except InputError as error:
        refused = f"{error.where}: {error}"
    doubts = [note for trace in traces for note in trace.notes]
    if refused:
        assert ".csv:3:" in refused
    else:
        assert any(note.startswith("line 3, the last row, has no end of line") for note in doubts)


def test_a_name_that_is_cut_off_inside_its_quotes_is_refused(tmp_path: Path) -> None:
    swapped = "".join(reversed(ROWS.splitlines(keepends=True)))
    with pytest.raises(InputError, match="quotes do not close") as refused:
        read(tmp_path, HEAD + swapped[:-6])
    assert str(refused.value.where).endswith(":3")


def test_a_summary_without_all_of_its_rows_says_so(tmp_path: Path) -> None:
    head = "Time (%),Total Time (ns),Instances,Avg (ns),Name\n"
    (whole,) = read(tmp_path, head + "75.0,1500,30,50,gemm\n24.9,500,10,50,add\n")
    (part,) = read(tmp_path, head + "75.0,1500,30,50,gemm\n")
    assert not whole.notes
    assert any("75 %" in note for note in part.notes)


def test_operations_of_a_summary_of_everything(tmp_path: Path) -> None:
    """`cuda_gpu_sum` calls names operations."""
    (trace,) = read(tmp_path, "Time (%),Total Time (ns),Instances,Category,Operation\n100.0,5,1,CUDA_KERNEL,gemm\n")
    assert [(kernel.name, kernel.count) for kernel in trace.kernels] == [("gemm", 1)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid\n1,2,cudaLaunchKernel,0,1,2,3\n", "the host's calls"),
        (HEAD + ROWS + "\n" + HEAD + ROWS, "2 tables of launches, at lines 1, 5"),
        (HEAD + ROWS.replace(",add", ","), "without a name"),
        (HEAD + ROWS.replace("2000000,500000", "2000000,5e5x"), "does not fit the head"),
    ],
)
def test_other_tables_are_refused(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        read(tmp_path, content)
    assert said in str(refused.value)
    assert refused.value.exit_code == 2
    assert refused.value.fix


@pytest.mark.parametrize("count", ["1e400", "nan", "-inf"])
def test_a_count_that_is_no_number(tmp_path: Path, count: str) -> None:
    with pytest.raises(InputError, match="Instances is") as raised:
        read(tmp_path, f"Time (%),Total Time (ns),Instances,Name\n100.0,5000,{count},add\n")
    assert raised.value.where is not None
    assert raised.value.where.endswith("table.csv:2")
