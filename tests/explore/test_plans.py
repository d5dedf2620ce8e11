"""Every plan that divides a model, and none that does not."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from meshcast.base import UsageError
from meshcast.explore.plans import PlanSpace, divisors
from meshcast.explore.shape import ModelShape, builder_of, model_shape
from meshcast.jobs import interleaves
from meshcast.zoo import Builder, Plan, huggingface

TINY = ModelShape(
    name="tiny", layers=4, first=0, period=1, heads=4, kv_heads=2, experts=0, width=64, vocab=256, seq=8192, batch=8,
    parameters=100_000, unit="tokens",
)  # fmt: skip


def _texts(devices: int, batch: int = 8, shape: ModelShape = TINY, **choices: tuple[object, ...]) -> list[str]:
    return [str(plan) for plan in PlanSpace(shape=shape, devices=devices, batch=batch, choices=choices)]


def test_two_devices_have_the_plans_that_are_counted_by_hand() -> None:
    found = _texts(2, batch=2, remat=("full",), mbs=(1,))
    assert found == [
        "dp=2,remat=full", "dp=2,remat=full,zero=1", "fsdp=2,remat=full", "cp=2,remat=full", "tp=2,sp=1,remat=full",
        "pp=2,remat=full", "pp=2,vp=2,remat=full",
    ]  # fmt: skip


@pytest.mark.parametrize("devices", [1, 6, 8, 12])
def test_plans_multiply_to_the_devices_divide_the_model_and_are_all_different(devices: int) -> None:
    found = list(PlanSpace(shape=TINY, devices=devices, batch=24))
    assert len({str(plan) for plan in found}) == len(found)
    for plan in found:
        assert plan.devices == devices
        assert TINY.heads % plan.tp == 0
        assert TINY.kv_heads % plan.tp == 0
        assert TINY.layers % plan.parts == 0
        assert 24 % (plan.mbs * plan.batch_shards) == 0
        assert plan.vp == 1 or plan.microbatches_of(24) >= plan.pp
        assert Plan.parse(str(plan)) == plan


def test_interleaved_stages_take_equal_groups_that_are_larger_than_they() -> None:
    """12 microbatches on 8 stages are one group; 20 would be two of ten, 17 one of 9 and one of 8, which are not equal."""
    assert [count for count in (4, 12, 16, 17, 20) if interleaves(8, count)] == [12, 16, 20]


def test_a_choice_takes_the_place_of_the_usual_values() -> None:
    assert {Plan.parse(text).tp for text in _texts(4, tp=(2,))} == {2}
    assert {Plan.parse(text).schedule for text in _texts(4, pp=(4,), schedule=("zb-h1", "gpipe"))} == {"zb-h1", "gpipe"}
    assert {Plan.parse(text).fsdp for text in _texts(4, pp=(2,))} == {1}
    both = PlanSpace(shape=TINY, devices=4, batch=8, choices={"pp": (2,), "fsdp-in-stages": (True,)})
    assert {plan.fsdp for plan in both} == {1, 2}


def test_what_a_training_step_does_not_have_is_left_out() -> None:
    without = ModelShape(
        **{name: getattr(TINY, name) for name in TINY.__dataclass_fields__} | {"decided": frozenset({"zero"})}
    )
    found = [Plan.parse(text) for text in _texts(4, batch=4, shape=without, pp=(1,))]
    assert any(plan.tp == 2 for plan in found)
    assert {(plan.sp, plan.remat) for plan in found} == {(False, "none")}
    assert {plan.zero for plan in found} == {0, 1}
    assert "tp=2,remat=full" in _texts(2, batch=2, shape=without, remat=("full",), mbs=(1,))  # chosen: refused by name


@pytest.mark.parametrize(
    ("name", "decided"),
    [
        ("gpt2-tiny", {"remat", "sequence_parallel", "zero"}),
        ("transformer-tiny", {"remat", "zero"}),
        ("resnet-tiny", set()),
    ],
)
def test_models_say_what_their_training_steps_have(name: str, decided: set[str]) -> None:
    assert model_shape(name, {"batch": "8"}).decided == decided


def test_experts_are_split_where_there_are_some() -> None:
    routed = ModelShape(**{name: getattr(TINY, name) for name in TINY.__dataclass_fields__} | {"experts": 4})
    assert {Plan.parse(text).ep for text in _texts(8, shape=routed)} == {1, 2, 4}
    assert {Plan.parse(text).ep for text in _texts(8)} == {1}


def test_a_pattern_of_layers_is_not_cut() -> None:
    patterned = ModelShape(**{name: getattr(TINY, name) for name in TINY.__dataclass_fields__} | {"period": 2})
    assert {Plan.parse(text).parts for text in _texts(4, shape=patterned)} == {1, 2}


@pytest.mark.parametrize("devices", [10**18, 10**18 + 9, 2**61 - 1])
def test_numbers_of_devices_that_no_batch_divides_are_not_factorised(devices: int) -> None:
    assert list(PlanSpace(shape=TINY, devices=devices, batch=8)) == []


@pytest.mark.parametrize("count", [1, 2, 12, 36, 97, 720])
def test_divisors_are_all_there_are_the_smallest_first(count: int) -> None:
    assert divisors(count) == tuple(n for n in range(1, count + 1) if count % n == 0)


def test_a_key_that_plans_do_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="no 'tensor'"):
        PlanSpace(shape=TINY, devices=2, batch=2, choices={"tensor": (2,)})


def test_the_number_of_degrees_is_that_of_factorisations() -> None:
    """Powers of two over dp, fsdp and pp without anything else: pairs (dp, fsdp), and for each pp above 1 one."""
    found = {(p.dp, p.fsdp, p.pp) for p in PlanSpace(shape=TINY, devices=8, batch=64, choices={"tp": (1,), "cp": (1,)})}
    assert len(found) == math.comb(3 + 1, 1) + 2


@pytest.mark.parametrize(
    ("target", "fix"),
    [("gpt2-smal", "did you mean 'gpt2-small'?"), ("step.mlir", "name a model"), ("mine:step", "name a model")],
)
def test_what_is_no_model_is_told_what_may_be_meant(target: str, fix: str) -> None:
    with pytest.raises(UsageError, match="plans are for models") as told:
        builder_of(target)
    assert (told.value.fix or "").startswith(fix)


def test_a_configuration_is_read_once_until_it_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    before = huggingface.read_builder

    def counting(path: Path) -> Builder:
        read.append(path)
        return before(path)

    monkeypatch.setattr(huggingface, "read_builder", counting)
    config = tmp_path / "config.json"
    text = (Path(__file__).parents[1] / "fixtures/huggingface/gpt2.json").read_text()
    config.write_text(text)
    settings = {"seq": "64", "batch": "8"}
    assert [model_shape(str(tmp_path), settings).layers for _ in range(3)] == [12] * 3
    builder_of(str(tmp_path))
    assert len(read) == 1
    config.write_text(text.replace('"n_layer": 12', '"n_layer": 6'))
    assert model_shape(str(tmp_path), settings).layers == 6
    assert len(read) == 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"batch": "0"}, "positive integer, not 0"),
        ({"batch": "many"}, "positive integer, not 'many'"),
        ({"batch": "8", "seq": "0"}, "positive integer, not 0"),
        ({"batch": "8", "sequence": "64"}, "no setting 'sequence'"),
    ],
)
def test_settings_that_there_are_not_are_refused_before_a_plan_is_tried(settings: dict[str, str], said: str) -> None:
    """Every plan would fail of them, each after its programs were asked for."""
    with pytest.raises(UsageError, match=said):
        model_shape("gpt2-tiny", settings)
