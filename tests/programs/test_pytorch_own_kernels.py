"""PyTorch's own kernels, recorded: autocast as on CUDA, lifetimes, the choice of attention, and what is not recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import meshcast

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

from meshcast.programs.pytorch.library import require_torch
from meshcast.programs.pytorch.options import TorchOptions
from meshcast.programs.pytorch.recording.calls import Recording
from meshcast.programs.pytorch.recording.cuda_choices import choose_attention
from meshcast.programs.pytorch.recording.recorder import record


def recorded(module: Any, *args: Any, compiled: bool = False, **options: Any) -> Recording:
    return record(module, args, TorchOptions(**options), label="step", compiled=compiled)


def net(*layers: Any) -> Any:
    with torch.device("meta"):
        return torch.nn.Sequential(*(layer() for layer in layers))


def linear() -> Any:
    return torch.nn.Linear(64, 64)


X = torch.empty(32, 64, device="meta")


def names(recording: Recording, phase: Any = "forward") -> list[str]:
    return [op.name for op in recording.phase(phase) if not op.shares]


def test_a_module_keeps_its_own_tensors() -> None:
    module = net(linear)
    before = module[0].weight
    assert names(recorded(module, X)) == ["addmm"]
    assert module[0].weight is before
    assert before.device.type == "meta"


def test_autocast_casts_as_on_cuda_and_weights_once() -> None:
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()
            self.norm = torch.nn.LayerNorm(64)

        def forward(self, x: Any) -> Any:
            return self.norm(self.inner(self.inner(x))).softmax(-1)

    with torch.device("meta"):
        module = Twice()
    step = recorded(module, X, train=True, loss=lambda out: out.sum(), autocast="bfloat16", optimizer="sgd")
    # x, weight and bias are cast once each; layer norm in fp32 of a cast result; softmax and sum in fp32 as they come.
    assert names(step) == ["_to_copy"] * 3 + ["addmm"] * 2 + ["_to_copy", "native_layer_norm", "_softmax", "sum"]
    assert all(op.cast for op in step.phase("forward") if not op.shares)
    assert not any(op.cast for op in step.phase("backward"))


def test_pieces_are_joined_as_they_are_under_autocast() -> None:
    """`cat` is in none of CUDA's lists: pieces of two dtypes are no longer cast before it, each with a kernel of its own."""

    class Joins(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(64, 64)

        def forward(self, x: Any) -> Any:
            return torch.cat((x, self.linear(x)), -1).float().mean()

    calls = [op for op in recorded(net(Joins), X, train=True, autocast="bfloat16").phase("forward") if not op.shares]
    (joined,) = (op for op in calls if op.name == "cat")
    assert [view.dtype for view in joined.takes] == ["float32", "bfloat16"]
    assert joined.gives[0].dtype == "float32"


def test_storages_live_as_long_as_they_do_in_pytorch() -> None:
    step = recorded(net(linear, torch.nn.GELU, linear), X)
    first, activated = [op.gives[0].storage for op in step.ops if op.name in ("addmm", "gelu")][:2]
    freed = {storage: i for i, op in enumerate(step.ops) for storage in op.frees}
    gelu = next(i for i, op in enumerate(step.ops) if op.name == "gelu")
    assert freed[first] > gelu
    assert activated not in freed or freed[activated] > freed[first]


def test_a_training_step_updates_every_parameter() -> None:
    step = recorded(net(linear, linear), X, train=True, loss=lambda out: out.sum())
    (update,) = [op for op in step.phase("optimizer") if op.name == "_fused_adamw_"]
    assert sum(place == "self" for place in update.place) == 4
    assert sum(role == "state" for role in step.held.values()) == 3 * 4  # two moments and a count
    assert {op.phase for op in step.ops} == {"forward", "backward", "optimizer"}


def test_dropout_is_one_fused_operator() -> None:
    step = recorded(net(linear, torch.nn.Dropout).train(), X, train=True, loss=lambda out: out.sum())
    assert "native_dropout" in names(step)
    assert "native_dropout_backward" in names(step, "backward")


@pytest.mark.parametrize(
    ("dtype", "head", "mask", "dropout", "chosen"),
    [
        ("bfloat16", 64, False, 0.0, "cudnn"), ("bfloat16", 64, True, 0.0, "cudnn"), ("bfloat16", 192, False, 0.0, "flash"),
        ("bfloat16", 192, True, 0.0, "efficient"), ("float32", 64, False, 0.0, "efficient"), ("bfloat16", 64, True, 0.1, "cudnn"),
        ("bfloat16", 30, False, 0.0, "flash"), ("bfloat16", 30, True, 0.0, "math"), ("float32", 30, False, 0.0, "math"),
    ],
)  # fmt: skip
def test_the_choice_of_an_attention(dtype: str, head: int, mask: bool, dropout: float, chosen: str) -> None:
    each = torch.empty(2, 4, 32, head, dtype=getattr(torch, dtype), device="meta")
    given = torch.empty(2, 1, 32, 32, device="meta") if mask else None
    assert choose_attention(each, each, each, given, dropout) == chosen


def test_a_mask_that_is_spread_over_keys_leaves_plain_products() -> None:
    """As `transformers` makes it for BERT while it is traced: no fused kernel takes operands whose neighbours lie apart."""
    each = torch.empty(2, 4, 32, 64, dtype=torch.bfloat16, device="meta")
    spread = torch.empty(2, 1, 32, 1, dtype=torch.bool, device="meta").expand(2, 1, 32, 32)
    assert choose_attention(each, each, each, spread, 0.0) == "math"
    assert choose_attention(each, each, each, spread.contiguous(), 0.0) == "cudnn"
    assert choose_attention(each.transpose(2, 3), each, each, None, 0.0) == "math"


def test_causal_attention_of_fewer_queries_than_keys_is_not_flash_attentions() -> None:
    query, key = (torch.empty(2, 4, n, 192, dtype=torch.bfloat16, device="meta") for n in (16, 32))
    assert choose_attention(query, key, key, None, 0.0) == "flash"
    assert choose_attention(query, key, key, None, 0.0, causal=True) == "efficient"


def test_heads_of_keys_that_are_spread_over_queries_take_plain_products() -> None:
    query, key = (torch.empty(2, heads, 64, 64, dtype=torch.bfloat16) for heads in (16, 1))
    assert choose_attention(query, key, key, None, 0.0, causal=True) == "math"
    assert choose_attention(query, key, key, None, 0.0, causal=True, grouped=True) == "cudnn"
    assert choose_attention(query, query, query, None, 0.0, causal=True) == "cudnn"


@pytest.mark.parametrize(("dtype", "head", "masked"), [("float32", 64, False), ("bfloat16", 192, True)])
def test_grouped_heads_are_nothing_for_the_memory_efficient_kernel(dtype: str, head: int, masked: bool) -> None:
    query, key = (torch.empty(2, n, 32, head, dtype=getattr(torch, dtype), device="meta") for n in (16, 4))
    mask = torch.empty(2, 1, 32, 32, device="meta") if masked else None
    assert choose_attention(query, query, query, mask, 0.0, grouped=True) == "efficient"
    assert choose_attention(query, key, key, mask, 0.0, grouped=True) == "math"


def test_attention_inside_a_module_is_the_chosen_kernel() -> None:
    with torch.device("meta"):
        module = torch.nn.MultiheadAttention(64, 4, batch_first=True, dtype=torch.bfloat16)
        x = torch.empty(2, 16, 64, dtype=torch.bfloat16)
    assert "_scaled_dot_product_cudnn_attention" in names(
        recorded(module.train(), x, x, x, kwargs={"need_weights": False})
    )


@pytest.mark.parametrize(
    ("head", "middle"),
    [(16, ["_scaled_dot_product_cudnn_attention"]), (12, ["add", "clone", "bmm", "_softmax", "bmm", "clone"])],
)
def test_a_tensors_attention_to_itself_is_one_operator_in_inference(head: int, middle: list[str]) -> None:
    """Queries, keys and values are one product that adds its biases, and lie where it wrote them; nothing else is copied."""
    with torch.device("meta"):
        module = torch.nn.MultiheadAttention(4 * head, 4, batch_first=True, dtype=torch.bfloat16).eval()
        x = torch.empty(2, 16, 4 * head, dtype=torch.bfloat16)
    options: dict[str, Any] = {"kwargs": {"need_weights": False}}
    calls = names(recorded(module, x, x, x, **options))
    assert calls == ["addmm" if head % 8 == 0 else "mm", *middle, "addmm"]
    # So it is too where torchax was imported, which switches the operator off.
    require_torch()
    assert names(recorded(module, x, x, x, **options)) == calls
    # Traced by Dynamo, which claims to export, it is written out: turned to have the batch second, and its biases added behind.
    assert "add" in names(recorded(module, x, x, x, compiled=True, **options))


@pytest.mark.parametrize("stack", ["pytorch-eager", "pytorch-compile"])
def test_a_stack_of_pytorch_runs_its_own_kernels(stack: str) -> None:
    module = net(linear, torch.nn.GELU, lambda: torch.nn.LayerNorm(64), linear)
    options = {"train": True, "loss": lambda out: out.float().mean(), "autocast": "bfloat16"}
    found = meshcast.predict((module, (X,), options), on="h200", stack=stack, levers=False)
    assert found.feasible
    eager = meshcast.predict((module, (X,), options), on="h200", stack="pytorch-eager", levers=False)
    assert found.kernels <= eager.kernels
    assert found.memory.peak > 4 * 4 * 64 * 64 * 2
    assert not any("fused attention" in warning for warning in found.warnings)  # PyTorch has chosen among its own


def test_values_that_decide() -> None:
    """A mask that is asked about masks nothing; a layer that is dropped by chance is not."""

    class Asks(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            if (x > 0).all():
                x = x + 1
            return x if torch.rand([]) < 0.1 else x * 2

    step = recorded(Asks(), X)
    assert [name for name in names(step) if name in ("add", "mul")] == ["add", "mul"]
    assert sum(op.waits for op in step.ops) == 1  # the chance is drawn on the host


def test_tensors_that_are_made_on_the_host_launch_nothing_and_wait_when_they_move() -> None:
    class Biased(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            places = torch.arange(64)[None, :] - torch.arange(32)[:, None]  # on the host: no device was named
            own = torch.zeros(64, device=x.device)
            return x + places.abs().to(x.device) + own

    step = recorded(Biased(), X)
    assert names(step) == ["zeros", "add", "add"]
    assert sum(op.waits for op in step.ops) == 1
    # Inductor makes them on the device.
    traced = recorded(Biased(), X, compiled=True)
    assert sum(op.waits for op in traced.ops) == 0
    assert "arange" in names(traced)


def test_numbers_of_python_for_the_device_wait_and_those_that_stay_do_not() -> None:
    class Scaled(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            if torch.rand([]) < 0.0:  # the host's own number decides
                x = x + 1
            return x * torch.tensor(2.0, device=x.device)

    step = recorded(Scaled(), X)
    assert sum(op.waits for op in step.ops) == 1
    assert names(step)[-1] == "mul"


def test_numbers_of_the_host_are_known_where_they_are_computed_of_pythons() -> None:
    """Embeddings that are cut at bounds which a module computes as tensors on the host."""

    class Cuts(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            middle = torch.tensor(min(x.shape[-1], 48))
            return x[:, 32 - middle // 2 : 32 + middle // 2] * 2

    step = recorded(Cuts(), X)
    assert [op.gives[0].shape for op in step.ops if op.name == "mul"] == [(32, 48)]
    assert sum(op.waits for op in step.ops) == 0


def test_several_devices_are_told_apart() -> None:
    module = net(linear)
    found = meshcast.predict((module, (X,), {"mesh": {"dp": 2}}), on="dgx-h100", stack="pytorch-ddp", levers=False)
    assert any("spread over several devices" in warning for warning in found.warnings)


def test_results_of_modules_inside_which_a_graph_ends() -> None:
    """Whether a layer is dropped is read inside the model: its logits are a graph's result, though only the loss is used."""

    class Dropping(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(8, 32)

        def forward(self, x: Any) -> Any:
            if torch.rand([]) < 0.1:
                return {"logits": x, "loss": x.sum()}
            logits = self.head(x)
            return {"logits": logits, "loss": logits.sum()}

    class Answer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = Dropping()

        def forward(self, x: Any) -> Any:
            return self.model(x)["loss"]

    options = TorchOptions(train=True)
    found = record(Answer(), (torch.randn(4, 8),), options, label="step", compiled=True)
    assert [view.shape for view in found.passed_on] == [(4, 32)]
    eager = record(Answer(), (torch.randn(4, 8),), options, label="step")
    assert eager.passed_on == ()


def test_calls_that_write_nothing_launch_nothing() -> None:
    """A part of no channels beside others, as rotary embeddings of whole heads leave it."""

    def turned(x: Any) -> Any:
        rest = x[..., 8:] * 2
        return torch.cat([x * 2, rest], -1)

    found = meshcast.predict((turned, (torch.empty(4, 8, device="meta"),)), on="h200", stack="pytorch-eager")
    assert found.kernels == 2
