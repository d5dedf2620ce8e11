"""Deadlocks by hand, and in programs whose branches depend on the rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from meshcast import prepare
from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.base.mesh import OUTSIDE, Mesh, group_numbers
from meshcast.jobs.program.deadlocks import check_program, check_programs
from meshcast.options.options import Options
from meshcast.programs import from_bytes
from meshcast.simulate.matching import check_matching
from meshcast.workload.posted import Posted, RankSequence, rank_sequences

MESH = Mesh.of({"data": 2, "tensor": 4})


def post(axis: str, *, kind: str = "all_reduce", size: int = 1000, location: str = "") -> Posted:
    return Posted(kind=kind, size=size, groups=group_numbers(MESH.group([axis]), 8), location=location)


def check(*programs: tuple[list[int], list[Posted]]) -> None:
    sequences = [RankSequence(ranks=np.array(ranks), posts=tuple(posts)) for ranks, posts in programs]
    check_matching(sequences, 8, where="test")


LEFT, RIGHT = [0, 1, 4, 5], [2, 3, 6, 7]  # tensor below 2, and above


def test_equal_programs_match() -> None:
    check((LEFT, [post("tensor"), post("data")]), (RIGHT, [post("tensor"), post("data")]))


def test_orders_may_differ_where_nobody_waits_in_a_circle() -> None:
    # Groups over "data" lie within either side, so the right side gets through its own first.
    check((LEFT, [post("tensor"), post("data")]), (RIGHT, [post("data"), post("tensor")]))


def test_a_missing_partner() -> None:
    with pytest.raises(
        UsageError, match="ranks 0, 1, 4, 5 wait in all-reduce of 1000 B at here for ranks 2, 3, 6, 7, which"
    ) as e:
        check((LEFT, [post("tensor", location="here")]), (RIGHT, []))
    assert e.value.exit_code == 2


@pytest.mark.parametrize("other", [post("tensor", kind="all_gather"), post("tensor", size=999)])
def test_another_kind_or_size_in_the_same_group(other: Posted) -> None:
    with pytest.raises(UsageError, match="of the same group run") as caught:
        check((LEFT, [post("tensor", location="here")]), (RIGHT, [other]))
    assert str(other) in str(caught.value)


def test_a_circle() -> None:
    even, odd = [0, 2, 5, 7], [1, 3, 4, 6]
    with pytest.raises(
        UsageError, match=r"in different orders: .* at A and wait for ranks 1, 3, 4, 6; .* at D and wait"
    ):
        check(
            (even, [post("tensor", location="A"), post("data", location="B")]),
            (odd, [post("data", location="D"), post("tensor", location="C")]),
        )


def test_a_hundred_thousand_ranks() -> None:
    mesh = Mesh.of({"stage": 16, "data": 1024, "tensor": 8})
    groups = [group_numbers(mesh.group([axis]), mesh.size) for axis in ("tensor", "data")]
    posts = tuple(Posted(kind="all_reduce", size=8, groups=numbers) for numbers in groups)
    ranks = np.arange(mesh.size)
    last = RankSequence(ranks=ranks[-8:], posts=posts[:1], label="last")
    check_matching([RankSequence(ranks=ranks, posts=posts)], mesh.size, where="all")
    with pytest.raises(UsageError, match=r"\(8,184 in all\).* wait in all-reduce of 8 B for ranks 131064"):
        check_matching([RankSequence(ranks=ranks[:-8], posts=posts), last], mesh.size, where="all")


def program(local: Callable[[Any], Any]) -> Any:
    mesh = AbstractMesh((2, 4), ("data", "tensor"), axis_types=(AxisType.Auto,) * 2)
    spec = P("data", "tensor")

    def step(x: Any) -> Any:
        return jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(x)

    return step, (jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(mesh, spec)),)


def branch(taken: Callable[[], Any], yes: Callable[[Any], Any], no: Callable[[Any], Any]) -> Any:
    return program(lambda x: jax.lax.cond(taken(), yes, no, x))


def over(axis: str) -> Callable[[Any], Any]:
    return lambda x: jax.lax.psum(x, axis)


def index(axis: str) -> Any:
    return jax.lax.axis_index(axis)


ODD = (
    lambda: (index("tensor") + index("data")) % 2 == 0,
    lambda: jnp.logical_not(index("tensor") + index("data") == 3),
)
OPTIONS = Options(on="dgx-h100")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            branch(lambda: index("tensor") < 2, over("tensor"), lambda x: x),
            "without any collective and never come to it",
        ),
        (branch(ODD[1], over("data"), lambda x: x), "wait in all-reduce of 32 B at .*psum"),
        (
            branch(
                lambda: index("tensor") < 2,
                over("tensor"),
                lambda x: jax.lax.ppermute(x, "tensor", [(0, 1), (1, 2), (2, 3), (3, 0)]),
            ),
            "of the same group run collective-permute of 32 B",
        ),
        (
            branch(ODD[0], lambda x: over("data")(over("tensor")(x)), lambda x: over("tensor")(over("data")(x))),
            "collectives in different orders: ranks 0, 2, 5, 7",
        ),
    ],
)
def test_branches_that_depend_on_the_rank(target: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        prepare(target, OPTIONS)


@pytest.mark.parametrize(
    "target",
    [
        branch(lambda: index("data") < 1, over("tensor"), lambda x: x),  # whole groups take it
        branch(lambda: index("tensor") < 2, over("tensor"), lambda x: 2 * over("tensor")(x)),
        program(lambda x: jax.lax.cond(over("data")(over("tensor")(x.sum())) < 2, over("tensor"), lambda x: x, x)),
    ],
)
def test_branches_that_all_members_take(target: Any) -> None:
    assert prepare(target, OPTIONS).devices == 8


REDUCE = """"stablehlo.all_reduce"(%a) ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>} : (tensor<4xf32>) -> tensor<4xf32>"""


def text(body: str, devices: int = 4) -> Any:
    source = f"""module @m attributes {{mhlo.num_partitions = {devices} : i32, mhlo.num_replicas = 1 : i32}} {{
      func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {{ {body} }} }}"""
    return from_bytes(source.encode(), name="program", where="program.mlir")


def message(kind: str, channel: int) -> str:
    handle = f"channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 1>"
    if kind == "send":
        return (
            f'%t = stablehlo.create_token : !stablehlo.token\n%u = "stablehlo.send"(%a, %t) {{{handle}, '
            "is_host_transfer = false} : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token"
        )
    return (
        f'%r:2 = "stablehlo.recv"(%u) {{{handle}, is_host_transfer = false}} : (!stablehlo.token) -> '
        "(tensor<4xf32>, !stablehlo.token)"
    )


def test_a_message_needs_both_ends() -> None:
    check_program(text(f"{message('send', 3)}\n{message('recv', 3)}\nreturn %r#0 : tensor<4xf32>"))
    with pytest.raises(UsageError, match="send of 16 bytes on channel 3 has no recv"):
        check_program(text(f"{message('send', 3)}\nreturn %a : tensor<4xf32>"))
    with pytest.raises(UsageError, match="channel 3 has no recv"):
        prepare(text(f"{message('send', 3)}\n{message('recv', 4)}\nreturn %r#0 : tensor<4xf32>"), OPTIONS)


def test_programs_of_different_ranks() -> None:
    reduce, nothing = text(f"%r = {REDUCE}\nreturn %r : tensor<4xf32>"), text("return %a : tensor<4xf32>")
    check_programs([(reduce, np.array([0, 1, 2])), (nothing, np.array([3]))], 4, where="both")
    with pytest.raises(UsageError, match=r"both: deadlock: ranks 0, 1 .* for rank 2 .*, which are done"):
        check_programs([(reduce, np.array([0, 1])), (nothing, np.array([2, 3]))], 4, where="both")


def test_sizes_that_are_not_known_are_errors() -> None:
    """Not 0 bytes for a dynamic shape, which would match any other of its kind."""
    dynamic = REDUCE.replace("tensor<4xf32>", "tensor<?xf32>").replace("(%a)", "(%d)")
    made = "%d = stablehlo.custom_call @made(%a) : (tensor<4xf32>) -> tensor<?xf32>"
    with pytest.raises(UnsupportedError, match=r"a dynamic dimension without a bound in tensor<\?xf32>"):
        check_program(text(f"{made}\n%r = {dynamic}\nreturn %a : tensor<4xf32>"))


def test_a_permutation_waits_for_its_rings_and_chains() -> None:
    pairs = "dense<[[0, 2], [2, 0], [1, 3]]> : tensor<3x2xi64>"
    permute = f'"stablehlo.collective_permute"(%a) {{source_target_pairs = {pairs}}} : (tensor<4xf32>) -> tensor<4xf32>'
    (sequence,) = rank_sequences(text(f"%r = {permute}\nreturn %r : tensor<4xf32>", devices=5))
    (post,) = sequence.posts
    assert post.size == 16
    assert post.groups[0] == post.groups[2] != post.groups[1] == post.groups[3]
    assert post.groups[4] == OUTSIDE
