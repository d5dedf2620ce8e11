"""Anonymous traces: nothing of the input's names is left in any byte, and the prediction stays within the stated bound."""

from __future__ import annotations

import ast
import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcast import predict
from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.chakra import read_trace
from meshcast.chakra.own_attributes import KERNELS, unpacked_kernels
from meshcast.lower.kernel import Kernel, KernelKind
from meshcast.options.options import Options
from meshcast.traces.anonymous import anonymous_kernel, bound, coarse, coarse_size, parse_coarseness
from meshcast.traces.formats import _unfit, write_trace
from meshcast.traces.request import TraceRequest, Written
from meshcast.traces.timelines import job_timeline

# Every name in it is the user's own; strange ones, so that they do not come up by chance.
SOURCE = """
import jax, jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P


def wombat_attention(bandicoot, echidna):
    numbat = jnp.tanh(echidna @ bandicoot["kookaburra"]) * 0.0731
    return numbat @ bandicoot["platypus"], numbat.sum()


def cassowary_step(wallaby, dingo):
    def quoll_loss(galah):
        currawong, bilby = jax.lax.scan(lambda kea, _: wombat_attention(galah, kea), dingo, None, length=3)
        return (currawong * jnp.arange(64, dtype=jnp.float32) ** 1.618).sum() + bilby.sum()
    return jax.tree.map(lambda potoroo, brolga: potoroo - 0.0137 * brolga, wallaby, jax.grad(quoll_loss)(wallaby))


def tawny_frogmouth():
    quokka = AbstractMesh((2, 2), ("goanna", "taipan"), axis_types=(AxisType.Auto,) * 2)
    def thylacine(shape, *budgerigar):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(quokka, P(*budgerigar)))
    wallaby = {"kookaburra": thylacine((64, 128), None, "taipan"), "platypus": thylacine((128, 64), "taipan", None)}
    return cassowary_step, (wallaby, thylacine((32, 64), "goanna", None))
"""
CONSTANTS = ("0.0731", "7.31", "0.0137", "1.37", "1.618")
FORMS = {"chakra": "out", "perfetto": "out.pftrace", "kineto": "out.json.gz", "stablehlo": "out.mlir.gz"}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("kangaroo")
    (folder / "pademelon.py").write_text(SOURCE)
    return f"{folder / 'pademelon.py'}:tawny_frogmouth"


def identifiers() -> set[str]:
    """Names that the program gives, and none that it only uses."""
    found = {"pademelon", "kangaroo"}
    tree = ast.parse(SOURCE)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found - {"_", "shape"}


def written(target: Any, form: str, folder: Path, **request: Any) -> Written:
    if form == "perfetto":
        pytest.importorskip("perfetto")
    options = request.pop("options", Options(on="dgx-h100"))
    return write_trace(form, TraceRequest(target=target, options=options, out=folder / FORMS[form], **request))


def contents(folder: Path) -> bytes:
    """All that is in the files of a folder, unpacked."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    assert files
    packed = [read_trace(path).metadata.get(KERNELS, b"") for path in files if path.suffix == ".et"]
    lists = [json.dumps(unpacked_kernels(each)).encode() for each in packed if isinstance(each, bytes) and each]
    return b"\n".join(
        [gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in files] + lists
    )


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cluster in a file of the user's, whose names are all the user's own."""
    folder = tmp_path_factory.mktemp("hardware")
    (folder / "chip.toml").write_text('schema = "meshcast.device/1"\nbase = "h100-sxm"\nname = "echidnachip"\n')
    (folder / "cluster.toml").write_text(
        """
schema = "meshcast.cluster/1"
base = "dgx-h100"
name = "wombatcluster"
device = "chip.toml"

[[levels]]
name = "bilbylink"
technology = "numbatwire"
topology = "switch"
size = { value = "1048576 devices", source = "assumption", note = "as large as need be" }
links = { value = "1 link", source = "assumption", note = "one" }
link_bandwidth = { value = "100 GB/s", source = "assumption", note = "a round number" }
latency = { value = "1 us", source = "assumption", note = "a round number" }
"""
    )
    return str(folder / "cluster.toml")


