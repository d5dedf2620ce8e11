"""Every prediction says how its device was checked; what is less checked has wider intervals."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from meshcast import Options, Prediction, capture, compare, predict
from meshcast.estimate.gpu.clocks import CALIBRATED_DEVICE
from meshcast.hardware import load_device, resolve
from meshcast.hardware.checked import HOW_CHECKED_WORDS
from meshcast.jobs import front
from meshcast.jobs import resolve as resolving
from meshcast.jobs.described import asked_of
from meshcast.jobs.pipeline import job as pipeline_job
from meshcast.jobs.program import run
from meshcast.jobs.run_widths import grown, interval_of_many, trust_data, width_of_many
from meshcast.jobs.trust import widenings, with_trust
from meshcast.options.fidelities import common_fidelity
from meshcast.programs.program import Program

OWN = 'schema = "meshcast.device/1"\nname = "mine"\nbase = "h200"\n[checked]\nhow = "measured"\nagainst = "hearsay"\n'
CLASSES = {"h200": "measured", "a100-sxm-80gb": "kernels", "tpu-v6e": "kernels", "tpu-v5e": "runs", "mi300x": "data-sheet",
           "a100-pcie-80gb": "data-sheet"}  # fmt: skip


@pytest.fixture(scope="module")
def product() -> Program:
    side = jax.ShapeDtypeStruct((2048, 2048), jnp.bfloat16)
    return capture(jnp.matmul, side, side)


def untold(prediction: Prediction) -> Prediction:
    """The same before anything was said of trust."""
    assert prediction.trust is not None
    assert prediction.timed is not None
    low, high = prediction.trust.widened
    ends = prediction.timed.interval_s
    timed = replace(prediction.timed, interval_s=(ends[0] * low, ends[1] / high))
    return replace(prediction, trust=None, timed=timed)


@pytest.mark.parametrize(("device", "how"), CLASSES.items())
def test_every_prediction_says_how_its_device_was_checked(product: Program, device: str, how: str) -> None:
    prediction = predict(product, on=device)
    trust = prediction.to_json()["trust"]
    assert trust["checked"] == how
    low, high = widenings()[prediction.trust.checked]  # type: ignore[union-attr]
    assert trust["widened"][1] == high
    assert trust["widened"][0] <= low
    if trust["widened"][0] < low:  # the lower end stops at the speed of light, at the highest clock
        chip = load_device(device)
        light = predict(product, on=device, fidelity="roofline", levers=False).step_time_s
        assert light is not None
        assert prediction.timed is not None
        ends = prediction.timed.interval_s
        assert ends[0] == pytest.approx(light * chip.peak_clock_hz / chip.clock_hz)
    assert bool(trust["against"]) is (how != "data-sheet")
    assert HOW_CHECKED_WORDS[prediction.trust.checked].split(",")[0] in str(prediction)  # type: ignore[union-attr]


def test_a_file_of_ones_own_is_a_data_sheet(product: Program, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(OWN)
    assert predict(product, on=str(file)).to_json()["trust"]["checked"] == "data-sheet"


def test_less_checked_is_never_narrower() -> None:
    found = [widenings()[how] for how in HOW_CHECKED_WORDS]
    for better, worse in itertools.pairwise(found):
        assert all(a <= b for a, b in zip(better, worse, strict=True))
        assert min(better) >= 1


def test_intervals_widen_by_class_and_light_is_never_beaten(product: Program) -> None:
    for fidelity in ("analytical", "roofline"):
        options = Options(on="h200", fidelity=fidelity)
        prediction = untold(predict(product, options))
        cluster = resolve("h200")
        assert prediction.interval_s is not None
        unchecked = replace(cluster, device=replace(cluster.device, checked=load_device("mi300x").checked))
        wider = with_trust(prediction, unchecked, options).interval_s
        assert wider is not None
        low, high = widenings()["data-sheet"]
        low = 1.0 if fidelity == "roofline" else low
        assert wider == pytest.approx((prediction.interval_s[0] / low, prediction.interval_s[1] * high))


@pytest.mark.parametrize("plan", [None, "pp=2", "fsdp=2"])
def test_trust_and_what_is_asked_are_worked_out_once(plan: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **named: Any) -> Any:
            calls[name] += 1
            return function(*args, **named)

        return counting

    monkeypatch.setattr(run, "with_trust", counted("trust", with_trust))
    monkeypatch.setattr(pipeline_job, "with_trust", counted("trust", with_trust))
    monkeypatch.setattr(resolving, "asked_of", counted("asked", asked_of))
    monkeypatch.setattr(front, "with_levers", lambda question, again: question.prediction)
    settings = {"layers": "2", "batch": "4", "seq": "64"}
    prediction = predict("llama3-tiny", on="dgx-h100", plan=plan, settings=settings, levers=True)
    assert calls == {"trust": 1, "asked": 1}
    assert prediction.trust is not None


def test_steps_of_many_are_as_wide_as_what_was_seen_is_far() -> None:
    """A width of its own for software and for hardware that nobody published runs of, added up as independent errors are."""
    known, seen, unseen = trust_data()["many"], load_device("h100-sxm"), load_device("l40s")
    usual = math.exp(known["width"])
    assert width_of_many(seen, "nemo") == width_of_many(seen, None) == pytest.approx(known["width"])
    assert width_of_many(seen, "mine.toml") == pytest.approx(math.hypot(known["width"], known["stack"]))
    far = math.hypot(known["width"], known["stack"], known["hardware"])
    assert width_of_many(unseen, "mine.toml") == pytest.approx(far)
    assert width_of_many(seen, "nemo", ["experts"]) == pytest.approx(math.hypot(known["width"], known["experts"]))
    both = math.hypot(known["width"], known["experts"], known["context"])
    assert width_of_many(seen, "nemo", ["experts", "context"]) == pytest.approx(both)
    # Kernels as sure as those of runs do not count; twice as unsure ones count twice. The slowest of many is waited for.
    below, above = known["usual"]["gpu"]
    sure = interval_of_many(2.0, (1.99, 2.01), seen, "nemo", 8)
    assert sure == pytest.approx((2.0 / usual, 2.0 * usual * grown(8)))
    ends = 2.0 * math.exp(-2 * below), 2.0 * math.exp(2 * above)
    assert interval_of_many(2.0, ends, seen, "nemo", 8) == pytest.approx((2.0 / usual**2, 2.0 * usual**2 * grown(8)))


@pytest.mark.parametrize(
    ("model", "plan", "unlike"),
    [
        ("llama3-tiny", "fsdp=4", []),
        ("llama3-tiny", "fsdp=2,cp=2", ["context"]),
        ("mixtral-tiny", "fsdp=4", ["experts"]),
        ("mixtral-tiny", "ep=4", ["experts"]),
        ("mixtral-tiny-decode", "tp=4", ["experts"]),
    ],
)
def test_experts_and_shared_sequences_make_intervals_wider(model: str, plan: str, unlike: list[str]) -> None:
    length = "context" if model.endswith("-decode") else "seq"
    options = Options(on="dgx-h100", plan=plan, settings={"layers": "1", "batch": "8", length: "256"}, levers=False)
    prediction = predict(model, options)
    before = untold(prediction).interval_s
    assert before is not None
    assert prediction.step_time_s is not None
    device = resolve("dgx-h100").device
    assert prediction.interval_s == pytest.approx(
        interval_of_many(prediction.step_time_s, before, device, None, 4, unlike)
    )


@pytest.mark.parametrize("on", ["dgx-h100", "l40s", "tpu-v5e"])
def test_intervals_of_many_say_what_became_of_kernels_ends(on: str) -> None:
    options = Options(on=on, plan="fsdp=4", settings={"layers": "1", "batch": "8", "seq": "256"}, levers=False)
    prediction = predict("llama3-tiny", options)
    assert prediction.interval_s is not None
    assert prediction.step_time_s is not None
    low, high = prediction.interval_s
    assert low < prediction.step_time_s < high
    before = untold(prediction).interval_s
    assert before is not None
    known = interval_of_many(prediction.step_time_s, before, resolve(on).device, None, 4)
    assert prediction.interval_s == pytest.approx(known)


def test_intervals_grow_with_the_devices_that_wait_for_each_other() -> None:
    assert grown(1) == 1.0
    assert 1.0 < grown(2) < grown(8) < grown(16384) < 1.1


def test_assumptions_that_decide_are_warnings() -> None:
    settings = {"layers": "1", "batch": "8", "seq": "512"}
    said = predict("llama3-8b", on="l40s", plan="fsdp=8", settings=settings, levers=False).warnings
    assert any("peer-to-peer is off" in warning for warning in said)
    # Nothing is sent by a single card, and nobody is told about its links.
    alone = predict("llama3-tiny", on="l40s", levers=False).warnings
    assert not any("peer-to-peer" in warning for warning in alone)


def test_devices_of_one_comparison_are_timed_by_the_same_fidelity(product: Program) -> None:
    both = compare(product, on=["h200", "a100-sxm-80gb"], fidelities="auto")
    assert {cell.answered_by for cell in both.cells} == {"analytical"}
    assert "auto is analytical, the best that all of these devices have" in str(both)
    assert {cell.answered_by for cell in compare(product, on="h200", fidelities="auto").cells} == {"profiled"}


def test_the_best_fidelity_that_all_have() -> None:
    h200, a100, cpu = (load_device(name) for name in ("h200", "a100-sxm-80gb", "cpu-generic"))
    assert common_fidelity([h200, h200]) == "profiled"
    assert common_fidelity([h200, replace(a100, name="unmeasured")]) == "analytical"
    assert common_fidelity([h200, cpu]) == "roofline"


def test_energy_of_a_gpu_without_its_own_names_the_one_that_it_is_taken_from(product: Program) -> None:
    trust = predict(product, on="mi300x").trust
    assert trust is not None
    assert trust.energy == f"those of {CALIBRATED_DEVICE}, by clock"


def test_modelled_kernels_say_how_far_they_usually_are_from_the_compilers(product: Program) -> None:
    found = predict(product, on="h200", levers=False)
    assert found.trust is not None
    assert found.trust.lowering is not None
    told = found.to_json()["trust"]["lowering"]
    assert told["fix"] == "meshcast doctor --install gpu-compiler"
    assert told["source"].startswith("meshcast validate lowering ")
    assert all(0 < told[name] < 1 for name in ("kernels", "hbm_bytes", "peak_memory"))
    assert told["programs"] > 50
    assert "modelled kernels: usually off XLA's own by" in str(found)
    for on in ("tpu-v5e", "mi300x"):  # no such compiler is known for these
        other = predict(product, on=on, levers=False).trust
        assert other is not None
        assert other.lowering is None
