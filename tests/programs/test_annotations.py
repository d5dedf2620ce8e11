"""Shardings in GSPMD's words are refused where reading on would predict the whole program on each device."""

from __future__ import annotations

import pytest

from meshcast import predict
from meshcast.base.errors import UnsupportedError
from meshcast.programs import from_bytes

SPLIT = "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"


def _module(body: str, *, argument: str = "", partitions: int = 8) -> bytes:
    mark = f' {{mhlo.sharding = "{argument}"}}' if argument else ""
    return f"""module attributes {{mhlo.num_partitions = {partitions} : i32, mhlo.num_replicas = 1 : i32}} {{
  func.func @main(%a: tensor<16x64xf32>{mark}) -> tensor<16x64xf32> {{
    {body}
    return %0 : tensor<16x64xf32>
  }}
}}""".encode()


TANH = "%0 = stablehlo.tanh %a : tensor<16x64xf32>"
CONSTRAINT = (
    f'%0 = stablehlo.custom_call @Sharding(%a) {{mhlo.sharding = "{SPLIT}"}} : (tensor<16x64xf32>) -> tensor<16x64xf32>'
)
ALL_REDUCE = """%0 = "stablehlo.all_reduce"(%a) <{
      replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>
    }> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<16x64xf32>) -> tensor<16x64xf32>"""
MANUAL = f"""%p = stablehlo.custom_call @SPMDFullToShardShape(%a) {{mhlo.sharding = "{{manual}}"}}
      : (tensor<16x64xf32>) -> tensor<2x64xf32>
    {ALL_REDUCE}"""


@pytest.mark.parametrize(
    "module",
    [
        _module(TANH, argument=SPLIT),
        _module(CONSTRAINT),
        _module(CONSTRAINT, argument=SPLIT),
        _module(MANUAL),
        _module(TANH, argument=SPLIT).replace(b"mhlo.num_partitions = 8 : i32, ", b""),
        _module(TANH, argument="\\08\\03\\1A\\02\\04\\01"),
    ],
    ids=["argument", "constraint", "both", "shard_map", "partitions unsaid", "serialised"],
)
def test_gspmd_programs_are_refused(module: bytes) -> None:
    with pytest.raises(UnsupportedError, match="GSPMD") as caught:
        from_bytes(module, name="x", where="x.mlir")
    assert "Shardy" in str(caught.value)


@pytest.mark.parametrize(
    ("module", "devices"),
    [
        (_module(TANH, argument="{replicated}"), 8),
        (_module(TANH, argument="{devices=[1,1,8]<=[8] last_tile_dim_replicate}"), 8),
        (_module(ALL_REDUCE, argument=SPLIT), 8),
        (_module(TANH), 8),
        (_module(TANH, partitions=1), 1),
    ],
    ids=["replicated", "replicated by tiles", "collectives are there already", "no annotation", "one device"],
)
def test_programs_of_one_device_are_read(module: bytes, devices: int) -> None:
    assert predict(module, on="dgx-h100").devices == devices


PARTITIONED = """HloModule jit_f, entry_computation_layout={(f32[2,64]{1,0})->f32[2,64]{1,0}}, num_partitions=8

ENTRY %main.0_spmd (param: f32[2,64]) -> f32[2,64] {
  %param = f32[2,64]{1,0} parameter(0), sharding={devices=[8,1]<=[8]}
  ROOT %tanh = f32[2,64]{1,0} tanh(%param)
}
"""


def test_partitioned_hlo_keeps_the_annotations_of_its_parameters() -> None:
    program = from_bytes(PARTITIONED.encode(), name="x", where="x")
    assert program.partitioned
    assert program.devices == 8
    scheduled = PARTITIONED.replace("HloModule jit_f,", "HloModule jit_f, is_scheduled=true,").replace(
        "main.0_spmd", "main"
    )
    assert from_bytes(scheduled.encode(), name="x", where="x").partitioned
    with pytest.raises(UnsupportedError, match="GSPMD"):
        from_bytes(PARTITIONED.replace("main.0_spmd", "main").encode(), name="x", where="x")


def test_meshes_inlined_in_shardings_are_found() -> None:
    module = _module(TANH).replace(
        b"%a: tensor<16x64xf32>",
        b'%a: tensor<16x64xf32> {sdy.sharding = #sdy.sharding<mesh<["data"=8]>, [{"data"}, {}]>}',
    )
    assert from_bytes(module, name="x", where="x").mesh.sizes == {"data": 8}
