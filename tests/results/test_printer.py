from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest

from meshcast.base.units import format_energy
from meshcast.results import CollectiveShare, Fix, Infeasible, KernelShare, Lever, Prediction, Provenance, Timed
from meshcast.results.column_room import BAR
from meshcast.results.printer import format_power, percent, prediction_html, prediction_sections, prediction_text
from meshcast.results.sections import Section, columns, sections_text
from meshcast.simulate.memory.liveness import MemoryUse
from meshcast.simulate.timeline import Breakdown

GIB = 2**30
BREAKDOWN = Breakdown(compute=0.030, memory=0.015, exposed_communication=0.004, overhead=0.0008, idle=0.0002)
MEMORY = MemoryUse(
    peak=20 * GIB,
    arguments=12 * GIB,
    outputs=12 * GIB,
    temporaries=8 * GIB,
    aliased=12 * GIB,
    by_role={"parameter": 4 * GIB, "optimizer_state": 8 * GIB},
)
TIMED = Timed(
    step_time_s=0.050,
    interval_s=(0.050, 0.100),
    breakdown=BREAKDOWN,
    communication_s=0.0,
    energy_j=25.0,
    mfu=0.41,
    hfu=0.41,
    levers=(
        Lever(
            change="twice the memory bandwidth",
            flag="--on h200+memory.bandwidth=9600GB/s",
            step_time_s=0.040,
            saved_s=0.010,
            saved_share=0.2,
        ),
    ),
    top_kernels=(
        KernelShare(
            name="gemm 8192x8192x8192 bf16", count=24, seconds=0.020, limited_by="compute", location="model.py:7"
        ),
        KernelShare(name="loop-fusion add f32[8,1024]", count=6, seconds=0.005, limited_by="memory", location=""),
    ),
)
ONE = Prediction(
    name="step",
    sha256="0" * 64,
    devices=1,
    mesh={},
    device="h200",
    cluster=None,
    fidelity="roofline",
    network="alpha-beta",
    infeasible=None,
    timed=TIMED,
    flops=2e13,
    hbm_bytes=60.0 * GIB,
    communication_bytes=0.0,
    memory=MEMORY,
    capacity_bytes=80 * GIB,
    kernels=1234,
    provenance=Provenance(measured=0.75, analytical=0.25),
    version="0.1.0",
)
MANY = replace(
    ONE,
    devices=16,
    mesh={"data": 2, "tensor": 8},
    cluster="dgx-h200",
    communication_bytes=3.0 * GIB,
    timed=replace(
        TIMED,
        hfu=0.52,
        communication_s=0.010,
        collectives=tuple(
            CollectiveShare(
                kind="all_reduce",
                group="tensor",
                group_size=8,
                count=12,
                bytes_sent=GIB / 4,
                seconds=0.001,
                algorithm="ring",
                level="nvlink",
            )
            for _ in range(8)
        ),
    ),
    warnings=("an op was guessed",),
)
TOO_LARGE = replace(
    ONE,
    infeasible=Infeasible(
        resource="memory_bytes",
        demand=200.0 * GIB,
        bound=80.0 * GIB,
        levers=("use more devices",),
        fixes=(Fix(change="recompute all", flag="--set remat=full", demand=70.0 * GIB, fits=True),),
    ),
    timed=None,
)


def unwrapped(prediction: Prediction) -> str:
    return " ".join(prediction_text(prediction).split())


def test_the_number_comes_first_with_interval_and_fidelity() -> None:
    subject, number, note, *_ = prediction_text(ONE).splitlines()
    assert subject == "step on one h200"
    assert number.split() == ["step", "time", "50", "ms", "between", "50", "ms", "and", "100", "ms", "(roofline)"]
    assert "speed-of-light" in note
    assert "opens upwards" in note


def test_other_fidelities_are_no_bounds() -> None:
    assert "speed-of-light" not in prediction_text(replace(ONE, fidelity="analytical"))


def test_breakdown_adds_up() -> None:
    section = next(s for s in prediction_sections(ONE) if s.title.startswith("Where the time goes"))
    assert [row[0] for row in section.rows] == [part.name.replace("_", " ") for part in fields(BREAKDOWN)]
    assert sum(float(row[2].removesuffix(" %")) for row in section.rows) == pytest.approx(100, abs=0.3)
    scale = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
    seconds = sum(float(number) * scale[unit] for number, unit in (row[1].split() for row in section.rows))
    assert seconds == pytest.approx(0.050, rel=0.01)
    assert "mostly compute" in section.title


@pytest.mark.parametrize("width", [60, 80])
def test_times_of_kernels_stay_where_their_names_are_long(width: int) -> None:
    """A kernel of 90 characters is cut: its time, its share and its limit are what the table is read for."""
    name = "attention custom_call:__cudnn$fmhaSoftmaxBackward bf16[8,128,4,16] in transformer/block/attention"
    heads = columns("~kernel", ">count", ">time", ">of step", "limited by")
    section = Section(columns=heads, rows=[(name, "2", "51.3 us", "9.9 %", "latency")])
    told = sections_text([section], width=width)
    assert re.search(r"attention custom_c.*… +2 +51.3 us +9.9 % +latency", told)
    assert "a wider terminal" not in told


