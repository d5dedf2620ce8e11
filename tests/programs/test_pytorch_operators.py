"""Operators that released models call: the numbers that torch computes, and the precision that autocast gives them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import meshcast
from meshcast.base.errors import UnsupportedError

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")
if importlib.util.find_spec("torchax") is None:
    pytest.skip("torchax is not installed", allow_module_level=True)

from tests.programs.test_pytorch import computed, matrix_flops


class Calls(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


X = torch.empty(8, 16, device="meta")


def autocast(function: Callable[..., Any], *args: Any) -> str:
    """The text of a function under autocast."""
    return meshcast.capture_torch(Calls(function), args or (X,), {"autocast": "bfloat16"}).text


@pytest.mark.parametrize("join", [torch.cat, torch.stack, torch.concat])
@pytest.mark.parametrize(("narrow", "joined"), [(False, "f32"), (True, "bf16")])
def test_joined_operands_take_the_widest_precision(join: Any, narrow: bool, joined: str) -> None:
    # One of the two comes out of a product, in bf16; beside it one in fp32, or in bf16 too.
    def both(x: Any) -> Any:
        y = x @ x.T @ x
        return join([y.to(torch.bfloat16) if narrow else x.float(), y], dim=0)

    lines = [line for line in autocast(both).splitlines() if "stablehlo.concatenate" in line]
    assert [line.rsplit("x", 1)[1] for line in lines] == [f"{joined}>"]


def test_joined_operands_train_under_autocast() -> None:
    with torch.device("meta"):
        layer = torch.nn.Linear(16, 16)
    module = Calls(lambda x: layer(torch.cat((x, torch.stack([x, x]).sum(0)))).float().sum())
    module.layer = layer
    program = meshcast.capture_torch(module, (X,), {"train": True, "autocast": "bfloat16"})
    assert matrix_flops(program) == {"bf16": 2 * 2.0 * 16 * 16 * 16}  # forward, and the weights' gradient


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (
            lambda x: torch.nn.functional.conv1d(x[None].to(torch.bfloat16), x[:, :, None].transpose(0, 1)[:, :8]),
            "bf16",
        ),
        (lambda x: x.to(torch.bfloat16).pow(2), "f32"),
        (lambda x: x.to(torch.bfloat16).sum(), "f32"),
        (lambda x: x.to(torch.bfloat16).softmax(-1, dtype=torch.bfloat16), "bf16"),
        (lambda x: x.to(torch.bfloat16) + 1, "bf16"),
    ],
)
def test_autocast_casts_as_its_lists_say(function: Callable[..., Any], dtype: str) -> None:
    result = next(line for line in autocast(function).splitlines() if "func.func public @main" in line).split("->")[1]
    assert f"{dtype}>" in result


@pytest.mark.parametrize("ends", [(2, 5, 6), (0, 6, 6)])
def test_grouped_products_compute_what_torch_computes(ends: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    rows, weights, offs = torch.randn(6, 8), torch.randn(3, 8, 4), torch.tensor(ends, dtype=torch.int32)
    parts = list(zip((0, *ends), ends, strict=False))
    cases = {
        (rows, weights, offs): torch.cat([rows[a:b] @ w for (a, b), w in zip(parts, weights, strict=True)]),
        (weights.transpose(1, 2), rows.T, offs): torch.cat(
            [w.T @ rows[a:b].T for (a, b), w in zip(parts, weights, strict=True)], dim=1
        ),
        (rows.T, rows, offs): torch.stack([rows[a:b].T @ rows[a:b] for a, b in parts]),
        (weights, weights.transpose(1, 2)): weights @ weights.transpose(1, 2),
    }
    grouped = Calls(lambda a, b, offs=None: torch.nn.functional.grouped_mm(a, b, offs=offs))
    for args, expected in cases.items():
        (value,), _ = computed(grouped, tuple(each.contiguous() for each in args), {})
        np.testing.assert_allclose(value, expected.numpy(), atol=1e-5)


def test_grouped_products_count_every_row_once() -> None:
    a, b = (torch.empty(*shape, dtype=torch.bfloat16, device="meta") for shape in ((64, 32), (4, 32, 16)))
    offs = torch.empty(4, dtype=torch.int32, device="meta")
    grouped = Calls(lambda a, b, offs: torch.nn.functional.grouped_mm(a, b, offs=offs))
    assert matrix_flops(meshcast.capture_torch(grouped, (a, b, offs))) == {"bf16": 2.0 * 64 * 32 * 16}


@pytest.mark.parametrize(
    "count",
    [
        lambda x: torch.histc(x, bins=4, min=0, max=3),
        lambda x: torch.histc(x, bins=5, min=1, max=6),
        lambda x: torch.histc(x, bins=3),
        lambda x: torch.bincount(x.long(), minlength=9),
        lambda x: torch.bincount(x.long(), weights=x, minlength=9),
    ],
)
def test_counts_are_those_of_torch(count: Callable[[Any], Any]) -> None:
    x = torch.tensor([0.0, 3, 3, 1, 7, 2, 0, 6])
    (value,), _ = computed(Calls(count), (x,), {})
    np.testing.assert_allclose(value, count(x).numpy())


def test_a_count_of_unknown_length_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="give minlength"):
        meshcast.capture_torch(Calls(torch.bincount), (torch.empty(8, dtype=torch.long, device="meta"),))


def test_a_number_drawn_on_the_host_may_decide() -> None:
    # As layers are dropped: `torch.rand([])` is compared with a probability in Python.
    def dropped(x: Any, probability: float) -> Any:
        return x if torch.rand([]) < probability else x @ x.T

    for probability, products in ((0.0, 1), (1.0, 0)):
        program = meshcast.capture_torch(Calls(lambda x, p=probability: dropped(x, p)), (X,))
        assert program.text.count("dot_general") == products


def test_attention_inside_other_functions_is_fused() -> None:
    # `multi_head_attention_forward` is a function of Python's around it.
    with torch.device("meta"):
        module = torch.nn.MultiheadAttention(64, 4, batch_first=True, dtype=torch.bfloat16)
        x = torch.empty(2, 32, 64, dtype=torch.bfloat16)
    attend = Calls(lambda x: module(x, x, x, need_weights=False)[0])
    attend.inner = module
    assert "fused" in meshcast.capture_torch(attend, (x,)).source
