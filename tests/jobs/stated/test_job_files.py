"""Files of jobs: read with the line of every mistake, written as they are read, and asked like the row they come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import meshcast as mc
from meshcast.base.errors import InputError, MeshcastError
from meshcast.cli.app import app
from meshcast.evidence.validate.runs.rows import read_run_rows
from meshcast.jobs.stated.extras import Extras
from meshcast.jobs.stated.file import job_text, read_job
from meshcast.jobs.stated.run import StatedRun
from tests.evidence.validate.test_validate_runs import HEADER, ROWS

JOB = """\
schema = "meshcast.job/1"
name = "small"

[model]
name = "llama-9"
layers = 2
hidden = 256
ffn = 512
heads = 4
kv_heads = 4
vocab = 1024
seq = 256

[plan]
gbs = 16
mbs = 2
fsdp = 8
precision = "bf16"
recompute = "full"

[cluster]
device = "h100-sxm"
devices = 8

[software]
framework = "maxtext"
"""
RUN = StatedRun(
    device="a100-sxm-40gb",
    devices=16,
    model="mixtral-8x7b",
    device_note="400 W",
    devices_per_host=8,
    scale_up="nvlink3-nvswitch",
    scale_out="roce",
    gbit_per_device=200.0,
    slices=1,
    counts={"layers": 4, "seq": 2048, "gbs": 16, "shared_experts": 0},
    degrees={"dp": 1, "fsdp": 16, "sp": 0},
    mbs=0.5,
    precision="fp8-tensor",
    zero=3,
    recompute="policy:save:q+k",
    attention="cudnn",
    framework="torchtitan",
    framework_version='9dec370 "torch"',
    flags={"compiled": True, "gated_ffn": False},
    overlap="",
    extra=Extras.read("mla:kv_lora=512;dropless"),
)


def written(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text)
    return path


def invoke(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(words))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    text = job_text(RUN, name="mine", notes=("two\nlines",))
    assert text.startswith("# two lines\nschema")
    assert read_job(written(tmp_path, text))[0] == RUN


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("fsdp = 8", "fdsp = 8", 17, "unknown key 'plan.fdsp', did you mean 'plan.fsdp'?"),
        ("layers = 2", 'layers = "two"', 6, "model.layers: expected a whole number of at least 1, got 'two'"),
        ("mbs = 2", 'mbs = "2"', 16, "plan.mbs: expected a number of more than zero, without a unit, got '2'"),
        ("mbs = 2", "mbs = 3", 15, "gbs=16 is no multiple of mbs=3 x 8 ranks"),
        ('"maxtext"', '"maxtex"', 26, "software.framework: no 'maxtex' is known, did you mean 'maxtext'?"),
        ('"full"', '"policy:everything"', 19, "plan.recompute: nothing is known as 'policy:everything'"),
        ('"h100-sxm"', '"h100-smx"', 22, "did you mean 'h100-sxm'?"),
        ('device = "h100-sxm"\n', "", 21, "a device of the catalogue (device) or a cluster (on) is needed"),
        ("heads = 4\nkv_heads", "kv_heads", 5, "the model's heads"),
        ("devices = 8", "devices = 8\nscale_out = \"infinibad-ndr\"", 24, "did you mean 'infiniband'?"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int, says: str) -> None:
    assert old in JOB
    path = written(tmp_path, JOB.replace(old, new))
    with pytest.raises(InputError) as caught:
        mc.predict(path)
    assert caught.value.where == f"{path}:{line}"
    assert says in caught.value.message


def test_another_schema_is_no_job(tmp_path: Path) -> None:
    path = written(tmp_path, JOB.replace("meshcast.job/1", "meshcast.job/2"))
    with pytest.raises(InputError, match=r"schema: expected one of meshcast\.job/1"):
        mc.predict(path)
    with pytest.raises(InputError, match=r"a \.toml target is a pipeline or a job"):
        mc.predict(written(tmp_path, JOB.replace("meshcast.job/1", "meshcast.jub/1")))


def test_the_file_of_a_row_answers_as_the_row_does(tmp_path: Path) -> None:
    runs = tmp_path / "runs.csv"
    runs.write_text("\n".join([HEADER, *ROWS]) + "\n")
    code, out, told = invoke("validate", "runs", str(runs), "--job-files", str(tmp_path / "jobs"), "--json")
    assert code == 0
    assert "no file was written for 1 of 4 rows, which lack something: two-2" in told
    *lines, _ = map(json.loads, out.splitlines())
    assert lines[3]["job"] is None
    for line in lines[:2]:
        assert line["command"] == f"meshcast predict {line['job']}"
        code, answer, _ = invoke("predict", line["job"], "--json")
        assert (code, json.loads(answer)["step_time_s"]) == (0, line["predicted"])
    row = read_run_rows(runs)[0]
    assert read_job(tmp_path / "jobs" / "one-1.toml")[0] == row.run


def test_what_is_asked_for_expressly_goes_before_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, JOB)
    own = mc.predict(path)
    other = mc.predict(path, on="dgx-a100", plan="dp=8,mbs=2", stack="xla", settings={"batch": "32"})
    assert own.inputs is not None
    assert other.inputs is not None
    assert (own.inputs.values["stack"], own.inputs.values["fsdp"], own.inputs.values["batch"]) == ("maxtext", 8, 16)
    assert (other.inputs.values["stack"], other.inputs.values["dp"], other.inputs.values["batch"]) == ("xla", 8, 32)
    assert other.inputs.values["on"] == "dgx-a100"


def test_what_is_taken_for_granted_is_a_warning(tmp_path: Path) -> None:
    found = mc.predict(written(tmp_path, JOB))
    assert any("job.toml does not say" in each and "layers as in llama3-8b" in each for each in found.warnings)


def test_a_cluster_by_its_name_and_the_overlap_of_one_s_own(tmp_path: Path) -> None:
    named = JOB.replace('device = "h100-sxm"', 'on = "dgx-h200"') + 'overlap = ""\n'
    found = mc.predict(written(tmp_path, named))
    assert found.inputs is not None
    assert (found.inputs.values["on"], found.inputs.values["overlap"]) == ("dgx-h200", "")


def test_recomputation_is_the_least_that_fits_where_the_file_does_not_say(tmp_path: Path) -> None:
    path = written(tmp_path, JOB.replace('recompute = "full"\n', "").replace('"maxtext"', '"megatron-core"'))
    found = mc.predict(path)
    assert found.inputs is not None
    assert found.inputs.values["remat"] == "none"


def test_other_verbs_take_it_too(tmp_path: Path) -> None:
    path = str(written(tmp_path, JOB))
    code, out, _ = invoke("show", path, "--json")
    assert code == 0
    assert json.loads(out)
    code, out, _ = invoke(
        "compare", path, "--on", "h100-sxm,a100-sxm-80gb", "--fidelity", "analytical", "--no-folder", "--json"
    )
    assert code == 0
    cells = [json.loads(line) for line in out.splitlines()][:-1]
    assert len({cell["step_time_s"] for cell in cells}) == len(cells) == 2
    assert cells[0]["step_time_s"] == mc.predict(path).step_time_s
    code, _, _ = invoke("trace", path, "--format", "perfetto", "-o", str(tmp_path / "trace.json"))
    assert code == 0
    assert (tmp_path / "trace.json").stat().st_size > 0


def test_a_job_has_no_program_of_its_own_to_load(tmp_path: Path) -> None:
    with pytest.raises(MeshcastError):
        mc.load(str(written(tmp_path, JOB)))