@pytest.mark.parametrize("form", ["chakra", "perfetto", "kineto"])
@pytest.mark.parametrize("plan", ["fsdp=4", "pp=2,dp=2"])
def test_no_name_of_the_hardware_is_left(own_cluster: str, tmp_path: Path, form: str, plan: str) -> None:
    """Of devices that are in no catalogue, and of levels of the network: both can be a company's own."""
    options = Options(on=own_cluster, plan=plan, settings={"batch": "8", "seq": "64"})
    names = ("echidnachip", "bilbylink", "wombatcluster", "numbatwire", "llama", "alpha-beta")
    written("llama3-tiny", form, tmp_path, options=options, anonymise=True)
    data = contents(tmp_path)
    assert not [name for name in names if name.encode() in data]
    if form != "chakra":
        assert b"sent over level 1" in data
    written("llama3-tiny", form, tmp_path, options=options)
    assert b"echidnachip" in contents(tmp_path)


def test_memory_is_coarse(tmp_path: Path) -> None:
    options = Options(on="dgx-h100", plan="fsdp=4", settings={"batch": "8", "seq": "64"})
    exact = job_timeline("llama3-tiny", options)
    rough = job_timeline("llama3-tiny", options, anonymise=True, coarseness=0.3)
    for before, after in zip(exact.kinds[0].memory(), rough.kinds[0].memory(), strict=True):
        for (_, size), (_, found) in zip(before.steps, after.steps, strict=True):
            assert abs(math.log(found / size)) <= math.log(1.3) / 2 * (1 + 1e-9) if size else found == 0
    assert exact.kinds[0].memory()[0].steps != rough.kinds[0].memory()[0].steps


@pytest.mark.parametrize("form", FORMS)
def test_no_name_is_left(target: str, tmp_path: Path, form: str) -> None:
    assert len(identifiers()) > 20
    written(target, form, tmp_path, anonymise=True)
    data = contents(tmp_path)
    left = [name for name in identifiers() if name.encode() in data]
    assert not left
    assert not re.search(rb"jit\(|transpose\(|\.py", data)
    if form == "stablehlo":
        assert not [number for number in CONSTANTS if number.encode() in data]
    # The same without the flag has some of them: the search finds what is there.
    (tmp_path / "named").mkdir()
    written(target, form, tmp_path / "named")
    named = contents(tmp_path / "named")
    assert [name for name in ("tawny_frogmouth", "wombat_attention", "cassowary_step") if name.encode() in named]


def test_kernels_lose_the_names_of_custom_calls() -> None:
    ops = ("stablehlo.add", "custom_call:wombat_attention")
    found = anonymous_kernel(Kernel(name="wombat", kind=KernelKind.CUSTOM, dtype="bf16", ops=ops, location="a.py:1"))
    assert (found.name, found.location, found.ops) == ("", "", ("stablehlo.add", "custom_call"))


def test_pipelines_too(tmp_path: Path) -> None:
    options = Options(on="dgx-h100", plan="pp=2,dp=2", settings={"batch": "8", "seq": "64"})
    for form in ("chakra", "perfetto", "kineto"):
        folder = tmp_path / form
        folder.mkdir()
        written("llama3-tiny", form, folder, anonymise=True, options=options)
        data = contents(folder)
        assert not re.search(rb"llama|jit\(|embedding|params|dp=2", data)


@pytest.mark.parametrize("plan", ["fsdp=4,tp=2", "pp=2,dp=2"])
@pytest.mark.parametrize("coarsen", [None, "5%", "0.4"])
def test_predictions_stay(tmp_path: Path, plan: str, coarsen: str | None) -> None:
    options = Options(on="dgx-h100", plan=plan, settings={"batch": "8", "seq": "64"})
    found = written("llama3-tiny", "chakra", tmp_path, anonymise=True, coarsen=coarsen, options=options)
    before, after = found.summary["step_time_s"], predict(tmp_path / "out", on="dgx-h100").step_time_s
    most = found.summary["step_changed_at_most"]
    assert most == pytest.approx(0.0 if coarsen is None else bound(parse_coarseness(coarsen)))
    assert after is not None
    assert abs(math.log(after / before)) <= math.log1p(most) + 1e-9
    if coarsen is not None:
        assert after != pytest.approx(before, rel=1e-6)
        assert f"at most {most:.2%}" in " ".join(found.lines)


