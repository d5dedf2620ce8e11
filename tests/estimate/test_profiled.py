"""Measured kernels from their file to a prediction: fitting, keeping, devices that match and those that do not."""

from __future__ import annotations

import dataclasses
import gzip
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshcast import Options, predict
from meshcast.base.errors import InputError, UnsupportedError, UsageError
from meshcast.estimate import Origin
from meshcast.estimate.gpu import GpuAnalytical
from meshcast.estimate.measurements import silicon
from meshcast.estimate.measurements.file import ProfileHeader, write_rows
from meshcast.estimate.measurements.kernels import kernel_to_json
from meshcast.estimate.profiled import Interpolator, InterpolatorRow, Profiled, build_interpolator, sources
from meshcast.estimate.profiled.interpolator import load, reference_digest, shipped
from meshcast.estimate.profiled.reference import FixedCost
from meshcast.estimate.profiled.silicon import silicon_rows
from meshcast.estimate.profiled.sources import digested_files, given_kernels, measured_kernels, why_not_measured
from meshcast.hardware import Device, load_device
from meshcast.lower import Kernel
from tests.estimate.conformance import check_conformance, gemm, pass_over
from tests.estimate.measurements.silicon_layout import ATTENTION, GEMM, attention_row, gemm_row
from tests.estimate.measurements.silicon_layout import write as write_table

