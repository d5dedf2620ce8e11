"""Files of jobs: read with the line of every mistake, written as they are read, and asked like the row they come from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import meshcast as mc
from meshcast.base.errors import InputError, MeshcastError, UsageError
from meshcast.cli.app import app
from meshcast.evidence.validate.runs.rows import read_run_rows
from meshcast.jobs.stated.extras import Extras
from meshcast.jobs.stated.file import job_text, read_job
from meshcast.jobs.stated.run import StatedRun
from meshcast.jobs.stated.target import run_target
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
        ("devices = 8", 'devices = 8\nscale_up = "foo-8"', 24, "cluster.scale_up: no 'foo-8' is known"),
        ("gbs = 16", "gbs = 9999999999", 15, "at least 1, up to 2,147,483,648, got 9999999999"),
        ("[plan]", "[[plan]]", 14, "plan: expected one table, got a list of them: write [plan], not [[plan]]"),
        ("fsdp = 8", "fsdp = 3", 17, "fsdp=3 does not divide the 8 ranks that share the batch"),
        ("fsdp = 8", "dp = 3\nfsdp = 8", 17, "dp=3 is not what 8 ranks leave"),
        ("fsdp = 8", "fsdp = 8\nep = 2", 18, "ep=2 shares out experts, and llama-9 has none"),
        ("fsdp = 8", "pp = 2\nvp = 4", 18, "2 layers leave parts of pp=2 x vp=4 empty"),
        ("[software]", "[sofware]", 25, "unknown table [sofware], did you mean 'software'?"),
        ("[model]", "[modell]", 4, "unknown table [modell], did you mean 'model'?"),
        ("seq = 256", 'seq = 256\nextra = ["dense_layers=x"]', 13, "dense_layers=x: 'x' is no whole number, such as 3"),
        ("seq = 256", 'seq = 256\nextra = ["dens_layers=3"]', 13, "'dens_layers=3', did you mean 'dense_layers'?"),
        ("gbs = 16", 'gbs = "16"', 15, "expected a whole number of at least 1, got '16': remove the quotes"),
        ("mbs = 2", 'mbs = "2"', 16, "got '2': remove the quotes"),
        ("devices = 8", 'devices = 8\ndevices_per_host = 3\nscale_up = "nvlink4-nvswitch-8"', 24,
         "hosts of 3 devices, and scale_up 'nvlink4-nvswitch-8' joins 8"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int, says: str) -> None:
    assert old in JOB
    path = written(tmp_path, JOB.replace(old, new))
    with pytest.raises(InputError) as caught:
        mc.predict(path)
    assert caught.value.where == f"{path}:{line}"
    assert says in caught.value.message
    assert caught.value.fix


@pytest.mark.parametrize(
    ("old", "new", "line", "says", "code"),
    [
        ('"bf16"', '"fp99"', 18, "plans have no fp99", 2),
        ('"maxtext"', '"maxtext"\noverlap = "what"', 27, "no overlap 'what'", 2),
        ("fsdp = 8", "cp = 8", 17, "264 is not divisible by 2 x cp=8", 3),
    ],
)
def test_what_a_file_says_is_not_blamed_on_a_flag(
    tmp_path: Path, old: str, new: str, line: int, says: str, code: int
) -> None:
    path = written(tmp_path, JOB.replace("seq = 256", "seq = 264").replace(old, new))
    with pytest.raises(MeshcastError) as caught:
        mc.predict(path)
    assert (caught.value.where, caught.value.exit_code) == (f"{path}:{line}", code)
    assert says in caught.value.message
    if old == '"maxtext"':
        with pytest.raises(MeshcastError) as asked:
            mc.predict(path, overlap="nonsense")
        assert asked.value.where == "--overlap", "what was asked for expressly is not the file's"


@pytest.mark.parametrize("sizes", ["", "layers = 32\n"])
def test_a_model_that_is_none_of_the_zoo_is_offered_the_nearest(tmp_path: Path, sizes: str) -> None:
    model, _, rest = JOB.partition('name = "llama-9"\n')
    text = f'{model}name = "lama3-8b"\n{sizes}seq = 256\n\n[plan]{rest.partition("[plan]")[2]}'
    with pytest.raises(InputError) as caught:
        mc.predict(written(tmp_path, text))
    assert "did you mean 'llama3-8b'?" in (caught.value.fix or "")


def test_hosts_inside_a_larger_domain_are_none_that_contradict_it(tmp_path: Path) -> None:
    more = 'devices = 8\ndevices_per_host = 4\nscale_up = "nvlink5-nvl72"'
    assert read_job(written(tmp_path, JOB.replace("devices = 8", more)))[0].devices_per_host == 4


def test_a_row_of_a_run_that_contradicts_itself_is_taken_as_near_as_can_be() -> None:
    """It has run, whatever its cells say: what is a mistake in a file of one's own is assumed there."""
    run = replace(RUN, model="llama3-8b", counts={"seq": 2048, "gbs": 16}, degrees={"fsdp": 3}, mbs=1.0, extra=Extras())
    target = run_target(run)
    assert (target.plan["fsdp"], target.missing) == (16, ())
    assert target.contradictions == ("fsdp=16: fsdp=3 does not divide the 16 ranks that share the batch",)
    assert target.contradictions[0] in target.assumptions


