"""Programs that reports are made of, once for all tests, and the system's Chromium to open them with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from meshcast.evidence.comparison import compare
from meshcast.jobs import predict_with_job
from meshcast.options import Options
from meshcast.report import ReportData, Subject, prediction_data, report_page, subject_of

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
# Two products and an exponential between them, whose names would be markup if they could.
PROGRAM = f"""
module @"{HOSTILE}" {{
  func.func public @main(%a: tensor<512x512xbf16> loc("{HOSTILE}"), %b: tensor<512x512xbf16>) -> tensor<512x512xbf16> {{
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<512x512xbf16>, tensor<512x512xbf16>) -> tensor<512x512xbf16> loc("first {HOSTILE}"("{HOSTILE}.py":12:3))
    %1 = stablehlo.exponential %0 : tensor<512x512xbf16> loc("second")
    %2 = stablehlo.dot_general %1, %b, contracting_dims = [1] x [0]
      : (tensor<512x512xbf16>, tensor<512x512xbf16>) -> tensor<512x512xbf16> loc("third"("model.py":40:3))
    return %2 : tensor<512x512xbf16>
  }}
}}
"""
TINY = {"batch": "8", "seq": "64"}


def asked(target: Any, **options: Any) -> Subject:
    """What a report of a target is made of; kernels are modelled, so that no compiler is needed."""
    return subject_of(*predict_with_job(target, Options(lowering="modelled", **options)))


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("programs") / "<b>step<b>.mlir"
    path.write_text(PROGRAM)
    return path


@pytest.fixture(scope="session")
def single(program: Path) -> Subject:
    return asked(program, on="h200", levers=2)


@pytest.fixture(scope="session")
def sharded() -> Subject:
    return asked("llama3-tiny", on="dgx-h100", plan="fsdp=2", settings=TINY)


@pytest.fixture(scope="session")
def staged() -> Subject:
    return asked("llama3-tiny", on="dgx-h100", plan="pp=2,tp=2,mbs=2", settings=TINY)


@pytest.fixture(scope="session")
def single_data(single: Subject) -> ReportData:
    return prediction_data(single)


@dataclass(kw_only=True)
class Opened:
    """A report in a browser, and what went wrong there."""

    page: Any
    wrong: list[str] = field(default_factory=list)

    def number(self, selector: str) -> float:
        """The exact value behind a number of the page."""
        return float(self.page.locator(selector).first.get_attribute("data-value"))


Open = Callable[..., Opened]


@pytest.fixture
def open_report(browser: Any, tmp_path: Path) -> Iterator[Open]:
    contexts = []

    def opened(data: ReportData, *, width: int = 1440, scheme: str = "light", offline: bool = True) -> Opened:
        file = tmp_path / "report.html"
        file.write_text(report_page(data), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=offline)
        contexts.append(context)
        made = Opened(page=context.new_page())
        made.page.on(
            "console", lambda said: made.wrong.append(said.text) if said.type in ("error", "warning") else None
        )
        made.page.on("pageerror", lambda error: made.wrong.append(str(error)))
        made.page.on("requestfailed", lambda request: made.wrong.append(request.url))
        made.page.on("dialog", lambda dialog: made.wrong.append(f"a dialog: {dialog.message}"))
        made.page.goto(file.as_uri())
        return made

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of a search, as `explore` writes it."""
    folder = tmp_path_factory.mktemp("explored")
    lines, rows = [], []
    for number in range(6):
        point = {"number": number, "target": "model", "asked": {"plan": f"plan-{number}", "settings": {"batch": "8"}}}
        step, share = 1.0 + number, 0.9 - 0.1 * number
        outcome = {
            "status": "answered", "step_time_s": step, "units_per_s": 8 / step, "unit": "tokens", "mfu": 0.5 / step,
            "devices": 8, "device": "h200", "memory_bytes": share * 100, "capacity_bytes": 100, "energy_j": 5.0 * step,
        }  # fmt: skip
        lines.append(json.dumps({"point": point, "outcome": outcome}))
        rows.append({"number": number, "target": "model", "plan": f"plan-{number}", "step_time_s": step})
    (folder / "points.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "environment.json").write_text(json.dumps({"command": ["/somewhere/meshcast", "explore", "space.toml"]}))
    (folder / "space.toml").write_text("model = '<b>'\n")
    summary = {
        "space": 9,
        "evaluated": 6,
        "left_out": 3,
        "objectives": ["time", "memory"],
        "best": rows[:1],
        "pareto": rows[:3],
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


@pytest.fixture(scope="session")
def priced(explored: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search for cost, in which two points differ in a setting alone; prices are told by its summary."""
    made = tmp_path_factory.mktemp("searched") / "priced"
    shutil.copytree(explored, made)
    lines = [json.loads(line) for line in (made / "points.jsonl").read_text().splitlines()]
    for number, line in enumerate(lines):
        line["point"]["asked"] = {"plan": "fsdp=8", "on": "dgx-h200", "settings": {"batch": str(8 << number)}}
        line["outcome"] |= {"units_per_s": 100.0 * (number + 1), "mfu": 0.2 * (number + 1)}
    (made / "points.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = json.loads((made / "summary.json").read_text())
    accounts = {"tokens": None, "prices": {"h200": {"usd_per_hour": 3.6, "said": "ours"}}, "kg_per_kwh": None}
    summary |= {"objectives": ["cost", "time"], "accounts": accounts, "best": [{"number": 5}], "pareto": []}
    (made / "summary.json").write_text(json.dumps(summary))
    return made


@pytest.fixture(scope="session")
def compared(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of a comparison."""
    folder = tmp_path_factory.mktemp("compared") / "both"
    compare(
        str(program), on=["h200", "a100-sxm-80gb"], fidelities=["roofline", "analytical"], folder=folder,
        options=Options(lowering="modelled"),
    )  # fmt: skip
    return folder