H200, CPU = load_device("h200"), load_device("cpu-generic")
SIZES = [2**n for n in range(16, 31)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    measured_kernels.cache_clear()


def slowed_rows(device: Device, factor: float, kernels: Sequence[Kernel]) -> list[InterpolatorRow]:
    """Kernels that took `factor` times what the analytical model says."""
    times = GpuAnalytical().estimate(kernels, device).time
    return [
        InterpolatorRow(kernel=k, seconds=factor * float(t), program=str(i))
        for i, (k, t) in enumerate(zip(kernels, times, strict=True))
    ]


def profile_file(path: Path, rows: Sequence[InterpolatorRow], device: str = "h200", backend: str = "gpu") -> Path:
    """A profile with times beside kernels."""
    header = ProfileHeader(device=device, kind=device, backend=backend, suite=1, jax="0", jaxlib="0")
    write_rows(
        path,
        header,
        [
            {"id": r.program, "family": "rows", "busy_us": r.seconds * 1e6,
             "paired": [[kernel_to_json(r.kernel), r.seconds * 1e6]]}
            for r in rows
        ],
    )  # fmt: skip
    return path


def adds() -> list[Kernel]:
    return [pass_over(n, n // 2, vector=n / 8) for n in SIZES]


def test_the_reference_elsewhere_is_light_and_a_fixed_cost() -> None:
    kernel = pass_over(2**30, 2**30)
    assert FixedCost(3e-6).estimate([kernel], CPU).time[0] == pytest.approx(2**31 / 307e9 + 3e-6)


def test_what_is_twice_as_slow_is_predicted_so() -> None:
    known = build_interpolator(slowed_rows(H200, 2.0, adds()), H200)
    profiled = Profiled(lambda device: known)
    between = pass_over(3 * 2**20, 3 * 2**19, vector=3 * 2**17)
    answers, reference = (e.estimate([adds()[5], between], H200) for e in (profiled, GpuAnalytical()))
    assert answers.time == pytest.approx(2.0 * reference.time, rel=0.02)
    assert answers.origin == (Origin.MEASURED, Origin.INTERPOLATED)
    assert np.all(answers.low <= answers.time)
    check_conformance(profiled, H200)


def test_a_cpu_is_interpolated_without_the_gpus_model(tmp_path: Path) -> None:
    """Each pass takes 20 us and its bytes at a fifth of the file's bandwidth."""
    rows = [
        InterpolatorRow(kernel=k, seconds=2e-5 + 5 * (k.read_bytes + k.written_bytes) / 307e9, program=str(n))
        for n, k in enumerate(adds())
    ]
    known = build_interpolator(rows, CPU)
    assert known.fixed_s == pytest.approx(float(np.quantile([row.seconds for row in rows], 0.05)))
    again = load(known.to_bytes(), "here")
    assert again.fixed_s == known.fixed_s
    found = Profiled(lambda device: again).estimate([row.kernel for row in rows], CPU).time
    assert found == pytest.approx([row.seconds for row in rows], rel=0.35)
    check_conformance(Profiled(lambda device: again), CPU)


def test_nothing_is_measured_of_most_devices() -> None:
    assert Profiled().supports(gemm(8, 8, 8), load_device("tpu-v5e")).level == "no"
    assert Profiled().estimate([], load_device("tpu-v5e")).time.shape == (0,)


def test_a_profile_is_fitted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = profile_file(tmp_path / "mine.profile.jsonl.gz", slowed_rows(H200, 1.5, adds()))
    first = given_kernels(path, H200)
    assert first.notes == ()
    assert {name: len(family) for name, family in first.interpolator.families.items()} == {
        "loop-fusion alone": len(SIZES)
    }

    def refuse(*_: object) -> Interpolator:
        raise AssertionError("fitted twice")

    monkeypatch.setattr(sources, "build_interpolator", refuse)
    sources._given.cache_clear()
    again = given_kernels(path, H200).interpolator
    assert again.families["loop-fusion alone"].y == pytest.approx(
        first.interpolator.families["loop-fusion alone"].y, abs=1e-6
    )
    (kept,) = (tmp_path / "cache" / "meshcast" / "profiled").iterdir()
    kept.write_bytes(b"damaged")
    sources._given.cache_clear()
    with pytest.raises(AssertionError, match="twice"):
        given_kernels(path, H200)


def test_another_devices_profile_is_refused(tmp_path: Path) -> None:
    path = profile_file(tmp_path / "mine.profile.jsonl.gz", slowed_rows(H200, 1.5, adds()))
    with pytest.raises(UsageError, match="measured on h200, not on h100-sxm"):
        given_kernels(path, load_device("h100-sxm"))
    known = tmp_path / "mine.npz"
    build_interpolator(slowed_rows(H200, 1.5, adds()), H200).save(known)
    with pytest.raises(UsageError, match="measured on h200, not on a100-sxm-80gb"):
        given_kernels(known, load_device("a100-sxm-80gb"))


def test_a_what_if_device_keeps_what_was_measured_on_its_base(tmp_path: Path) -> None:
    (tmp_path / "wide.toml").write_text(
        'schema = "meshcast.device/1"\nname = "wide"\nbase = "h200"\n'
        '[memory]\nbandwidth = { value = "9.6 TB/s", source = "idea" }\n[sources.idea]\ntitle = "What if"\n'
    )
    wide = load_device(tmp_path / "wide.toml")
    assert wide.bases == ("h200", "h100-sxm")
    older = profile_file(tmp_path / "older.profile.jsonl.gz", slowed_rows(H200, 1.5, adds()), device="h100-sxm")
    for device in (wide, H200):
        with pytest.raises(UsageError, match="measured on h100-sxm"):  # another product, not a what-if
            given_kernels(older, device)
    for name in ("mine.profile.jsonl.gz", "mine.npz"):
        path = tmp_path / name
        rows = slowed_rows(H200, 1.5, adds())
        profile_file(path, rows) if name.endswith("gz") else build_interpolator(rows, H200).save(path)
        found = given_kernels(path, wide)
        assert "which wide starts from" in found.notes[0]
        assert len(found.notes) == 1
        assert found.interpolator.device == "h200"


def test_an_outdated_file_says_so(tmp_path: Path) -> None:
    known = build_interpolator(slowed_rows(H200, 1.5, adds()), H200)
    dataclasses.replace(known, reference="older").save(tmp_path / "old.npz")
    assert "collect it again" in given_kernels(tmp_path / "old.npz", H200).notes[0]


@pytest.mark.parametrize(
    "data", [b"", b"PK\x03\x04 no archive", gzip.compress(b'{"schema": "other"}\n', mtime=0), b"{}\n"]
)
def test_files_that_are_neither(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "some.npz"
    path.write_bytes(data)
    with pytest.raises(InputError):
        given_kernels(path, H200)
    with pytest.raises(InputError, match="cannot be read"):
        given_kernels(tmp_path / "absent.npz", H200)


def test_a_profile_without_times_of_kernels(tmp_path: Path) -> None:
    header = ProfileHeader(device="h200", kind="h200", backend="gpu", suite=1, jax="0", jaxlib="0")
    path = tmp_path / "old.profile.jsonl"
    write_rows(path, header, [{"id": "a", "family": "rows", "busy_us": 1.0}])
    with pytest.raises(InputError, match="none of the 1 probes") as raised:
        given_kernels(path, H200)
    assert "--relower" in str(raised.value)
    assert str(path) in str(raised.value)


def test_the_shipped_kernels_go_with_the_shipped_model() -> None:
    known = shipped("h200")
    assert known is not None
    assert known.reference == reference_digest(H200)


FUNCTION = """\
func.func public @main(%a: tensor<1048576xf32>, %b: tensor<1048576xf32>) -> tensor<1048576xf32> {
  %0 = stablehlo.add %a, %b : tensor<1048576xf32>
  return %0 : tensor<1048576xf32>
}
"""


class TestPrediction:
    def add(self, tmp_path: Path, **options: Any) -> float:
        target = tmp_path / "add.mlir"
        target.write_text(FUNCTION)
        step = predict(target, Options(clocks="burst", lowering="modelled", levers=False, **options)).step_time_s
        assert step is not None
        return step

    def test_a_profile_replaces_the_shipped_one(self, tmp_path: Path) -> None:
        path = profile_file(tmp_path / "slow.profile.jsonl.gz", slowed_rows(H200, 3.0, adds()))
        analytical = self.add(tmp_path, on="h200", fidelity="analytical")
        assert self.add(tmp_path, on="h200", profile=path) == pytest.approx(3 * analytical, rel=0.1)
        assert self.add(tmp_path, on="h200", fidelity="profiled", profile=str(path)) > 2 * analytical

    def test_other_fidelities_do_not_look_at_it(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="does not look at measured kernels"):
            self.add(tmp_path, on="h200", fidelity="roofline", profile="any.npz")

    def test_nothing_measured_is_said(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(silicon, "installed", lambda: False)
        with pytest.raises(UnsupportedError, match="nothing was measured on mi300x") as raised:
            self.add(tmp_path, on="mi300x", fidelity="profiled")
        assert "--profile" in str(raised.value)
        assert "silicon" in str(why_not_measured(Device.load("h100-sxm")))

    def test_what_was_measured_on_a_sibling_is_carried_over(self, tmp_path: Path) -> None:
        """With the reference model of the device itself, a wider interval, and never as measured; `auto` has no part in it."""
        path = tmp_path / "add.mlir"
        path.write_text(FUNCTION)
        options = Options(on="h100-sxm", fidelity="profiled", lowering="modelled", levers=False)
        carried, own = predict(path, options), predict(path, options.having(on="h200"))
        assert carried.provenance.extrapolated == pytest.approx(1.0)
        assert any("carried over from h200" in note for note in carried.warnings)
        assert carried.step_time_s is not None
        assert own.step_time_s is not None
        assert carried.interval_s
        assert own.interval_s
        spans = [math.log(each.interval_s[1] / each.interval_s[0]) for each in (carried, own) if each.interval_s]
        assert spans[0] > spans[1]
        assert predict(path, options.having(fidelity="auto")).provenance.extrapolated == 0


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Silicon tables of an H100: products of a few sizes and some attention calls, which are no rows."""
    root = tmp_path / "data"
    sizes = [256, 512, 1024, 2048, 4096]
    products = [gemm_row("bfloat16", m, n, 4096, 0.01 + m * n * 4096 * 4e-12) for m in sizes for n in sizes]
    write_table(root / "h100_sxm/gemm/trtllm/1.0.0/gemm_perf.csv", GEMM, products)
    calls = [attention_row(), attention_row(isl=64, latency=0.02)]
    write_table(root / "h100_sxm/attention/sglang/0.5.0/context_attention_perf.csv", ATTENTION, calls)
    write_table(
        root / "h100_sxm/attention/sglang/0.5.0/generation_attention_perf.csv",
        ATTENTION,
        [attention_row(isl=1, step=4095)],
    )
    monkeypatch.setattr(silicon, "installed", lambda: True)
    monkeypatch.setattr(silicon, "package_folder", lambda: root)
    monkeypatch.setattr("meshcast.estimate.profiled.sources.metadata.version", lambda name: "0.12.0")
    measured_kernels.cache_clear()
    yield root
    measured_kernels.cache_clear()  # or later tests would find these tables installed


class TestSilicon:
    def test_rows_are_products_without_gaps(self, tables: Path) -> None:
        device = load_device("h100-sxm")
        rows = silicon_rows(device)
        gap = GpuAnalytical().estimate([], device).gap
        assert len(rows) == 25
        smallest = min(rows, key=lambda row: row.seconds)
        assert smallest.seconds == pytest.approx((0.01 + 256 * 256 * 4096 * 4e-12) * 1e-3 - gap, rel=0.01)

    def test_they_stand_in_where_nothing_is_shipped(self, tables: Path, tmp_path: Path) -> None:
        device = load_device("h100-sxm")
        found = measured_kernels(device)
        assert found is not None
        assert set(found.families) == {"gemm 16-bit"}
        assert found.sources == ("aiconfigurator-core 0.12.0",)
        assert Profiled().supports(gemm(512, 512, 4096), device).level == "yes"
        assert Profiled().supports(pass_over(8, 8), device).level == "no"
        assert len(list((tmp_path / "cache" / "meshcast" / "profiled").iterdir())) == 1
        assert measured_kernels(load_device("mi300x")) is None


def test_what_was_fitted_is_made_again_when_models_or_their_parameters_change() -> None:
    """Products on TPUs are put in relation to its model, whose numbers are data."""
    names = {"/".join(str(file).split("/")[-2:]) for file in digested_files()}
    assert names >= {"tpu/matrix.py", "gpu/gemm.py", "data/tpu.toml", "data/gpu.toml", "profiled/sources.py"}
    assert names >= {"estimate/products.py", "fusion/backward_sweep.py", "measurements/profile.py"}
