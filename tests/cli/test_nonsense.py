"""Files and numbers that no model can make sense of: a typed error, its exit code and its object, or what the format means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from meshcast.estimate.systolic.files import config_text
from tests.cli.conftest import Meshcast
from tests.estimate.systolic.test_files import ARRAY
from tests.network.test_graph_file import TEXT as FABRIC

FIXTURES = Path(__file__).parents[1] / "fixtures"
DATA = Path(__file__).parents[2] / "src" / "meshcast"
TANH, SHARDED = str(FIXTURES / "tanh.mlir"), str(FIXTURES / "sharded.mlir")

ZERO_SIZE = """func.func public @main(%a: tensor<8x0xf32>, %b: tensor<0x8x0xbf16>)
    -> (tensor<8xf32>, tensor<8xbf16>, tensor<8x8xf32>) {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %d = stablehlo.constant dense<0.0> : tensor<bf16>
  %0 = stablehlo.reduce(%a init: %c) applies stablehlo.add across dimensions = [1]
    : (tensor<8x0xf32>, tensor<f32>) -> tensor<8xf32>
  %1 = stablehlo.reduce(%b init: %d) applies stablehlo.add across dimensions = [0, 2]
    : (tensor<0x8x0xbf16>, tensor<bf16>) -> tensor<8xbf16>
  %2 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [1] : (tensor<8x0xf32>, tensor<8x0xf32>) -> tensor<8x8xf32>
  return %0, %1, %2 : tensor<8xf32>, tensor<8xbf16>, tensor<8x8xf32>
}
"""
UNBOUNDED = """HloModule jit_f, entry_computation_layout={(f32[8,4]{1,0})->f32[8,4]{1,0}}

ENTRY main {
  x = f32[8,4]{1,0} parameter(0), metadata={op_name="f32[?]"}
  ROOT y = f32[8,?]{1,0} negate(x)
}
"""
# A custom call whose configuration has bytes that are no UTF-8, and a function that no binding can name.
BYTES = r"""func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @Sharding(%a) {backend_config = "{\22a\FF", mhlo.frontend_attributes = {x = "\FE"}}
    : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.add %0, %0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}
