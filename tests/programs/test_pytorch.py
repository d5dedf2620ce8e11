"""PyTorch modules become programs: the same numbers as torch computes, the same predictions as JAX's."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshcast
from meshcast.base.errors import InputError, UnsupportedError, UsageError
from meshcast.workload import OpKind
from meshcast.zoo import build

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")
if importlib.util.find_spec("torchax") is None:
    pytest.skip("torchax is not installed", allow_module_level=True)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pytorch"


@pytest.fixture
def gpt(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import gpt

    return gpt


@pytest.fixture
def resnet(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import resnet

    return resnet


def computed(module: Any, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Any]:
    """What the captured function computes on the module's own weights, and its overwritten buffers."""
    from meshcast.programs.pytorch.library import require_torch

    require_torch()
    from meshcast.programs.pytorch.tracing.traced_module import Tracing

    function, shapes, _ = Tracing(
        module, args, meshcast.TorchOptions(**options), label="test", platform="cpu"
    ).program()
    values = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    *states, batch = shapes
    given = [
        {name: jnp.asarray(values[name].detach().numpy()).astype(struct.dtype) for name, struct in state.items()}
        for state in states
    ]
    inputs = [
        jnp.asarray(tensor.numpy()).astype(struct.dtype) for tensor, struct in zip(args, batch.values(), strict=True)
    ]
    return jax.jit(function)(*given, dict(zip(batch, inputs, strict=True)))


def test_a_transformer_computes_what_torch_computes(gpt: Any) -> None:
    torch.manual_seed(0)
    module = gpt.GPT(layers=2, dim=32, heads=4, vocab=50, positions=16)
    tokens = torch.randint(50, (2, 16))
    (logits,), _ = computed(module, (tokens,), {})
    np.testing.assert_allclose(logits, module(tokens).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_a_network_of_images_computes_what_torch_computes(resnet: Any, training: bool) -> None:
    torch.manual_seed(0)
    module = resnet.ResNet(blocks=(1, 1), width=4, classes=10).train(training)
    images = torch.randn(4, 3, 32, 32)
    (logits,), buffers = computed(module, (images,), {})
    np.testing.assert_allclose(logits, module(images).detach().numpy(), atol=1e-4)
    assert bool(buffers) is training
    for name, buffer in module.named_buffers():  # torch has overwritten its own by now
        if training:
            np.testing.assert_allclose(buffers[name], buffer.numpy(), atol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_computes_what_torch_computes(reduction: str) -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(6, 5), torch.tensor([0, 1, 4, -100, 2, 2])
    function = torch.nn.CrossEntropyLoss(reduction=reduction)
    (value,), _ = computed(function, (logits, labels), {})
    np.testing.assert_allclose(value, function(logits, labels).numpy(), atol=1e-6)


@pytest.mark.parametrize("heads", [4, 2])
def test_plain_attention_computes_what_torch_computes(heads: int) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 6, 8), torch.randn(2, heads, 6, 8), torch.randn(2, heads, 6, 8)

    class Attend(torch.nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != 4)

    (value,), _ = computed(Attend(), (q, k, v), {})
    np.testing.assert_allclose(value, Attend()(q, k, v).numpy(), atol=1e-5)


def zoo(name: str, **settings: Any) -> meshcast.Program:
    function, args, options = build(name, **settings)
    return meshcast.capture(function, *args, options=options, name=name)


def matrix_flops(program: meshcast.Program) -> dict[str, float]:
    return program.partition().workload().totals.matrix_flops


LAYERS, BLOCKS = 3, (2, 1, 1, 1)


@pytest.fixture(scope="module")
def captured() -> dict[str, meshcast.Program]:
    sys.path.insert(0, str(EXAMPLES))
    try:
        import gpt
        import resnet
    finally:
        sys.path.remove(str(EXAMPLES))
    # Of the published widths, with fewer layers on both sides.
    _, *language = gpt.train()
    _, images, training = resnet.train()
    with torch.device("meta"):
        transformer, network = gpt.GPT(layers=LAYERS, dim=768, heads=12), resnet.ResNet(blocks=BLOCKS)
    return {
        "gpt2-small": meshcast.capture_torch(transformer, *language),
        "resnet50": meshcast.capture_torch(network, images, {**training, "optimizer": "sgd"}),
    }


@pytest.mark.parametrize(
    ("name", "settings"),
    [("gpt2-small", {"scan": False, "attention": "flash", "layers": LAYERS}), ("resnet50", {"blocks": BLOCKS})],
)
def test_torch_and_jax_agree(captured: dict[str, meshcast.Program], name: str, settings: dict[str, Any]) -> None:
    ours, theirs = captured[name], zoo(name, **settings)
    assert matrix_flops(ours) == matrix_flops(theirs)
    on: dict[str, Any] = {"on": "h200", "fidelity": "analytical"}
    torch_time, jax_time = (meshcast.predict(program, **on).step_time_s for program in (ours, theirs))
    assert torch_time is not None
    assert torch_time == pytest.approx(jax_time, rel=0.05)


def test_a_training_step_overwrites_its_state(captured: dict[str, meshcast.Program]) -> None:
    arguments = captured["resnet50"].arguments
    roles = {argument.role.value for argument in arguments}
    assert {"parameter", "optimizer_state", "batch"} <= roles
    assert all(argument.donated for argument in arguments if argument.role.value == "optimizer_state")
    assert any("running_mean" in argument.name and argument.donated for argument in arguments)
    assert not any(argument.donated for argument in arguments if argument.role.value == "batch")


def test_seventy_billion_parameters_need_no_memory() -> None:
    with torch.device("meta"):
        module, x = torch.nn.Linear(100_000, 700_000), torch.empty(2, 100_000)
    program = meshcast.capture_torch(module, (x,), {"train": True, "loss": lambda y: y.square().mean()})
    assert meshcast.predict(program, on="h200").feasible is False


def test_fake_tensors_do_as_well() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        module, x = torch.nn.Linear(64, 32), torch.empty(8, 64)
    assert "dot_general" in meshcast.capture_torch(module, (x,)).text


def linear(**options: Any) -> meshcast.Program:
    with torch.device("meta"):
        module, x = (
            torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)),
            torch.empty(8, 64),
        )
    return meshcast.capture_torch(module, (x,), {"train": True, "loss": lambda y: y.square().mean(), **options})


