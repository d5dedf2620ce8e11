"""Released models are captured unmodified, in training under autocast and in inference.

They are held against PyTorch's own count of FLOPs, which comes from running the same module on the meta device: what capturing
lost, or did twice, would be missing here or there.
"""

from __future__ import annotations

import importlib.util
import math
from typing import TYPE_CHECKING, Any

import pytest

import meshcast

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")
for _needed in ("torchax", "transformers", "torchvision"):
    if importlib.util.find_spec(_needed) is None:
        pytest.skip(f"{_needed} is not installed", allow_module_level=True)

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from meshcast.jobs import chosen_options, job_source, predict_job, resolve_job  # noqa: E402
from tests.programs.torch_models import MODELS, Case, built  # noqa: E402

# Of causal attention torch counts the whole square and no second computation of the scores in the backward pass; of images it
# counts the padding too.
CLOSE = 0.05


def grouped_mm(a: Any, b: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    return 2 * math.prod(a[-2:]) * int(b[-1])


def convolution_backward(gradient: Any, _x: Any, weight: Any, *rest: Any, out_shape: Any = None, **__: Any) -> int:
    """Those of the forward pass for each of the gradients asked for; torch's own formula leaves groups out."""
    return 2 * math.prod(gradient) * math.prod(weight[1:]) * sum(rest[-1][:2])


FORMULAS = {
    torch.ops.aten._grouped_mm: grouped_mm,
    torch.ops.aten.convolution_backward: convolution_backward,
}


def flops(case: Case, *, train: bool) -> float:
    """FLOPs of products and convolutions by torch's counter; it cannot run what asks whether a mask holds anything."""
    torch.manual_seed(0)  # with which no layer is dropped: Whisper's are, one time in ten
    module, labels = case.module.to(torch.bfloat16), case.labels if train else {}
    inputs = {name: half(value) for name, value in case.inputs.items() if name != "attention_mask"}
    with FlopCounterMode(display=False, custom_mapping=FORMULAS) as counter, torch.set_grad_enabled(train):
        output = module(**inputs, **labels)
        if train:
            (output.loss if labels else total(output)).backward()
    return float(counter.get_total_flops())


def half(tensor: Any) -> Any:
    return tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor


def total(output: Any) -> Any:
    return getattr(output, "logits", output).float().sum()


def products(program: meshcast.Program) -> dict[str, float]:
    return dict(program.partition().workload().totals.matrix_flops)


@pytest.mark.parametrize("name", MODELS)
def test_a_released_model_trains_under_autocast(name: str) -> None:
    case = built(name)
    options: dict[str, Any] = {"kwargs": {**case.inputs, **case.labels}, "train": True, "autocast": "bfloat16"}
    if not case.labels:
        options["loss"] = total
    found = products(meshcast.capture_torch(case.module.train(), (), options))
    assert sum(found.values()) == pytest.approx(flops(case, train=True), rel=CLOSE)
    # Autocast leaves grouped products alone, so that experts multiply in the precision of their weights.
    assert set(found) == ({"bf16", "f32"} if name == "mixtral" else {"bf16"})


@pytest.mark.parametrize("name", MODELS)
def test_a_released_model_infers(name: str) -> None:
    module, inputs, _ = built(name)
    case = Case(module.to(torch.bfloat16).eval(), {key: half(value) for key, value in inputs.items()}, {})
    found, counted = (
        products(meshcast.capture_torch(case.module, (), {"kwargs": case.inputs})),
        flops(case, train=False),
    )
    assert found.pop("bf16") == pytest.approx(counted, rel=CLOSE)
    angles = sum(found.values())  # of rotary embeddings, which are products in fp32
    assert angles < 1e-3 * counted


@pytest.mark.parametrize("name", ["bert", "gpt2", "swin", "efficientnet", "densenet"])
def test_a_released_model_runs_on_pytorchs_own_kernels(name: str) -> None:
    """Eager and compiled: not refused, not faster than light, not tens of times slower; compiled kernels are fewer."""
    case = built(name)
    options: dict[str, Any] = {"kwargs": {**case.inputs, **case.labels}, "train": True, "autocast": "bfloat16"}
    if not case.labels:
        options["loss"] = total
    kernels, asked = [], {"on": "h200", "host": "off"}
    step = job_source((case.module.train(), (), options))  # captured once for a stack, and not once for every question
    for stack in ("pytorch-eager", "pytorch-compile"):
        found, light = (
            predict_job(
                resolve_job(step, chosen_options(None, {**asked, "stack": stack, "fidelity": fidelity}, where=""))
            )
            for fidelity in ("auto", "roofline")
        )
        assert found.step_time_s is not None
        assert light.step_time_s is not None
        assert light.step_time_s < found.step_time_s < 30 * light.step_time_s + found.kernels * 10e-6
        kernels.append(found.kernels)
    assert kernels[1] < kernels[0]