"""
SYMBOL = r"""func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @"f\FE"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @"f\FE"(%a: tensor<4xf32>) -> tensor<4xf32> {
  return %a : tensor<4xf32>
}
"""
STACK = (DATA / "options" / "stacks" / "data" / "pytorch-ddp.toml").read_text().replace('zero = "0"', 'zero = "nan 0"')
CLUSTER = (DATA / "hardware" / "catalogue" / "clusters" / "dgx-2.toml").read_text()
NETWORK = "topology: [ Switch ]\nnpus_count: [ 8 ]\nbandwidth: [ {} ]\nlatency: [ 300 ]\n"


def _damaged() -> bytes:
    content = bytearray((DATA / "estimate" / "data" / "h200.kernels.npz").read_bytes())
    for at in range(2000, len(content) - 2000, 5000):
        content[at] ^= 0xFF
    return bytes(content)


CASES: dict[str, tuple[Callable[[], str | bytes], str, int, str]] = {
    "unbounded.hlo": (lambda: UNBOUNDED, "predict {} --on h200", 4, "unbounded.hlo:5"),
    "symbol.mlir": (lambda: SYMBOL, "predict {} --on h200", 2, "UTF-8"),
    "stack.toml": (lambda: STACK, f"predict {SHARDED} --on dgx-h100 --stack {{}}", 2, "'nan 0'"),
    "cluster.toml": (
        lambda: CLUSTER.replace('topology = "switch"', 'topology = ""', 1),
        f"predict {SHARDED} --on {{}}", 2, "topology: expected one of",
    ),
    "lanes.toml": (
        lambda: FABRIC.replace('"2 links"', '"1e30 links"'),
        "collective all_reduce --bytes 1MiB --on dgx-h100 --devices 4 --network flow --fabric {}", 2, "beyond",
    ),
    "nodes.toml": (
        lambda: FABRIC.replace('"2 nodes"', '"2e9 nodes"'),
        "collective all_reduce --bytes 1MiB --on dgx-h100 --devices 4 --network flow --fabric {}", 2, "up to 1048576",
    ),
    "range.toml": (
        lambda: FABRIC.replace('"2..3"', '"2..999999999"'),
        "collective all_reduce --bytes 1MiB --on dgx-h100 --devices 4 --network flow --fabric {}", 2, "no node '4'",
    ),
    "digits.toml": (lambda: "a = " + "9" * 5000, f"predict {TANH} --on {{}}", 2, "not valid TOML"),
    "nested.toml": (lambda: "a = " + "[" * 5000, f"predict {TANH} --on {{}}", 2, "not valid TOML"),
    "slow.yml": (
        lambda: NETWORK.format("1e-320"),
        "collective all_reduce --bytes 1MiB --on h100-sxm@{} --devices 8 --network astra", 2, "bandwidth: '1e-320'",
    ),
    "fast.yml": (
        lambda: NETWORK.format("1e400"),
        "collective all_reduce --bytes 1MiB --on h100-sxm@{} --devices 8 --network astra", 2, "bandwidth: '1e400'",
    ),
    "ring.yml": (
        lambda: NETWORK.format("50").replace("[ 8 ]", "[ 65536 ]"),
        "collective all_reduce --bytes 1MiB --on h100-sxm@{} --network astra-aware", 2, "up to 32768",
    ),
    "summary.csv": (
        lambda: 'Time (%),Total Time (us),Instances,Avg (us),Name\n25.0,500.0,2147483648,50,"add<a, b>"\n',
        f"compare {TANH} --on h200 --steps 10 --measured {{}}", 2, "launches a step",
    ),
    "damaged.npz": (_damaged, f"predict {TANH} --on h200 --fidelity profiled --profile {{}}", 2, "not measured kernels"),
    "config.json": (lambda: '{"model_type": "gpt2", "n_layer": ' + "9" * 5000 + "}", "predict {}", 2, "is not JSON"),
    "deep.json": (lambda: "[" * 100_000, "predict {}", 2, "is not JSON"),
    "array.cfg": (
        lambda: config_text(ARRAY).replace("ArrayHeight: 8", "ArrayHeight: 9223372036854775808"),
        "systolic --config {} --gemm 8,8,8", 2, "cells",
    ),
    "depthwise.csv": (
        lambda: "h\nDP1, 8, 8, 3, 3, 999999999, 1, 1,\n",
        "systolic --rows 8 --cols 8 --dataflow ws --layers {}", 2, "999999999 channels",
    ),
}  # fmt: skip
LINES = {
    "systolic --rows 128 --cols 128 --dataflow ws --gemm 512,99999999999999999999,512": "below 2^63",
    "systolic --rows 128 --cols 128 --dataflow ws --gemm 512,9223372036854775807,512": "more than cycles can be counted",
    "systolic --rows 9223372036854775807 --cols 128 --dataflow ws --gemm 8,8,8": "rows and columns at most",
    "predict gpt2-tiny --on tpu-v5p-pod --plan offload=optimizer --set layers=serve": "layers is a positive integer",
    "collective all_reduce --bytes 1e400 --on dgx-h100 --devices 8": "expected bytes",
    "collective all_reduce --bytes 1e30B --on dgx-h100 --devices 8": "expected bytes",
    "collective all_reduce --bytes 4EB --on dgx-h100 --devices 8": "from 1 to 2^60",
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_files_that_make_no_sense(meshcast: Meshcast, name: str) -> None:
    content, command, code, said = CASES[name]
    found = content()
    Path(name).write_bytes(found.encode() if isinstance(found, str) else found)
    answer = meshcast(*command.format(name).split(), "--json")
    assert answer.code == code, answer.err
    (value,) = answer.lines
    assert said in f"{value['error']['where']} {value['error']['message']} {value['error']['fix']}"


@pytest.mark.parametrize("line", LINES)
def test_numbers_that_make_no_sense(meshcast: Meshcast, line: str) -> None:
    answer = meshcast(*line.split(), "--json")
    assert answer.code == 2, answer.err
    (value,) = answer.lines
    assert LINES[line] in f"{value['error']['where']} {value['error']['message']} {value['error']['fix']}"


@pytest.mark.parametrize("on", ["h200", "tpu-v5e", "mi300x"])
def test_arrays_of_nothing_are_predicted(meshcast: Meshcast, on: str) -> None:
    Path("zero.mlir").write_text(ZERO_SIZE)
    answer = meshcast("predict", "zero.mlir", "--on", on, "--json")
    assert answer.code == 0, answer.err
    (value,) = answer.lines
    assert 0 < value["step_time_s"] < 1e-3
    assert value["flops"] == 0


def test_bytes_that_are_no_text_are_passed_over(meshcast: Meshcast) -> None:
    Path("bytes.mlir").write_text(BYTES)
    assert meshcast("predict", "bytes.mlir", "--on", "h200", "--json").code == 0


def test_a_device_may_have_a_name_that_no_file_could_have(meshcast: Meshcast) -> None:
    own = (DATA / "hardware" / "catalogue" / "devices" / "a100-sxm-80gb.toml").read_text()
    Path("own.toml").write_text(own.replace('name = "a100-sxm-80gb"', f'name = "../{"9" * 400}"'))
    answer = meshcast("predict", TANH, "--on", "own.toml", "--json")
    assert answer.code in (0, 2), answer.err


def test_a_trace_whose_steps_take_no_time(meshcast: Meshcast) -> None:
    head = "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Device,Ctx,Strm,Name\n"
    row = "2000,2500,12,8,1,1,128,1,1,NVIDIA H200 (0),1,7,loop_tanh_fusion\n"
    Path("still.csv").write_text(head + row * 3 + row.replace("2000", "12000", 1))
    assert meshcast("compare", TANH, "--on", "h200", "--measured", "still.csv", "--json").code in (0, 2)