@pytest.mark.parametrize("option", ["compute_dtype", "autocast"])
def test_lower_precision_reaches_the_products(option: str) -> None:
    text = linear(**{option: "bfloat16"}).text
    products = [line for line in text.splitlines() if "dot_general" in line]
    assert products
    assert all("bf16" in line for line in products)
    assert "tensor<64x64xf32>" in text  # the weights themselves


@pytest.mark.parametrize(("optimizer", "states"), [("adamw", 9), ("sgd", 4)])
def test_optimizers_have_their_state(optimizer: str, states: int) -> None:
    arguments = linear(optimizer=optimizer).arguments
    assert sum(argument.role.value == "optimizer_state" for argument in arguments) == states


def test_an_optimizer_of_torch_gives_its_settings() -> None:
    with torch.device("meta"):
        plain = torch.optim.SGD([torch.nn.Parameter(torch.empty(2))], lr=0.1)
        odd = torch.optim.Adagrad([torch.nn.Parameter(torch.empty(2))])
    assert not [a for a in linear(optimizer=plain).arguments if a.role.value == "optimizer_state"]
    with pytest.raises(UnsupportedError, match="Adagrad"):
        linear(optimizer=odd)


def test_frozen_parameters_have_no_gradient() -> None:
    with torch.device("meta"):
        module, x = torch.nn.Linear(64, 64, bias=False), torch.empty(8, 64)
        adapter = torch.nn.Sequential(module, torch.nn.Linear(64, 64, bias=False))
    whole = meshcast.capture_torch(adapter, (x,), {"train": True, "loss": lambda y: y.sum()})
    module.requires_grad_(False)
    adapted = meshcast.capture_torch(adapter, (x,), {"train": True, "loss": lambda y: y.sum()})
    # Forward twice; backward two weights' gradients and one of activations, or one gradient alone.
    assert (whole.text.count("dot_general"), adapted.text.count("dot_general")) == (5, 3)


@pytest.mark.parametrize("way", ["option", "torch.utils.checkpoint"])
def test_recomputation_adds_products(way: str) -> None:
    from torch.utils.checkpoint import checkpoint

    class Twice(torch.nn.Module):
        def __init__(self, recomputed: bool) -> None:
            super().__init__()
            self.body = torch.nn.Sequential(
                torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh()
            )
            self.recomputed = recomputed

        def forward(self, x: Any) -> Any:
            return (checkpoint(self.body, x, use_reentrant=False) if self.recomputed else self.body(x)).sum()

    def products(recomputed: bool, **options: Any) -> int:
        with torch.device("meta"):
            module, x = Twice(recomputed), torch.empty(8, 64)
        return meshcast.capture_torch(module, (x,), {"train": True, **options}).text.count("stablehlo.dot_general")

    again = products(False, remat="body") if way == "option" else products(True)
    assert again > products(False)


class Attend(torch.nn.Module):
    def forward(self, q: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)


