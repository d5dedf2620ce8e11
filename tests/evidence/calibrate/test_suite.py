from __future__ import annotations

from collections import Counter

import jax
import pytest

from meshcast.base.errors import InputError, UsageError
from meshcast.evidence.calibrate.probe import Probe, ProbeChoices, parse, probe
from meshcast.evidence.calibrate.suite import FAMILIES, Compiling, build, compiling, probe_suite

ALL = probe_suite()


def _one_of_each() -> list[Probe]:
    """The first probe of every family, op and kind of settings."""
    found: dict[object, Probe] = {}
    for item in ALL:
        values = item.arguments
        kind = tuple(sorted(str(values.get(name)) for name in ("op", "what", "impl", "grad", "epilogue", "dims")))
        found.setdefault((item.family, kind), item)
    return list(found.values())


def test_ids_say_everything() -> None:
    assert all(parse(item.id) == item for item in ALL)
    assert len({item.id for item in ALL}) == len(ALL)
    assert 3000 < len(ALL) < 5000


def test_the_order_is_the_same_every_time() -> None:
    assert probe_suite() == ALL
    assert probe_suite(["rows"]) == [item for item in ALL if item.family == "rows"]


@pytest.mark.parametrize("share", [0.05, 0.25, 0.5])
def test_any_beginning_has_its_share_of_every_family(share: float) -> None:
    whole = Counter(item.family for item in ALL)
    some = Counter(item.family for item in ALL[: round(share * len(ALL))])
    assert set(whole) == set(FAMILIES)
    for family, count in whole.items():
        assert abs(some[family] - share * count) <= 2


@pytest.mark.parametrize("item", _one_of_each(), ids=lambda item: item.id)
def test_probes_trace_and_donate_what_they_return(item: Probe) -> None:
    if ("impl", "cudnn") in item.settings:
        pytest.skip("traced only where cuDNN is")
    body = build(item)
    results = jax.eval_shape(body.function, *body.args)
    for position, argument in enumerate(body.donate):
        for given, returned in zip(
            jax.tree.leaves(body.args[argument]), jax.tree.leaves(results[position]), strict=True
        ):
            assert (given.shape, given.dtype) == (returned.shape, returned.dtype)
    leaves = jax.tree.leaves(body.args)
    assert all(jax.numpy.issubdtype(leaves[i].dtype, jax.numpy.integer) for i in body.indices)


def test_flops_of_a_product() -> None:
    body = build(parse("gemm:m=4,n=5,k=6,dtype=float32,lhs=m,rhs=k,batch=3"))
    assert body.flops == 2 * 3 * 4 * 5 * 6
    assert [leaf.shape for leaf in body.args] == [(3, 6, 4), (3, 5, 6)]
    assert jax.eval_shape(body.function, *body.args).shape == (3, 4, 5)


def test_what_takes_long_to_compile() -> None:
    assert compiling(probe("gemm", m=8, n=8, k=8, dtype="bfloat16")) is Compiling.TUNED
    assert compiling(probe("gemm", m=8, n=8, k=8, dtype="bfloat16", tune="library")) is Compiling.QUICK
    assert compiling(probe("rows", op="softmax", rows=8, cols=8, dtype="float32")) is Compiling.QUICK
    assert compiling(probe("attention", impl="cudnn", grad=1)) is Compiling.QUICK
    assert compiling(probe("attention", impl="xla", grad=1)) is Compiling.LONG
    assert compiling(probe("vision", op="double", tune="library")) is Compiling.LONG


def test_draws_stay_in_range() -> None:
    draw = ProbeChoices("test")
    values = [draw.log_uniform(64, 4096, 8) for _ in range(500)]
    assert all(64 <= value <= 4096 and value % 8 == 0 for value in values)
    assert 0.4 < sum(value < 512 for value in values) / 500 < 0.6  # half of the octaves


@pytest.mark.parametrize("text", ["gemm", "gemm:m", "gemm:m=,n=1", ":"])
def test_what_is_no_id(text: str) -> None:
    with pytest.raises((InputError, UsageError)):
        build(parse(text))


def test_unknown_families_and_settings_are_named() -> None:
    with pytest.raises(UsageError, match="'gem'"):
        probe_suite(["gem"])
    with pytest.raises(UsageError, match="width"):
        build(parse("gemm:width=3"))
    with pytest.raises(UsageError, match="soft"):
        build(parse("rows:op=soft,rows=1,cols=1,dtype=float32"))
