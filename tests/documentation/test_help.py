"""The examples at the end of every `--help` are run, each as it stands there, on models and counts that are quick."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meshcast.cli.examples import EXAMPLES
from tests.documentation.command_line import exit_code
from tests.documentation.running import lacks_an_extra, words_of
from tests.documentation.workspace import write_workspace
from tests.evidence.calibrate.small_cpu import measure_little

# What is smaller here: models, devices, batches and lengths, rows and nodes. The examples stay what they are.
SMALLER = (
    (r"llama3-8b", "llama3-tiny"), (r"fsdp=(64|8)", "fsdp=2"), (r"tp=8", "tp=2"), (r"batch=\d+", "batch=2"),
    (r"seq=\d+", "seq=64"), (r"(plan .*)--devices 64", r"\1--devices 2"), (r"--devices 8,16,32", "--devices 1,2"),
    (r"--nodes 2000", "--nodes 60"), (r"--batch 65536", "--batch 512"),
    (r"--jobs 2", "--jobs 1"), (r"--sample 100", "--sample 2"),
    (r"mlperf-dcnv2 --on dgx-h100 --devices 8", "tables.csv --on dgx-h100 --devices 2"),
    (r"--suite suite", "--suite suite --count 1"),
    (r"^(meshcast plan .*)$", r"\1 --plan remat=full,tp=1,pp=1,mbs=1 --engine in-process --fidelity roofline"),
    (r"^(meshcast explore .*)$", r"\1 --engine in-process"), (r"^(meshcast (predict|report) .*)$", r"\1 --lowering modelled"),
)  # fmt: skip
# The reader's own measurements, by the kind that a verb takes.
GROUND_TRUTH = "../shared/groundtruth"
MEASURED = {
    "validate ops": "tpu_ops.csv", "validate runs": "runs.csv", "validate plans": "plans.csv", "validate": "runs.csv",
    "validate collectives": "collectives.csv", "validate astra": "astra_sim_reference.csv",
}  # fmt: skip
FOLDERS = {"validate torch": "data/measured/h200-torch-models"}
# Not run here, each with the test that does what it would.
ELSEWHERE = {
    "meshcast serve": "serves until it is ended: tests/serve/test_browser.py starts it",
    "meshcast doctor --install": "fetches packages: tests/estimate/outside runs what it installs",
    "meshcast validate sets": "minutes of predictions: tests/evidence/validate/test_validate_sets.py judges small ones",
    "meshcast validate generated": "minutes of predictions: tests/cli/test_generate.py evaluates small graphs",
}
PLANS = """id,device,devices,model,step_time_s,seq,gbs,mbs,tp,dp,recompute,grade
a,h100-sxm,2,gpt2-tiny,0.002,64,4,1,1,2,full,A
b,h100-sxm,2,gpt2-tiny,0.003,64,4,1,2,1,full,A
"""
SPACE = """schema = "meshcast.space/1"
model = "gpt2-tiny"
on = "dgx-h100"
devices = [1, 2]
[set]
batch = 4
seq = 64
[plan]
remat = "full"
tp = 1
pp = 1
mbs = 1
[options]
fidelity = "roofline"
"""


def smaller(verb: str, line: str) -> str:
    """The command of an example, with less to do."""
    for pattern, replacement in SMALLER:
        line = re.sub(pattern, replacement, line)
    line = line.replace("FILE.csv", f"{GROUND_TRUTH}/{MEASURED.get(verb, 'runs.csv')}")
    return line.replace(" DIR", f" {FOLDERS.get(verb, f'{GROUND_TRUTH}/h200')}")


@pytest.mark.parametrize("verb", [verb for verb in EXAMPLES if not verb.startswith(tuple(
    name.removeprefix("meshcast ") for name in ELSEWHERE if name.count(" ") == 1
))])  # fmt: skip
def test_the_examples_of_help_run(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(write_workspace(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    measure_little(monkeypatch)
    Path("space.toml").write_text(SPACE)
    Path(GROUND_TRUTH, "plans.csv").write_text(PLANS)
    Path("tables.csv").write_text("name,rows,dim\na,1000,16\nb,20000,16\n")
    lines = [line for line in EXAMPLES[verb] if not line.startswith(tuple(ELSEWHERE))]
    if any("linked/job" in line for line in lines):
        lines.insert(0, EXAMPLES["trace link"][0])
    for line in lines:
        command, _, into = smaller(verb, line).partition(" > ")
        code = exit_code(words_of(command))
        out, err = capfd.readouterr()
        assert "Traceback" not in err, f"{line}\n{err}"
        if code == 4 and lacks_an_extra(err):
            continue
        assert code == 0, f"{line}\n{command}\nexit code {code}\n{err}"
        assert out.strip() or into, f"{line} says nothing"


def test_what_is_run_elsewhere_is_an_example() -> None:
    lines = [line for lines in EXAMPLES.values() for line in lines]
    for name, reason in ELSEWHERE.items():
        assert any(line.startswith(name) for line in lines), name
        for place in re.findall(r"tests/[\w/.]+", reason):
            assert (Path(__file__).parents[2] / place.rstrip(".")).exists(), place
