"""Pictures of `--plot`: there whole, with what they should show; refused before anything is worked out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshcast.base import UnsupportedError, UsageError
from meshcast.explore import Accounts, Exploration, Found, Outcome, Point, Tally, objective_named
from meshcast.explore.measures import Known
from meshcast.report import check_plot, save_figure, search_figure
from meshcast.report.plots.of_search import scaling
from tests.documentation.command_line import exit_code

ROOT = Path(__file__).resolve().parents[3]
matplotlib = pytest.importorskip("matplotlib", reason="the extra plots is not installed")


def _found(number: int, devices: int, seconds: float) -> Found:
    parts = {"compute": 0.75 * seconds, "exposed_communication": 0.25 * seconds}
    outcome = Outcome(
        status="answered", step_time_s=seconds, units_per_s=100 / seconds, unit="tokens", devices=devices,
        memory_bytes=devices, capacity_bytes=16, breakdown_s=parts,
    )  # fmt: skip
    point = Point(number=number, target="m", asked={"plan": f"dp={devices}"})
    known = Known(devices=devices, units=100, capacity_bytes=16, price=None)
    return Found(point=point, outcome=outcome, known=known, values={"devices": devices}, allowed=True)


def _exploration(objectives: tuple[str, ...], per: tuple[str, ...] = ()) -> Exploration:
    found = (_found(0, 1, 1.0), _found(1, 2, 0.6), _found(2, 2, 0.5), _found(3, 4, 0.4))
    wanted = tuple(map(objective_named, objectives))
    return Exploration(found=found, tally=Tally(), objectives=wanted, per=per, accounts=Accounts())


def test_a_prediction_is_drawn_with_its_roofs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "step.svg"
    tanh = ROOT / "tests" / "fixtures" / "tanh.mlir"
    words = ["meshcast", "predict", str(tanh), "--on", "h200", "--levers", "none", "--plot", str(out)]
    assert exit_code(words) == 0
    assert "step time" in capsys.readouterr().out
    drawn = out.read_text(encoding="utf-8")
    for text in ("FLOPs per byte of memory", "seconds of a step", "tanh on 1 x h200", "memory 4.8 TB/s", "s, 0.0 %"):
        assert text in drawn


def test_a_scaling_curve_has_the_best_plan_of_each_number(tmp_path: Path) -> None:
    found = _exploration(("time",), per=("devices",))
    assert scaling(found.allowed) == [(1, 100.0), (2, 200.0), (4, 250.0)]
    figure = search_figure(found, title="plans")
    save_figure(figure, tmp_path / "scaling.svg")
    drawn = (tmp_path / "scaling.svg").read_text(encoding="utf-8")
    assert "as much a device as with 1" in drawn
    assert "4 devices: dp=4" in drawn
    assert "times 10" not in drawn  # 2 x 10^2 is 200


def test_two_objectives_are_drawn_as_their_front(tmp_path: Path) -> None:
    figure = search_figure(_exploration(("time", "memory")), title="plans")
    line = figure.axes[0].lines[0]
    assert list(line.get_ydata()) == [1.0, 0.5, 0.4], "the point with 0.6 s has a better one with as much memory"
    save_figure(figure, tmp_path / "front.png")
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")


def test_points_that_differ_in_settings_alone_have_bars_and_names_of_their_own(tmp_path: Path) -> None:
    same = [
        replace(_found(number, 8, seconds), values={"set.batch": batch, "on": "dgx-h100"})
        for number, seconds, batch in ((0, 0.4, 64), (1, 0.2, 32), (2, 0.3, 32))
    ]
    wanted = tuple(map(objective_named, ("time", "memory")))
    figure = search_figure(Exploration(found=tuple(same), tally=Tally(), objectives=wanted), title="plans")
    names = [label.get_text() for label in figure.axes[-1].get_yticklabels()]
    assert names == ["dp=8\nbatch=32 (1)", "dp=8\nbatch=32 (2)", "dp=8\nbatch=64"]
    widths = [round(bar.get_width(), 3) for bar in figure.axes[-1].containers[0]]
    assert widths == [0.15, 0.225, 0.3]
    save_figure(figure, tmp_path / "front.svg")
    drawn = (tmp_path / "front.svg").read_text(encoding="utf-8")
    assert "times 10" not in drawn  # 3 x 10^-1 is 300 ms
    assert "200 ms" in drawn


def test_a_comparison_is_drawn_with_its_intervals_and_parts(tmp_path: Path) -> None:
    out = tmp_path / "both.svg"
    tanh = ROOT / "tests" / "fixtures" / "tanh.mlir"
    words = [
        "meshcast",
        "compare",
        str(tanh),
        "--on",
        "h200,tpu-v5p",
        "--fidelity",
        "roofline,analytical",
        "--no-folder",
    ]
    assert exit_code([*words, "--plot", str(out)]) == 0
    drawn = out.read_text(encoding="utf-8")
    for text in ("h200", "tpu-v5p", "roofline", "seconds of a step, with their intervals", "by the finest fidelity"):
        assert text in drawn
    assert exit_code([*words, "--plot", str(tmp_path / "both.gif")]) == 2


def test_what_cannot_be_drawn_is_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"neither \.svg nor \.png"):
        check_plot(tmp_path / "step.pdf")
    (tmp_path / "taken.svg").mkdir()
    with pytest.raises(UsageError):
        check_plot(tmp_path / "taken.svg")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UnsupportedError, match="matplotlib") as caught:
        check_plot(tmp_path / "step.svg")
    assert "[plots]" in (caught.value.fix or "")
