"""What a program returns as it was given: copied as XLA copies it, unless it is donated for that very output."""

from __future__ import annotations

import pytest

from meshcast import Options, predict
from meshcast.programs import from_bytes
from tests.lower.programs import kernels, lower_text

SIZE = 1 << 20


def program(arguments: str, body: str, results: str, count: int) -> str:
    types = ", ".join([f"tensor<{SIZE}xf32>"] * count)
    return f"func.func public @main({arguments}) -> ({types}) {{\n{body}  return {results} : {types}\n}}\n"


A, B = (f"%{name}: tensor<{SIZE}xf32>" for name in "ab")
DONATED = f"{A} {{tf.aliasing_output = 0 : i32}}"


@pytest.mark.parametrize("backend", ["xla-gpu", "xla-tpu"])
@pytest.mark.parametrize(
    ("text", "copies"),
    [
        (program(A, "", "%a", 1), 1),
        (program(DONATED, "", "%a", 1), 0),
        (program(f"{A} {{jax.buffer_donor = true}}", "", "%a", 1), 0),
        (program(f"{A} {{tf.aliasing_output = 1 : i32}}, {B} {{tf.aliasing_output = 0 : i32}}", "", "%a, %b", 2), 2),
        (program(f"{DONATED}, {B}", "", "%a, %b", 2), 1),
        (program(DONATED, "", "%a, %a", 2), 1),  # the second output needs memory of its own
        (program(A, f"  %0 = stablehlo.tanh %a : tensor<{SIZE}xf32>\n", "%0, %0", 2), 1),
        (program("", f"  %0 = stablehlo.constant dense<{list(range(4))}> : tensor<4xi32>\n", "%0", 1).replace(
            f"{SIZE}xf32", "4xi32"), 1),
    ],
)  # fmt: skip
def test_outputs_that_no_op_makes_are_copied(text: str, copies: int, backend: str) -> None:
    made = [kernel for kernel in kernels(lower_text(text, backend)) if "copy" in kernel.flags]
    assert len(made) == copies
    assert all(kernel.read_bytes == kernel.written_bytes > 0 for kernel in made)


def test_a_copy_reads_and_writes_what_is_returned() -> None:
    answer = predict(from_bytes(program(A, "", "%a", 1).encode(), name="identity", where="test"), Options(on="h200"))
    assert (answer.kernels, answer.hbm_bytes) == (1, 2 * SIZE * 4)
    assert answer.step_time_s is not None
    assert answer.step_time_s > 2 * SIZE * 4 / 4.8e12 / 2  # a part of it may stay in the cache
    assert not answer.warnings


@pytest.mark.parametrize(("on", "counted"), [("h200", True), ("tpu-v5e", False)])
def test_a_program_that_launches_nothing_says_so(on: str, counted: bool) -> None:
    answer = predict(from_bytes(program(DONATED, "", "%a", 1).encode(), name="donated", where="test"), Options(on=on))
    assert answer.kernels == 0
    assert "launches nothing" in " ".join(answer.warnings)
    assert answer.step_time_s is not None
    assert (answer.step_time_s > 1e-5) == counted  # a call of an executable takes the host tens of microseconds


LOOP = f"""
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %x = %a, %y = %b) : tensor<i32>, tensor<{SIZE}xf32>, tensor<{SIZE}xf32> cond {{
    %four = stablehlo.constant dense<4> : tensor<i32>
    %c = stablehlo.compare LT, %i, %four : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }} do {{
    %s = stablehlo.add %x, %y : tensor<{SIZE}xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %s, %y : tensor<i32>, tensor<{SIZE}xf32>, tensor<{SIZE}xf32>
  }}
"""


@pytest.mark.parametrize(("second", "copied"), [(B, True), (f"{B} {{tf.aliasing_output = 1 : i32}}", False)])
def test_what_a_loop_hands_on_unchanged_is_what_it_was_given(second: str, copied: bool) -> None:
    """Of the sums the loop's own copy is written over; the other array is an argument still, and copied behind the loop."""
    lowered = lower_text(program(f"{A}, {second}", LOOP, "%r#1, %r#2", 2))
    last = lowered.schedule.steps[-1]
    assert (lowered.schedule.outputs[1] == lowered.schedule.inputs[1]) is not copied
    assert (lowered.schedule.outputs[1] in last.writes and last.reads == lowered.schedule.inputs[1:2]) is copied
