"""Every kind of input ends in the same program, with its arguments' roles, and in a prediction."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import threading
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from meshcast import predict
from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.programs import CaptureOptions, Program, Role, capture, from_bytes, load
from meshcast.programs.files import program_name
from meshcast.programs.roles import role_of
from tests.programs.conftest import Step, forms

FORMATS = ("text", "bytecode", "portable", "exported", "hlo")


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("form", FORMATS)
def test_every_format_predicts_alike(step: Step, tmp_path: Path, form: str, packed: bool) -> None:
    data = forms(step)[form]
    path = tmp_path / "step.bin"
    path.write_bytes(gzip.compress(data) if packed else data)
    prediction = predict(path, on="h200")
    expected = predict(capture(step.fn, *step.args), on="h200")
    assert prediction.name == "step"
    assert prediction.flops == pytest.approx(expected.flops, rel=0.01)
    assert prediction.step_time_s == pytest.approx(expected.step_time_s, rel=0.2)  # HLO text has no donation


@pytest.mark.parametrize("form", FORMATS)
def test_shardings_survive_every_format(sharded_step: Step, form: str) -> None:
    prediction = predict(forms(sharded_step)[form], on="dgx-h100")
    expected = predict(capture(sharded_step.fn, *sharded_step.args), on="dgx-h100")
    assert prediction.mesh == {"data": 4, "model": 2}
    assert prediction.communication_bytes == expected.communication_bytes > 0
    assert prediction.flops == expected.flops


def test_python_objects_are_targets(step: Step) -> None:
    expected = predict(capture(step.fn, *step.args)).flops
    for target in (step.lowered, step.exported, (step.fn, step.args), (step.fn, step.args, {"keep_unused": True})):
        assert predict(target).flops == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("target", [42, ("f", ()), (len, 3), (len, (), 7), (len,)])
def test_other_objects_are_refused(target: Any) -> None:
    with pytest.raises(UsageError):
        load(target)


def test_arguments_keep_names_roles_and_donation_though_unused_ones_are_dropped() -> None:
    def update(params: Any, opt_state: Any, batch: Any, cache: Any) -> Any:
        return params["w"] + opt_state.mu * batch["x"].sum(), cache["k"] * 2

    moments = namedtuple("moments", "mu nu")  # a pytree as optax has them
    shape = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    program = capture(
        update,
        {"dropped": shape, "w": shape},
        moments(shape, shape),
        {"x": shape},
        {"k": shape},
        options={"donate_argnums": (0, 3)},
    )
    assert [(a.name, a.role, a.donated) for a in program.arguments] == [
        ("params['w']", Role.PARAMETER, True),
        ("opt_state.mu", Role.OPTIMIZER_STATE, False),
        ("batch['x']", Role.BATCH, False),
        ("cache['k']", Role.CACHE, True),
    ]
    assert {a.aliased_output for a in program.arguments if a.donated} == {0, 1}


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("params['opt_proj']", Role.PARAMETER),
        ("state.params['token_embedding']", Role.PARAMETER),
        ("state.opt_state[0].mu['w']", Role.OPTIMIZER_STATE),
        ("args[0]['tokens']", Role.BATCH),
        ("kv_cache[3]", Role.CACHE),
        ("model['token_embedding']", Role.UNKNOWN),
        ("x", Role.UNKNOWN),
        ("", Role.UNKNOWN),
    ],
)
def test_roles_come_from_names(name: str, role: Role) -> None:
    assert role_of(name) is role


def test_hlo_text_keeps_aliases_and_device_counts() -> None:
    text = """HloModule step, input_output_alias={ {1}: (0, {}, may-alias) }, replica_count=2, num_partitions=4

ENTRY main {
  p = f32[4] parameter(0)
  q = f32[4] parameter(1)
  r = f32[4] add(p, q)
  ROOT t = (f32[4], f32[4]) tuple(q, r)
}
"""
    program = load(text.encode())
    assert [a.aliased_output for a in program.arguments] == [1, None]
    assert [a.donated for a in program.arguments] == [True, False]
    assert program.devices == 8


def test_static_arguments_and_nested_jit() -> None:
    def scaled(x: Any, times: int, w: Any) -> Any:
        return x @ w * times

    shape = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    jitted = jax.jit(scaled, static_argnums=1)
    for program in (
        capture(jitted, shape, 3, shape),
        capture(scaled, shape, 3, shape, options={"static_argnums": (1,)}),
        capture(jitted, shape, 3, shape, options={"static_argnums": (1,), "donate_argnums": (0,)}),
    ):
        assert [a.name for a in program.arguments] == ["x", "w"]


def test_capture_allocates_no_weights_and_takes_no_accelerator(tmp_path: Path) -> None:
    (tmp_path / "huge.py").write_text("""
import jax, jax.numpy as jnp
def make():
    params = jax.ShapeDtypeStruct((100, 65536, 61035), jnp.bfloat16)  # 400 billion
    def loss(params, batch):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w) @ w.T, None), batch, params)[0].sum()
    return jax.grad(loss), (params, jax.ShapeDtypeStruct((8, 65536), jnp.bfloat16))
""")
    code = """
import json, resource
# A process starts with the peak of the one that it was forked from: only what comes on top is its own.
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
from meshcast import predict
prediction = predict("huge.py:make", on="h200")
from jax._src import xla_bridge
own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps([own, list(xla_bridge._backends), prediction.feasible]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"},
    )  # fmt: skip
    kilobytes, backends, feasible = json.loads(done.stdout)
    assert kilobytes < 1_000_000
    assert set(backends) <= {"cpu"}
    assert not feasible


def test_a_zoo_model_and_its_settings() -> None:
    program = load("gpt2-small", CaptureOptions(settings={"batch": "2"}))
    assert isinstance(program, Program)
    with pytest.raises(UsageError, match="did you mean"):
        load("gpt2-smal")


def test_standard_input(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    data = gzip.compress(forms(step)["text"])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    assert load("-").name == "stdin"


def test_a_file_through_a_pipe(step: Step, tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_bytes(forms(step)["text"]))
    writer.start()
    assert len(load(fifo).arguments) == 2
    writer.join()


def test_byte_order_marks_are_skipped(step: Step) -> None:
    assert from_bytes(b"\xef\xbb\xbf" + forms(step)["text"], name="x", where="x").devices == 1


def test_names_lose_every_format_ending() -> None:
    assert program_name(Path("a/gpt.opt.hlo.gz")) == "gpt"
    assert program_name(Path("v1.5.mlirbc")) == "v1.5"


def test_what_user_code_prints_stays_off_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "noisy_target.py"
    source.write_text(
        "import jax, jax.numpy as jnp\nprint('importing')\n"
        "def make():\n    print('making')\n"
        "    def fn(x):\n        print('tracing')\n        return x + 1\n"
        "    return fn, (jax.ShapeDtypeStruct((8,), jnp.float32),)\n"
    )
    load(f"{source}:make")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.split() == ["importing", "making", "tracing"]


def test_shard_map_in_hlo_text_is_refused() -> None:
    from jax.sharding import AbstractMesh, AxisType, NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = AbstractMesh((8,), ("data",), axis_types=(AxisType.Auto,))
    fn = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "data"), mesh=mesh, in_specs=P("data"), out_specs=P()))
    lowered = fn.trace(jax.ShapeDtypeStruct((16,), jnp.float32, sharding=NamedSharding(mesh, P("data")))).lower(
        lowering_platforms=("cuda",)
    )
    assert predict(lowered, on="dgx-h100").communication_bytes > 0
    with pytest.raises(UnsupportedError, match="shard_map"):
        predict(lowered.as_text("hlo").encode())