@pytest.mark.parametrize(
    ("dtype", "platform", "fused"), [("bfloat16", "cuda", True), ("float32", "cuda", False), ("bfloat16", "tpu", False)]
)
def test_attention_is_fused_where_it_can_be(dtype: str, platform: str, fused: bool) -> None:
    q = torch.empty(2, 4, 128, 64, dtype=getattr(torch, dtype), device="meta")
    program = meshcast.capture_torch(Attend(), (q,), platform=platform)
    workload = program.partition().workload()
    kinds = [op.cost.geometry for op, _ in workload.walk() if op.cost.kind is OpKind.CUSTOM]
    assert [type(each).__name__ for each in kinds] == (["Attention"] if fused else [])
    assert ("fused" in program.source) is fused
    if not fused:
        with pytest.raises(UnsupportedError, match="no fused attention here"):
            meshcast.capture_torch(Attend(), (q,), {"attention": "flash"}, platform=platform)


HIDDEN = torch.empty(8, device="meta")
NARROW = torch.nn.Linear(6, 6)
BROKEN: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "no lowering": (lambda y: torch.special.airy_ai(y), UnsupportedError, "special_airy_ai cannot be lowered"),
    "a branch": (lambda y: y if y.sum() > 0 else -y, UnsupportedError, "depends on the values"),
    "a size": (lambda y: y[y > 0], UnsupportedError, "depends on the values"),
    "backward": (lambda y: y.sum().backward(), UsageError, "backward"),
    "a hidden tensor": (lambda y: y + HIDDEN, UsageError, "neither an argument, a parameter nor a buffer"),
    "shapes": (lambda y: torch.cat([y, y[:, :3]]), InputError, "cat: "),
    "a product's shapes": (lambda y: y @ y, InputError, r"matmul.*\[4, 8\] X \[4, 8\]"),
    "a layer's shapes": (lambda y: NARROW(y), InputError, r"linear: .*\[4, 8\] X \[6, 6\]"),
    "a custom operator": (lambda y: torch.ops.meshcast_test.twice(y), UnsupportedError, "meshcast_test::twice"),
    "another tracer": (lambda y: torch.cond(y.sum() > 0, torch.neg, torch.abs, (y,)), UnsupportedError, "cond"),
}


@torch.library.custom_op("meshcast_test::twice", mutates_args=())
def _twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize("case", BROKEN)
def test_mistakes_name_the_line(case: str) -> None:
    body, kind, said = BROKEN[case]

    class Broken(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return body(x * 2)

    with pytest.raises(kind, match=said) as caught:
        meshcast.capture_torch(Broken(), (torch.empty(4, 8, device="meta"),))
    line = body.__code__.co_firstlineno
    assert f"{Path(__file__).name}:{line}" in str(caught.value)


def test_a_mistake_between_layers_names_the_layer() -> None:
    with torch.device("meta"):
        module, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(4, 4)), torch.empty(2, 8)
    with pytest.raises(InputError, match=r"submodule 1 \(Linear\(in_features=4"):
        meshcast.capture_torch(module, (x,))


def test_doubles_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"torch\.float64 is not modelled"):
        meshcast.capture_torch(torch.nn.Linear(2, 2).double(), (torch.empty(2, 2),))


def test_the_command_line_takes_modules(tmp_path: Path) -> None:
    source = (EXAMPLES / "gpt.py").read_text().replace("GPT(layers=12, dim=768", "GPT(layers=1, dim=768")
    (tmp_path / "small.py").write_text(source)
    command = [
        sys.executable,
        "-m",
        "meshcast",
        "predict",
        f"{tmp_path / 'small.py'}:tensor_parallel",
        "--on",
        "dgx-h100",
    ]
    done = subprocess.run([*command, "--fidelity", "analytical", "--json"], check=True, capture_output=True, text=True)
    line = json.loads(done.stdout)
    assert line["target"]["mesh"] == {"dp": 2, "tp": 4}
    assert line["communication_bytes"] > 0


def test_inputs_tell_how_a_program_was_made() -> None:
    """By options, and by what a step does itself while it is traced."""
    with torch.device("meta"):
        model, x = torch.nn.Linear(64, 1), torch.empty(8, 64)
    optimizer = torch.optim.SGD(model.parameters())

    def step(x: Any) -> Any:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    assert dict(meshcast.capture_torch(model, (x,)).facts) == {"mode": "forward"}
    assert dict(meshcast.capture_torch(step, (x,)).facts) == {
        "mode": "train",
        "optimizer": "sgd",
        "autocast": "bfloat16",
    }
    q = torch.empty(2, 4, 128, 64, dtype=torch.bfloat16, device="meta")
    found = meshcast.predict(meshcast.capture_torch(Attend(), (q,)), on="h200").inputs
    assert found is not None
    assert {"mode": "forward", "attention": "flash"}.items() <= found.values.items()
    assert not {"mode", "attention"} & set(found.defaults)
