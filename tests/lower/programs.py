"""Small programs for tests: StableHLO text or JAX functions in, kernels out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from meshcast import prepare
from meshcast.jobs.program.run import Run
from meshcast.lower import Kernel, LoopStep, LoweredProgram, Schedule, lower
from meshcast.options.options import Options
from meshcast.programs import capture, from_bytes
from meshcast.workload import Workload, read_workload

FOUR_LAYERS = {"batch": "16", "seq": "64", "layers": "4"}


def read_text(text: str) -> Workload:
    return read_workload(from_bytes(text.encode(), name="fixture", where="fixture.mlir"))


def lower_text(text: str, backend: str = "xla-gpu") -> LoweredProgram:
    return lower(read_text(text), backend=backend)


def lower_function(
    function: Callable[..., Any], *args: Any, backend: str = "xla-gpu", **options: Any
) -> LoweredProgram:
    return lower(read_workload(capture(function, *args, name="function", **options)), backend=backend)


def spec(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def kernels(lowered: LoweredProgram) -> list[Kernel]:
    """Kernels of the outermost block."""
    return [step for step in lowered.schedule.steps if isinstance(step, Kernel)]


def loops(lowered: LoweredProgram) -> list[LoopStep]:
    return [step for step in lowered.schedule.steps if isinstance(step, LoopStep)]


def all_loops(schedule: Schedule) -> list[LoopStep]:
    """Loops, and those inside of them."""
    found = [step for step in schedule.steps if isinstance(step, LoopStep)]
    return [*found, *(inner for loop in found for inner in all_loops(loop.body))]


def planned(plan: str, overlap: str, layers: str = "separate", model: str = "llama3-tiny") -> Run:
    """A tiny model of four layers under a plan."""
    options = Options(on="dgx-h100", plan=plan, settings=FOUR_LAYERS, overlap=overlap, layers=layers)
    return prepare(model, options)


def all_reduce_text(order: tuple[str, ...], devices: int = 4) -> str:
    """One all-reduce of %a, 1 MiB, and products of %b, in the given order: "reduce", "multiply", "use"."""
    ops = {
        "reduce": f"""%r = "stablehlo.all_reduce"(%a) ({{
            ^bb0(%x: tensor<f32>, %y: tensor<f32>):
              %s = stablehlo.add %x, %y : tensor<f32>
              stablehlo.return %s : tensor<f32>
          }}) {{replica_groups = dense<{[list(range(devices))]}> : tensor<1x{devices}xi64>}}
          : (tensor<512x512xf32>) -> tensor<512x512xf32>""",
        "multiply": """%p = stablehlo.dot_general %b, %b, contracting_dims = [1] x [0]
          : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>""",
        "use": """%u = stablehlo.dot_general %r, %r, contracting_dims = [1] x [0]
          : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>""",
    }
    body = "\n".join(ops[name] for name in order)
    return f"""
    module @m attributes {{mhlo.num_partitions = {devices} : i32}} {{
      func.func public @main(%a: tensor<512x512xf32>, %b: tensor<512x512xf32>)
          -> (tensor<512x512xf32>, tensor<512x512xf32>) {{
        {body}
        return %p, %u : tensor<512x512xf32>, tensor<512x512xf32>
      }}
    }}"""
