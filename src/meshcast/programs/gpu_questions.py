"""What JAX asks the GPU while it traces for one, answered on machines that have none.

`jax.nn.dot_product_attention(implementation="cudnn")` asks for cuDNN's version and for the GPU's compute capability before it
writes its call, and refuses to trace without them; a program for a GPU can be captured anywhere. For the time of a capture,
and no longer, the questions are answered for a current GPU: cuDNN as recent as JAX knows differences of, and every capability
up to Hopper's. What an older GPU cannot run is so found when it runs, not when it is captured.

JAX's lowerings for GPUs drop the `cost_estimate` of a Pallas kernel. It is noted beside the call for the same time, where the
rules of custom calls find it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

from meshcast.programs.stand_ins import standing_in

CUDNN_VERSION = 91100  # 9.11: the last version that `jax._src.cudnn` of JAX 0.10 to 0.12 compares with
CAPABILITY = (9, 0)  # Hopper: what cuDNN's wide heads, packed layouts and latent attention ask for
ESTIMATE = "cost_estimate"
_ATTENTION = "jax._src.cudnn.fused_attention_stablehlo"
_PALLAS = "jax._src.pallas.pallas_call"
_changing = threading.RLock()  # the answers are module globals of JAX: one capture at a time gives and takes them back


@contextlib.contextmanager
def answered(platform: str) -> Iterator[None]:
    """JAX's questions about the GPU are answered inside, for `cuda` and `rocm`; all is as before afterwards."""
    if platform not in ("cuda", "rocm"):
        yield
        return
    answers: list[tuple[Any, str, Any]] = []
    if platform == "cuda" and (attention := _module(_ATTENTION)) is not None:
        answers += [
            (attention, "check_cudnn_version", lambda: CUDNN_VERSION),
            (attention, "check_compute_capability", lambda asked: _capability(asked) <= CAPABILITY),
            (attention, "is_cuda_compute_capability_equal", lambda asked: _capability(asked) == CAPABILITY),
        ]
    if (pallas := _module(_PALLAS)) is not None and hasattr(pallas, "pallas_call_p"):
        answers.append((pallas.pallas_call_p, "bind", _noting(pallas.pallas_call_p.bind)))
    with _changing, contextlib.ExitStack() as undo:
        for owner, name, answer in answers:
            if hasattr(owner, name):
                undo.enter_context(standing_in(owner, **{name: answer}))
        yield


def _module(name: str) -> Any | None:
    """A module of JAX's inside; None in a version that has it elsewhere: its own checks then answer."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _capability(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in str(text).split("."))


def _noting(bind: Callable[..., Any]) -> Callable[..., Any]:
    """`pallas_call_p.bind` that notes the call's estimate where it has one."""

    def noted(*args: Any, **parameters: Any) -> Any:
        from jax.experimental.xla_metadata import set_xla_metadata

        estimate = parameters.get(ESTIMATE)
        if estimate is None:
            return bind(*args, **parameters)
        names = ("flops", "transcendentals", "bytes_accessed")
        said = {name: int(getattr(estimate, name, 0) or 0) for name in names}
        with set_xla_metadata(**{ESTIMATE: json.dumps(said)}):
            return bind(*args, **parameters)

    return noted