def test_compare_takes_the_cluster_of_the_job(tmp_path: Path) -> None:
    path = written(tmp_path, JOB)
    code, out, _ = invoke("compare", str(path), "--fidelity", "analytical", "--no-folder", "--json")
    assert code == 0
    cell = json.loads(out.splitlines()[0])
    assert (cell["on"], cell["step_time_s"]) == ("dgx-h100", mc.predict(path).step_time_s)
    other = tmp_path / "other.toml"
    other.write_text(JOB.replace('device = "h100-sxm"', 'on = "dgx-h200"'))
    with pytest.raises(UsageError, match="2 different clusters"):
        mc.compare([path, other], fidelities="analytical")
    with pytest.raises(UsageError, match="no device is given"):
        mc.compare([path, "llama3-tiny"], fidelities="analytical")


def test_compare_says_why_a_job_has_no_answer_as_every_verb_does(tmp_path: Path) -> None:
    path = str(written(tmp_path, JOB.replace("gbs = 16", "gbs = 15")))
    code, _, told = invoke("compare", path, "--on", "dgx-h100", "--fidelity", "analytical", "--no-folder")
    assert code == 2
    assert f"meshcast: unreadable-input: {path}:15: the plan contradicts itself: gbs=15 is no multiple of" in told
    assert "fix: use gbs=" in told


def test_another_schema_is_no_job(tmp_path: Path) -> None:
    path = written(tmp_path, JOB.replace("meshcast.job/1", "meshcast.job/2"))
    with pytest.raises(InputError, match=r"schema: expected one of meshcast\.job/1"):
        mc.predict(path)
    with pytest.raises(InputError, match=r"a \.toml target is a pipeline or a job"):
        mc.predict(written(tmp_path, JOB.replace("meshcast.job/1", "meshcast.jub/1")))


def test_a_job_without_a_schema_is_told_which_one_is_missing(tmp_path: Path) -> None:
    path = written(tmp_path, JOB.replace('schema = "meshcast.job/1"\n', ""))
    with pytest.raises(InputError) as caught:
        mc.predict(path)
    assert caught.value.message == 'schema = "meshcast.job/1" is missing: write it as the file\'s first line'


def test_the_file_of_a_row_answers_as_the_row_does(tmp_path: Path) -> None:
    runs = tmp_path / "runs.csv"
    runs.write_text("\n".join([HEADER, *ROWS]) + "\n")
    code, out, told = invoke("validate", "runs", str(runs), "--job-files", str(tmp_path / "jobs"), "--json")
    assert code == 0
    assert "no file was written for 2 of 4 rows, which lack something: two-1, two-2" in told
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


@pytest.mark.parametrize(
    ("framework", "word"), [("maxtext", "full"), ("megatron-core", "whole"), ("torchtitan", "full")]
)
def test_full_recomputation_is_the_frameworks_own(tmp_path: Path, framework: str, word: str) -> None:
    """Megatron's checkpoints are reentrant: layers run again to their end."""
    found = mc.predict(written(tmp_path, JOB.replace('"maxtext"', f'"{framework}"')))
    assert found.inputs is not None
    assert found.inputs.values["remat"] == word


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
