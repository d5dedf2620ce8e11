"""Small models over eight devices, each captured once for all tests of this folder."""

from __future__ import annotations

from functools import cache

from meshcast import zoo
from meshcast.programs import Program, capture

MESHES = {
    "llama3-tiny": {"fsdp": 4, "tensor": 2},
    "llama3-tiny-decode": {"data": 4, "tensor": 2},
    "gpt2-tiny": {"data": 4, "tensor": 2},
    "mixtral-tiny": {"fsdp": 2, "expert": 4},
    "resnet-tiny": {"data": 8},
    "vit-tiny": {"data": 8},
    "dlrm-tiny": {"data": 8},
    "mlp-tiny": {"data": 4, "tensor": 2},
}


@cache
def program_of(name: str) -> Program:
    """The model's program for a CPU, which XLA's own partitioner runs on."""
    function, arguments, options = zoo.build(name, mesh=MESHES[name])
    return capture(function, *arguments, name=name, platform="cpu", options=options)
