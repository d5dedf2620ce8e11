"""How many devices a program with explicit collectives is for, where it has no mesh."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from meshcast import predict
from meshcast.base.errors import InputError
from meshcast.base.mesh import Mesh
from meshcast.programs import Program, device_ids, load

KIND = "tensor<1024x1024xf32>"
ADD = f"""({{
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
}}) : ({KIND}) -> {KIND}"""
EIGHT = "dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>"
UNEQUAL = "dense<[[0, 1, 2], [3, 4, -1]]> : tensor<2x3xi64>"
NOBODY = "dense<> : tensor<0x0xi64>"
MESH = 'sdy.mesh @mesh = <["data"=4]>'


def _all_reduce(groups: str = EIGHT) -> str:
    return f'%r = "stablehlo.all_reduce"(%a) <{{replica_groups = {groups}}}> {ADD}'


def _program(op: str, attributes: str = "", more: str = "") -> Program:
    text = f"""module attributes {{{attributes}}} {{
      {more}
      func.func public @main(%a: {KIND}) -> {KIND} {{
        {op}
        return %r : {KIND}
      }}
    }}"""
    return load(text.encode())


PERMUTE = (
    '%r = "stablehlo.collective_permute"(%a) <{source_target_pairs = dense<[[0, 5], [5, 0]]> : tensor<2x2xi64>}> : '
    f"({KIND}) -> {KIND}"
)
CALLED = f"%r = func.call @inner(%a) : ({KIND}) -> {KIND}"
INNER = f"func.func private @inner(%a: {KIND}) -> {KIND} {{ {_all_reduce()}\n return %r : {KIND} }}"
LOOPED = f"""
    %i = stablehlo.constant dense<0> : tensor<i32>
    %n = stablehlo.constant dense<3> : tensor<i32>
    %l:2 = stablehlo.while(%k = %i, %b = %a) : tensor<i32>, {KIND}
    cond {{
      %c = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
      %one = stablehlo.constant dense<1> : tensor<i32>
      %m = stablehlo.add %k, %one : tensor<i32>
      {_all_reduce().replace("%a", "%b")}
      stablehlo.return %m, %r : tensor<i32>, {KIND}
    }}
    %r = stablehlo.abs %l#1 : {KIND}"""


@pytest.mark.parametrize(
    ("op", "attributes", "more", "devices"),
    [
        (_all_reduce(), "", "", 8),
        (_all_reduce(), "mhlo.num_replicas = 8 : i32", "", 8),
        (_all_reduce(), "mhlo.num_partitions = 1 : i32", "", 8),  # says nothing of replicas
        (_all_reduce(), "mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 8 : i32", "", 16),
        (_all_reduce(UNEQUAL), "", "", 5),
        (_all_reduce(NOBODY), "mhlo.num_replicas = 8 : i32", "", 8),
        (PERMUTE, "", "", 6),
        (CALLED, "", INNER, 8),
        (LOOPED, "", "", 8),
    ],
)
def test_devices_are_counted(op: str, attributes: str, more: str, devices: int) -> None:
    program = _program(op, attributes, more)
    assert program.mesh == Mesh.of({"devices": devices})


@pytest.mark.parametrize("attributes", ["", "mhlo.num_replicas = 8 : i32"])
def test_no_collective_is_free(attributes: str) -> None:
    prediction = predict(_program(_all_reduce(), attributes), on="dgx-h100")
    assert prediction.devices == 8
    assert prediction.communication_bytes == 2 * 7 / 8 * 4 * 1024**2
    assert prediction.step_time_s


@pytest.mark.parametrize(
    ("attributes", "more", "stated"),
    [
        ("mhlo.num_partitions = 4 : i32", "", "4 devices"),
        ("mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32", "", "1 device"),
        ("", MESH, "4 devices"),
    ],
)
@pytest.mark.parametrize(("op", "name"), [(_all_reduce(), "all_reduce"), (PERMUTE, "collective_permute")])
def test_a_group_beyond_the_mesh_is_refused(attributes: str, more: str, stated: str, op: str, name: str) -> None:
    with pytest.raises(InputError, match=rf"stablehlo\.{name} .* the program is for {stated}\n") as caught:
        _program(op, attributes, more)
    assert caught.value.where == "target:4"


def test_all_devices_of_an_unknown_number_are_refused() -> None:
    with pytest.raises(InputError, match="nothing says how many"):
        _program(_all_reduce(NOBODY))


def test_no_op_is_looked_at_where_the_text_names_no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand ops took a tenth of a second; an escaped name is none that the text shows."""
    walk = Mock(wraps=device_ids._collectives)
    monkeypatch.setattr(device_ids, "_collectives", walk)
    assert _program(f"%r = stablehlo.abs %a : {KIND}").devices == 1
    walk.assert_not_called()
    escaped = _all_reduce().replace("all_reduce", r"all\5Freduce").replace("replica_groups", r'"replica\5Fgroups"')
    assert "replica_groups" not in escaped
    assert _program(escaped).devices == 8
    walk.assert_called_once()
