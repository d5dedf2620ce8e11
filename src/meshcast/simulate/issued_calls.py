"""Steps that a framework issues op by op: its host prepares every launch, and the device works behind it.

    t_i = max(h_i, d_(i-1)) + kernel_i,   h_i = max(h_(i-1), d_(i-Q)) + work_i

with h the host's clock, d the end of a kernel, Q the launches that a stream holds before the host has to wait (1,024 on CUDA),
and steps back to back until one takes as long as the last. Where values are read back (`wait`), the host stands still until
the device is done.

Costs are those of a virtual machine with one H200 (PyTorch 2.11) that takes 12.4 us to issue the addition of two small tensors:
the one of the 15 steps that the default host was chosen by (ResNet-50, MobileNetV3, ConvNeXt, Swin, Llama, Qwen3, BERT, T5).
What kinds of calls cost relative to each other was chosen by wall times of 87 eager and compiled steps of six sittings and by
the host's time of the phases of 24 of them, each sitting with a pace of its own, and checked on chains of single kinds
(`data/measured/h200-torch-host`). How many microseconds an addition takes there was found in a seventh sitting, where
additions were timed in turns with the steps of 24 models (`data/measured/h200-torch-exam-4`): its steps are 0.80 and 0.73 of
these costs where an addition takes 9.9 and 9.3 us. Nine sittings have paces of 0.60 to 1.03. Servers differ by a factor of
three, and one machine's cores by 1.6 within seconds: `fast` stands for bare metal with a high clock.

A profiler that ran earlier in the process (Kineto leaves CUPTI subscribed) adds 40 % to an addition, 3 to 5 us a launch: no
cost here has it, but compiled steps of five of the sittings were measured so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from meshcast.base import HOST_WORK, Dimension, UsageError, parse_quantity

QUEUE = 1024  # launches that wait in a stream at most
ADDITION = (
    12.4e-6  # seconds in which the host of these costs issues the addition of two small tensors, without gradients
)
_FAST = 1 / 3
_STEPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCosts:
    """Seconds of the host's time."""

    view: float = 9e-6  # another view of a tensor: dispatcher and autograd, nothing is launched
    call: float = 21e-6  # an operator: the same, its checks, its memory
    module: float = 8e-6  # of Python: the call of a module
    cast: float = 5e-6  # of autocast, for an operator of the forward pass
    compiled: float = 13e-6  # a kernel of Inductor's from its Python wrapper, with the memory of its results
    library: float = 24e-6  # a library's call from there, with the views that it wants
    parameter: float = 13e-6  # of Python, for each parameter that an optimizer updates
    kernel: float = 6e-6  # every launch
    convolution: float = 28e-6  # a plan of cuDNN's from compiled code: looked up by its shapes, its workspace, its run
    gradient: float = (
        37e-6  # a parameter's way through compiled passes: guards, checks of strides, what autograd adds up
    )
    graph: float = 350e-6  # guards, AOTAutograd's wrappers, autograd's own node
    plain: float = 16.5e-6  # an operator without gradients
    plain_view: float = 8.5e-6
    returned: float = 24.5e-6  # an operator of the backward pass, with autograd's node for it
    returned_view: float = 4e-6
    accumulated: float = 15e-6  # a gradient that is added to its parameter
    guarded: float = 3e-6  # a parameter that a compiled graph looks at
    tracked: float = 20e-6  # and one that it hands to autograd with what the backward pass needs

    def scaled(self, factor: float) -> CallCosts:
        """The costs on another host."""
        return replace(self, **{each.name: getattr(self, each.name) * factor for each in fields(self)})


def call_costs(host: str) -> CallCosts:
    """The costs by what `--host` says: `fast`, the time of an addition of small tensors, else those that were measured.

    Raises:
        UsageError: It is no word for a host, and no time above 0.
    """
    costs = CallCosts()
    if host in ("auto", "on", "off", "slow"):
        return costs
    if host == "fast":
        return costs.scaled(_FAST)
    addition = parse_quantity(host, Dimension.TIME) if host[:1].isdigit() else 0.0
    if addition <= 0:
        raise UsageError(f"no host setting {host!r}", where="--host", fix="slow, fast, off, or a time such as 8us")
    return costs.scaled(addition / ADDITION)


def issued_step(kernels: Sequence[float], work: Sequence[Sequence[int]], costs: CallCosts) -> float:
    """Seconds of a step among steps that are issued back to back.

    Args:
        kernels: Seconds of the device for each launch, with the pause before it.
        work: Before each launch, how often the host does what (`HOST_WORK`).
        costs: What that takes it.
    """
    waits = HOST_WORK.index("wait")
    prices = [getattr(costs, name, 0.0) for name in HOST_WORK]
    needed = [costs.kernel + sum(n * price for n, price in zip(each, prices, strict=False)) for each in work]
    stops = [len(each) > waits and each[waits] > 0 for each in work]
    host = device = before = 0.0
    ends: deque[float] = deque(maxlen=QUEUE)
    for _ in range(_STEPS):
        before = device
        for seconds, wanted, stop in zip(kernels, needed, stops, strict=True):
            if stop:
                host = max(host, device)
            if len(ends) == QUEUE:
                host = max(host, ends[0])
            host += wanted
            device = max(host, device) + seconds
            ends.append(device)
    return device - before