def test_bars_give_way_in_a_narrow_terminal() -> None:
    assert BAR in sections_text(prediction_sections(ONE), width=80)
    narrow = sections_text(prediction_sections(ONE), width=40)
    assert BAR not in narrow
    assert "exposed communication" in narrow, "words stay whole"


@pytest.mark.parametrize(
    "fragment",
    [
        "MFU 41.0 % matrix FLOPs",
        "20 GiB at peak, 25.0 % of 80 GiB",
        "arguments 12 GiB (parameter 4 GiB, optimizer state 8 GiB) + outputs 12 GiB + temporaries 8 GiB",
        "25 J per step and device, 500 W on average",
        "20 TFLOP and 60 GiB of memory traffic in 1,234 kernels",
        "measured 75.0 %, analytical 25.0 %",
    ],
)
def test_figures(fragment: str) -> None:
    assert fragment in unwrapped(ONE)


def test_kernels_and_levers() -> None:
    text = prediction_text(ONE)
    assert re.search(r"gemm 8192x8192x8192 bf16 +24 +20 ms +40.0 % +compute", text)
    assert "f32[8,1024]" in text  # shapes are no markup
    assert re.search(r"twice the memory bandwidth +40 ms +20.0 % +--on h200\+memory.bandwidth=9600GB/s", text)
    assert "each change was predicted" in text


def test_flags_are_folded_and_never_cut() -> None:
    """A what-if of many parts is one word, longer than any line."""
    flag = "--on h200" + "".join(f"+matrix.{name}=1978.8TFLOP/s" for name in ("bf16", "f16", "f8", "s8", "tf32", "f64"))
    text = prediction_text(replace(ONE, timed=replace(TIMED, levers=(replace(TIMED.levers[0], flag=flag),))))
    told = text.partition("What would help most")[2].partition("each change was predicted")[0]
    assert "…" not in told
    assert flag.replace(" ", "") in "".join("".join(line[45:] for line in told.splitlines()).split())


def test_levers_of_requests_tell_the_time_of_a_request() -> None:
    lever = replace(TIMED.levers[0], step_time_s=0.050, request_time_s=7.0)
    told = prediction_text(replace(ONE, timed=replace(TIMED, levers=(lever,)))).partition("What would help most")[2]
    assert re.search(r"change +request time +saves", told)
    assert re.search(r"twice the memory bandwidth +7 s +20.0 %", told)


def test_one_device_says_nothing_of_communication() -> None:
    assert "\nCommunication\n" not in prediction_text(ONE)


def test_many_devices() -> None:
    text = prediction_text(MANY)
    assert text.startswith("step on 16 x h200 (dgx-h200), mesh data=2, tensor=8\n")
    assert "MFU 41.0 %, HFU 52.0 % with recomputation" in unwrapped(MANY)
    assert "10 ms, of which 4 ms exposed (40.0 % of it, 8.0 % of the step); 3 GiB sent per device" in unwrapped(MANY)
    assert len(re.findall(r"all-reduce +tensor +8 +12 +256 MiB +1 ms +ring +nvlink", text)) == 6
    assert "and 2 more" in text
    assert "400 J on all devices" in text
    assert "an op was guessed" in text


def test_infeasible_has_no_time() -> None:
    text = prediction_text(TOO_LARGE)
    assert "cannot run" in text
    assert "step time" not in text
    assert not re.search(r"\d (s|ms|us)\b(?! *$)", text.rpartition("\n")[0])
    for fragment in (
        "200 GiB, 2.5 times the capacity",
        "capacity       80 GiB",
        "missing        120 GiB",
        "use more devices",
    ):
        assert fragment in text


@pytest.mark.parametrize("prediction", [ONE, MANY, TOO_LARGE])
@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
def test_lines_fit_the_terminal(prediction: Prediction, width: int) -> None:
    lines = sections_text(prediction_sections(prediction), width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("prediction", [ONE, MANY, TOO_LARGE])
def test_html_holds_every_cell(prediction: Prediction) -> None:
    markup = prediction_html(replace(prediction, name="<step>"))
    assert "&lt;step&gt;" in markup
    assert "<step>" not in markup
    for section in prediction_sections(prediction):
        for row in section.rows:
            assert all(cell.replace("<", "&lt;").replace("'", "&#x27;") in markup for cell in row)


@pytest.mark.parametrize(
    ("joules", "text"), [(30.613, "30.6 J"), (0.0042, "4.2 mJ"), (1536.0, "1.54 kJ"), (999.7, "1 kJ"), (0.0, "0 uJ")]
)
def test_energy(joules: float, text: str) -> None:
    assert format_energy(joules) == text


@pytest.mark.parametrize(("share", "text"), [(0.0, "0.0 %"), (0.0001, "<0.1 %"), (0.123, "12.3 %"), (1.0, "100.0 %")])
def test_percent(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(("watts", "told"), [(612.4, "612 W"), (0.7512, "0.751 W"), (0.056, "56 mW")])
def test_small_powers_are_told(watts: float, told: str) -> None:
    assert format_power(watts) == told
