"""Every mistake a user can make at the command line: its message, its exit code, and never a traceback."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from meshcast.programs import mlir
from meshcast.programs.files import SIZE_LIMIT_VARIABLE
from tests.cli.conftest import Meshcast

FIXTURES = Path(__file__).parents[1] / "fixtures"
PROFILE = Path(__file__).parents[2] / "examples" / "measured" / "gpt2-small-torch.json.gz"
TANH = (FIXTURES / "tanh.mlir").read_text()
SHARDED = (FIXTURES / "sharded.mlir").read_text()
UNKNOWN_LOOP = (FIXTURES / "unknown_loop.mlir").read_text()


def _write(name: str, data: bytes | str) -> str:
    Path(name).write_bytes(data.encode() if isinstance(data, str) else data)
    return name


def _bytecode(text: str) -> bytes:
    return mlir.to_bytecode(mlir.parse_module(text, where="test"))


def _portable(text: str) -> bytes:
    from jaxlib.mlir.dialects import stablehlo

    return bytes(stablehlo.serialize_portable_artifact_str(text, stablehlo.get_current_version()))


def _changed(op: str) -> str:
    """The program with another op in the place of its only one."""
    return TANH.replace("stablehlo.tanh %a : tensor<16x64xf32>", op)


def _newer() -> bytes:
    return _portable(TANH).replace(b"StableHLO_v1.", b"StableHLO_v9.").replace(b"tanh_v2", b"tanh_v9")


def _annotated() -> str:
    marked = TANH.replace("%a: tensor<16x64xf32>", '%a: tensor<16x64xf32> {mhlo.sharding = "{devices=[8,1]<=[8]}"}')
    return f"module attributes {{mhlo.num_partitions = 8 : i32}} {{\n{marked}}}"


UNARY = "(tensor<16x64xf32>) -> tensor<16x64xf32>"
FILES: dict[str, tuple[Callable[[], bytes | str], int, str]] = {
    "truncated.mlir": (lambda: TANH[: len(TANH) * 2 // 3], 2, "truncated"),
    "truncated.mlir.gz": (lambda: gzip.compress(TANH.encode())[:-20], 2, "gzip stream is broken"),
    "truncated.mlirbc": (lambda: _bytecode(TANH)[:-40], 2, "not a valid MLIR module"),
    "newer.mlirbc": (_newer, 2, "dialect version"),
    "unknown.mlir": (lambda: _changed("stablehlo.tanhh %a : tensor<16x64xf32>"), 4, "stablehlo.tanhh"),
    "foreign.mlir": (lambda: _changed(f'"my.op"(%a) : {UNARY}'), 4, "my.op"),
    "custom.mlir": (lambda: _changed(f"stablehlo.custom_call @nobody(%a) : {UNARY}"), 4, "nobody"),
    "quantised.mlir": (lambda: TANH.replace("x64xf32", "x64x!quant.any<i8:f32>"), 4, "quant.any"),
    "gspmd.mlir": (_annotated, 4, "GSPMD"),
    "empty.mlir": (lambda: "", 2, "empty"),
    "blank.hlo": (lambda: " \n\n", 2, "empty"),
    "module.mlir": (lambda: "module {}", 2, "the module is empty"),
    "nothing.mlir": (lambda: "func.func @main() { return }", 2, "the module is empty"),
    "binary.mlir": (lambda: Path(sys.executable).read_bytes()[:100_000], 2, "binary data"),
    "weights.mlirbc": (lambda: b"\x93NUMPY\x01\x00" + bytes(1000), 2, "binary data"),
    "prose.mlir": (lambda: "Dear reader,\n", 2, "not a valid MLIR module"),
    "truncated.hlo": (lambda: "HloModule jit_f\n\nadd {\n", 2, "ENTRY"),
    "script.py": (lambda: "x = 1\n", 2, "needs a function"),
    "dynamic.mlir": (lambda: TANH.replace("16x64", "?x64"), 2, "--dim arg0.0="),
}


@pytest.mark.parametrize("name", FILES)
def test_files(meshcast: Meshcast, name: str) -> None:
    content, code, words = FILES[name]
    _write(name, content())
    answer = meshcast("predict", name, "--on", "h200")
    assert answer.code == code
    assert words in answer.err
    assert name.split(".")[0] in answer.err
    assert answer.out == ""
    answer = meshcast("predict", name, "--on", "h200", "--json")
    assert answer.code == code
    (line,) = answer.lines
    assert set(line["error"]) >= {"code", "message", "where"}
    assert meshcast("show", name).code == code


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("missing.mlir", "no such file"),
        ("missing/x", "no such file"),
        (".", "is a folder"),
        ("gpt2-smal", "did you mean"),
        ("notes.txt", "no such file"),
        ("batch=64", "a setting is written --set batch=64"),
        ("zzzzzz", "`meshcast models` lists all"),
        ("missing.py:make", "no such file"),
        ("no_such_package.module:make", "cannot be imported"),
        ("user.py:absent", "has no function 'absent'"),
        ("user.py:needs", "cannot be called without arguments"),
        ("user.py:raises", "ValueError: out of luck"),
        ("user.py:leaves", "SystemExit"),
        ("user.py:nonsense", "returned int"),
        ("user.py:half", "returned"),
        ("user.py:untraceable", "while tracing"),
        ("user.py:misused", "while tracing"),
        ("user.py:bad_option", "while tracing"),
        ("broken.py:make", "SyntaxError"),
    ],
)
def test_targets(meshcast: Meshcast, target: str, words: str) -> None:
    _write("broken.py", "def make(:\n")
    _write(
        "user.py",
        "import jax, jax.numpy as jnp, sys\n"
        "x = jax.ShapeDtypeStruct((8, 8), jnp.float32)\n"
        "def needs(n): pass\n"
        "def raises(): raise ValueError('out of luck')\n"
        "def leaves(): sys.exit(0)\n"
        "def nonsense(): return 42\n"
        "def half(): return jnp.sin, x\n"
        "def untraceable(): return (lambda x: x if x.sum() > 0 else -x), (x,)\n"
        "def misused(): return jnp.sin, ('eight',)\n"
        "def bad_option(): return jnp.sin, (x,), {'donate': 1}\n",
    )
    answer = meshcast("predict", target)
    assert answer.code == 2
    assert words in answer.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--on", "h1000"], 4, "did you mean"),
        (["--on", "toaster"], 4, "`meshcast devices` lists all"),
        (["--on", "."], 2, "is a folder"),
        (["--plan", "tp=2", "--plan", "dp=2"], 2, "--plan is given 2 times"),
        (["--mesh", "data=2", "--mesh", "model=2"], 2, "--mesh is given 2 times"),
        (["-on", "h200"], 2, "ong options have two dashes: --on"),
        (["--on", "./missing.toml"], 2, "missing.toml"),
        (["--fidelity", "psychic"], 2, "psychic"),
        (["--network", "pigeons"], 2, "pigeons"),
        (["--mesh", "data"], 2, "NAME=SIZE"),
        (["--mesh", "data=0"], 2, "NAME=SIZE"),
        (["--mesh", "data=two"], 2, "NAME=SIZE"),
        (["--mesh", "data=\u00b2"], 2, "NAME=SIZE"),
        (["--mesh", "data=9999999999999"], 2, "NAME=SIZE"),
        (["--mesh", ","], 2, "names no mesh axis"),
        (["--mesh", ""], 2, "names no mesh axis"),
        (["--mesh", "data=2,data=2"], 2, "given twice"),
        (["--dim", "B=3"], 2, "--dim B=3 names no dynamic dimension"),
        (["--dim", "B=3", "--dim", "B=4"], 2, "given twice"),
        (["--trip-count", "5"], 2, "--trip-count 5 has no effect"),
        (["--trip-count", "while#1=5"], 2, "--trip-count while#1=5 has no effect"),
        (["--trip-count", "5", "--trip-count", "6"], 2, "second count"),
        (["--mesh", "rows=2"], 2, "no axis 'rows'"),
        (["--mesh", "data=3"], 3, "do not divide"),
        (["--devices", "4"], 2, "sharded over 8 devices"),
        (["--devices", "0"], 2, "0 devices"),
        (["--devices", "many"], 2, "--devices"),
        (["--dim", "B"], 2, "NAME=VALUE"),
        (["--trip-count", "-1"], 2, "positive integer"),
        (["--set", "seq=8"], 2, "--set applies to models"),
        (["--no-such-flag"], 2, "--no-such-flag"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options(meshcast: Meshcast, arguments: list[str], code: int, words: str) -> None:
    answer = meshcast("predict", _write("sharded.mlir", SHARDED), *arguments)
    assert (answer.code, words in answer.err) == (code, True), answer.err
    assert answer.out == ""


def test_more_devices_than_the_cluster_has(meshcast: Meshcast) -> None:
    answer = meshcast("predict", _write("tanh.mlir", TANH), "--on", "tpu-v3-pod", "--devices", "2000000")
    assert answer.code == 2
    assert "at most 1048576 devices" in answer.err


def test_a_mesh_that_does_not_divide_a_function(meshcast: Meshcast) -> None:
    _write(
        "odd.py",
        "import jax, jax.numpy as jnp\n"
        "from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P\n"
        "def make():\n"
        "    mesh = AbstractMesh((8,), ('data',), axis_types=(AxisType.Auto,))\n"
        "    x = jax.ShapeDtypeStruct((12, 8), jnp.float32, sharding=NamedSharding(mesh, P('data')))\n"
        "    return jnp.sin, (x,)\n",
    )
    answer = meshcast("predict", "odd.py:make", "--on", "dgx-h100")
    assert answer.code == 3
    assert "12" in answer.err


def test_a_program_that_does_not_fit(meshcast: Meshcast) -> None:
    huge = _write("huge.mlir", TANH.replace("16x64", "1000000x1000000"))
    answer = meshcast("predict", huge, "--on", "h200", "--json")
    assert answer.code == 3
    (line,) = answer.lines
    assert line["feasible"] is False
    assert line["step_time_s"] is None
    infeasible = line["infeasible"]
    assert infeasible["demand"] - infeasible["bound"] == infeasible["gap"] > 0
    assert infeasible["resource"] == "memory_bytes"
    assert infeasible["levers"]
    answer = meshcast("predict", huge, "--on", "h200")
    assert answer.code == 3
    assert "cannot run" in answer.out


def test_an_unknown_trip_count_is_told(meshcast: Meshcast) -> None:
    name = _write("loop.mlir", UNKNOWN_LOOP)
    once, tenfold = (meshcast("predict", name, "--trip-count", count, "--json") for count in ("1", "10"))
    assert (once.code, tenfold.code) == (0, 0), tenfold.err
    assert tenfold.lines[0]["flops"] == pytest.approx(10 * once.lines[0]["flops"], rel=0.05)


@pytest.mark.parametrize(
    "counts", [["while#99=5", "3"], ["while#1=3", "while#2=4"], ["while#1=3", "4"]], ids=["absent", "beside", "all"]
)
def test_trip_counts_for_no_loop_are_refused(meshcast: Meshcast, counts: list[str]) -> None:
    name = _write("loop.mlir", UNKNOWN_LOOP)
    flags = [word for count in counts for word in ("--trip-count", count)]
    answer = meshcast("predict", name, *flags)
    assert answer.code == 2
    assert f"--trip-count {counts[0] if '99' in counts[0] else counts[1]} has no effect" in answer.err
    assert "loops that need a count: while#1 (0 have theirs in the program)" in answer.err


def test_a_trip_count_for_a_loop_that_has_one_is_refused(meshcast: Meshcast) -> None:
    known = UNKNOWN_LOOP.replace(
        "tensor<64x64xf32>\n  cond", "tensor<64x64xf32>\n  attributes {known_trip_count = 3 : i64}\n  cond"
    )
    name = _write("loop.mlir", known)
    assert meshcast("predict", name).code == 0
    answer = meshcast("predict", name, "--trip-count", "while#1=5")
    assert answer.code == 2
    assert "none (1 have theirs in the program)" in answer.err


def test_settings_on_standard_input_are_refused(meshcast: Meshcast, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = meshcast("predict", "-", "--set", "batch=3")
    assert answer.code == 2
    assert "--set applies to models of the zoo" in answer.err


def test_the_partitioned_program_is_shown_for_its_platform(meshcast: Meshcast) -> None:
    _write(
        "which.py",
        "import jax, jax.numpy as jnp\n"
        "def make():\n"
        "    fn = lambda x: jax.lax.platform_dependent(x, cuda=jnp.sin, tpu=jnp.cos, default=jnp.tan)\n"
        "    return fn, (jax.ShapeDtypeStruct((8,), jnp.float32),)\n",
    )
    for device, op in (("h200", "sine"), ("tpu-v5p", "cosine"), ("mi300x", "tan")):
        answer = meshcast("show", "which.py:make", "--partitioned", "--on", device)
        assert answer.code == 0, answer.err
        assert f"stablehlo.{op} " in answer.out
    sharded = _write("sharded.mlir", SHARDED)
    assert '"data"=2' in meshcast("show", sharded, "--partitioned", "--mesh", "data=2").out
    assert meshcast("show", sharded, "--partitioned", "--trip-count", "3").code == 2


def test_a_declared_cost_that_cannot_be(meshcast: Meshcast) -> None:
    for cost in ('flops = "x"', "flops = -1.0e15 : f64", 'flops = 1.0 : f64, dtype = "brain"'):
        op = f'"stablehlo.custom_call"(%a) {{call_target_name = "mine", meshcast.cost = {{{cost}}}}} : {UNARY}'
        answer = meshcast("predict", _write("mine.mlir", _changed(op)), "--approximate")
        assert answer.code == 2
        assert "declared cost of custom call 'mine'" in answer.err


@pytest.mark.parametrize("device", ["h200", "tpu-v5p"])
def test_a_program_without_elements(meshcast: Meshcast, device: str) -> None:
    answer = meshcast("predict", _write("empty.mlir", TANH.replace("16x64", "0x64")), "--on", device, "--json")
    assert answer.code == 0, answer.err
    assert answer.lines[0]["flops"] == 0


def test_settings_of_the_wrong_kind(meshcast: Meshcast) -> None:
    answer = meshcast("predict", "gpt2-small", "--set", "batch=abc")
    assert answer.code == 2
    assert "abc" in answer.err


def test_dynamic_sizes_are_told(meshcast: Meshcast) -> None:
    name = _write("dynamic.mlir", TANH.replace("16x64", "?x64"))
    answer = meshcast("predict", name, "--dim", "arg0.0=16", "--json")
    assert answer.code == 0, answer.err
    same = meshcast("predict", _write("tanh.mlir", TANH), "--json")
    assert answer.lines[0]["step_time_s"] == same.lines[0]["step_time_s"]


def test_several_targets_are_all_answered_in_order(meshcast: Meshcast) -> None:
    good = _write("good.mlir", TANH)
    unknown = _write("unknown.mlir", TANH.replace("stablehlo.tanh", "stablehlo.tanhh"))
    huge = _write("huge.mlir", TANH.replace("16x64", "1000000x1000000"))
    answer = meshcast("predict", good, "missing.mlir", unknown, huge, good, "--on", "h200", "--json")
    assert answer.code == 4
    kinds = [line["error"]["code"] if "error" in line else line["feasible"] for line in answer.lines]
    assert kinds == [True, "unreadable-input", "unsupported", False, True]
    assert meshcast("predict", good, "missing.mlir", "--json").code == 2
    assert meshcast("predict", huge, "missing.mlir", "--on", "h200", "--json").code == 3
    assert meshcast("predict", good, good, "--json").code == 0


def test_a_module_beyond_the_limit(meshcast: Meshcast, monkeypatch: pytest.MonkeyPatch) -> None:
    op = "    %{} = stablehlo.add %{}, %{} : tensor<1024x1024xf32>\n"
    with Path("ops.mlir").open("w") as file:
        file.write("func.func @main(%0: tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {\n")
        file.writelines(op.format(i + 1, i, i) for i in range(200_000))
        file.write("    return %200000 : tensor<1024x1024xf32>\n}\n")
    monkeypatch.setenv(SIZE_LIMIT_VARIABLE, str(8 * 2**20))
    answer = meshcast("predict", "ops.mlir")
    assert answer.code == 2
    assert SIZE_LIMIT_VARIABLE in answer.err


def test_a_module_of_200_megabytes_with_its_weights_inside(meshcast: Meshcast) -> None:
    with Path("weights.mlir").open("w") as file:
        file.write(
            'func.func @main(%a: tensor<26214400xf32>) -> tensor<26214400xf32> {\n  %0 = stablehlo.constant dense<"0x'
        )
        for _ in range(100):
            file.write("0000803F" * 262_143 + "0000903F")
        file.write('"> : tensor<26214400xf32>\n  %1 = stablehlo.add %a, %0 : tensor<26214400xf32>\n')
        file.write("  return %1 : tensor<26214400xf32>\n}\n")
    assert Path("weights.mlir").stat().st_size > 200 * 2**20
    answer = meshcast("predict", "weights.mlir", "--on", "h200", "--json")
    assert answer.code == 0, answer.err
    assert answer.lines[0]["flops"] == 26214400


def test_the_installed_command_reports_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from meshcast.cli import main; main()"]
    done = subprocess.run(
        [*command, "predict", "missing.mlir", "--json"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["message"] == "no such file"
    assert done.stderr.startswith("meshcast: unreadable-input: missing.mlir: no such file")
    done = subprocess.run([*command, "predict", "-", "--json"], input=TANH, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["collective", "all_reduce", "--bytes", "1KiB..8GiB", "--json"],
        ["collective", "all_reduce", "--bytes", "1KiB..8GiB"],  # rich writes this one
        ["predict", str(FIXTURES / "tanh.mlir"), str(FIXTURES / "tanh.mlir"), "--json"],
        ["devices"],
        ["--help"],
        ["collective", "--help"],
        ["collective", "none", "--bytes", "1", "--json"],
    ],
)
def test_a_reader_that_leaves_is_no_error(command: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)  # nobody reads: the first byte written fails
    done = subprocess.run(
        [sys.executable, "-m", "meshcast", *command], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize("name", ["run.json", "run.json.gz", "list.json", "run.txt"])
@pytest.mark.parametrize("verb", ["predict", "report", "show"])
def test_a_profile_is_called_what_it_is(meshcast: Meshcast, name: str, verb: str) -> None:
    """Not a broken module, nor a broken configuration: what takes it is named."""
    data = gzip.decompress(PROFILE.read_bytes())
    if name.startswith("list"):
        data = json.dumps(json.loads(data)["traceEvents"]).encode()
    Path(name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    answer = meshcast(verb, name, "--on", "h200")
    assert answer.code == 2
    assert f"{name}: is a profiler's trace of a run, not a program" in answer.err
    assert f"compare TARGET --measured {name}" in answer.err
    assert f"trace link --device {name}" in answer.err