def test_an_anonymous_program_is_predicted_alike(target: str, tmp_path: Path) -> None:
    summary = written(target, "stablehlo", tmp_path, anonymise=True).summary
    assert summary["step_time_after_s"] == summary["step_time_s"] is not None
    for on in ("dgx-a100", "tpu-v5p-pod"):
        before, after = predict(target, on=on), predict(tmp_path / FORMS["stablehlo"], on=on)
        assert (before.step_time_s, before.memory.peak, before.kernels, before.flops) == (
            after.step_time_s, after.memory.peak, after.kernels, after.flops,
        )  # fmt: skip


def test_custom_calls_of_users_are_refused(tmp_path: Path) -> None:
    (tmp_path / "in.mlir").write_text(
        "func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {\n"
        '  %0 = stablehlo.custom_call @secret(%a) {meshcast.cost = {bytes = 64 : i64, dtype = "f32"}}'
        " : (tensor<8xf32>) -> tensor<8xf32>\n  return %0 : tensor<8xf32>\n}\n"
    )
    with pytest.raises(UnsupportedError, match="custom call 'secret' is known by its name alone"):
        written(tmp_path / "in.mlir", "stablehlo", tmp_path, anonymise=True, options=Options(on="h200"))
    assert [path.name for path in tmp_path.iterdir()] == ["in.mlir"]


def test_flags(target: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="anonymous traces alone"):
        written(target, "chakra", tmp_path, coarsen="5%")
    for text in ("0", "-1", "x", "200%", "5%%", "nan"):
        with pytest.raises(UsageError, match="is no coarseness"):
            parse_coarseness(text)
    with pytest.raises(UsageError, match="knows no coarsen"):
        written(target, "stablehlo", tmp_path, anonymise=True, coarsen="5%")


@given(st.floats(1e-9, 1e12), st.floats(0.001, 1.0))
def test_the_grid(value: float, share: float) -> None:
    rounded = coarse(value, share)
    assert abs(math.log(rounded / value)) <= math.log1p(bound(share)) * (1 + 1e-6) + 1e-9
    assert coarse(rounded, share) == pytest.approx(rounded)
    assert coarse(value, 0.0) == value
    assert coarse(0.0, share) == 0.0


@given(st.integers(0, 10**15), st.floats(0.001, 1.0))
def test_sizes_stay_whole(value: int, share: float) -> None:
    rounded = coarse_size(value, share)
    assert rounded >= min(value, 1)
    assert abs(rounded - value) <= value * bound(share) * 1.000001 + 0.5


@pytest.mark.parametrize(
    ("coarsen", "said"), [(None, "times stay"), ("5%", "operations and bytes are changed by at most 2.47%")]
)
def test_timelines_are_not_said_to_be_replayed(tmp_path: Path, coarsen: str | None, said: str) -> None:
    options = Options(on="dgx-h100", plan="fsdp=2", settings={"batch": "8", "seq": "64"})
    request = TraceRequest(
        target="llama3-tiny", options=options, out=tmp_path / "step.json", anonymise=True, coarsen=coarsen
    )
    (line,) = [line for line in write_trace("kineto", request).lines if "left out" in line]
    assert said in line
    assert "replay" not in line


def test_which_side_does_not_fit() -> None:
    assert _unfit(None, None) == "does not fit into memory, before and after"
    assert _unfit(1e-3, None) == "does not fit into memory after, and takes 1 ms before"
    assert _unfit(None, 1e-3) == "does not fit into memory before, and takes 1 ms after"
