"""XLA HLO text in: before and after optimisation, with what the compiler decided kept as attributes."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from meshcast.base.errors import InputError, UnsupportedError
from meshcast.programs import hlo_text, mlir
from meshcast.programs.hlo_groups import spelled_out

GROUND_TRUTH = Path(__file__).parents[3] / "shared" / "groundtruth"

# A cut-down scheduled GPU program: a loop with asynchronous work, library calls, fusions, layouts, copies.
OPTIMISED = """HloModule jit_step, is_scheduled=true, entry_computation_layout={(f32[8,16]{1,0}, f32[12,16,16]{2,1,0})->f32[128]{0}}, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%fused_slice (p0: f32[12,16,16], p1: s32[]) -> f32[1,16,16] {
  %p0 = f32[12,16,16]{2,1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %slice = f32[1,16,16]{2,1,0} dynamic-slice(%p0, %p1, %zero, %zero), dynamic_slice_sizes={1,16,16}
}

%fused_pair (q0: f32[8,16]) -> (f32[8,16], f32[16,8]) {
  %q0 = f32[8,16]{1,0} parameter(0)
  %exp = f32[8,16]{1,0} exponential(%q0), metadata={op_name="jit(step)/exp"}
  %erf = f32[8,16]{1,0} erf(%exp)
  %turned = f32[16,8]{1,0} transpose(%erf), dimensions={1,0}
  ROOT %pair = (f32[8,16]{1,0}, f32[16,8]{1,0}) tuple(%exp, %turned)
}

%condition (c: (s32[], f32[8,16], f32[12,16,16])) -> pred[] {
  %c = (s32[], f32[8,16]{1,0}, f32[12,16,16]{2,1,0}) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %n = s32[] constant(12)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

%body (d: (s32[], f32[8,16], f32[12,16,16])) -> (s32[], f32[8,16], f32[12,16,16]) {
  %d = (s32[], f32[8,16]{1,0}, f32[12,16,16]{2,1,0}) parameter(0)
  %j = s32[] get-tuple-element(%d), index=0
  %x = f32[8,16]{1,0} get-tuple-element(%d), index=1
  %ws = f32[12,16,16]{2,1,0} get-tuple-element(%d), index=2
  %fusion-start = ((f32[12,16,16]{2,1,0}, s32[]), f32[1,16,16]{2,1,0}, u32[]) fusion-start(%ws, %j), kind=kLoop, calls=%fused_slice
  %reduce-start = f32[8,16]{1,0} all-reduce-start(%x), channel_id=1, replica_groups=[2,4]<=[4,2]T(1,0), use_global_device_ids=true, to_apply=%add
  %one = s32[] constant(1)
  %next = s32[] add(%j, %one)
  %w = f32[1,16,16]{2,1,0} fusion-done(%fusion-start)
  %w2 = f32[16,16]{0,1} bitcast(%w)
  %reduced = f32[8,16]{1,0} all-reduce-done(%reduce-start)
  %matmul = (f32[8,16]{1,0}, s8[4096]{0}) custom-call(%reduced, %w2), custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{"alpha_real":1,"epilogue":"DEFAULT"}}
  %y = f32[8,16]{1,0} get-tuple-element(%matmul), index=0
  ROOT %carried = (s32[], f32[8,16]{1,0}, f32[12,16,16]{2,1,0}) tuple(%next, %y, %ws)
}

ENTRY %main (x0: f32[8,16], w0: f32[12,16,16]) -> f32[128] {
  %x0 = f32[8,16]{1,0} parameter(0), metadata={op_name="x"}
  %w0 = f32[12,16,16]{2,1,0} parameter(1), metadata={op_name="w"}
  %start = s32[] constant(0)
  %tuple = (s32[], f32[8,16]{1,0}, f32[12,16,16]{2,1,0}) tuple(%start, %x0, %w0)
  %while = (s32[], f32[8,16]{1,0}, f32[12,16,16]{2,1,0}) while(%tuple), condition=%condition, body=%body, metadata={op_name="jit(step)/while"}, backend_config={"known_induction_variable":{"tuple_index":"0"},"known_trip_count":{"n":"12"}}
  %z = f32[8,16]{1,0} get-tuple-element(%while), index=1
  %both = (f32[8,16]{1,0}, f32[16,8]{1,0}) fusion(%z), kind=kInput, calls=%fused_pair, metadata={op_name="jit(step)/exp"}, backend_config={"force_earliest_schedule":false,"fusion_backend_config":{"kind":"__triton"},"operation_queue_id":"0"}
  %first = f32[8,16]{1,0} get-tuple-element(%both), index=0
  %image = f32[1,2,4,16]{3,2,1,0} bitcast(%first)
  %kernel = f32[16,1,1,16]{3,2,1,0} constant({...})
  %conv = (f32[1,2,4,16]{3,2,1,0}, u8[0]{0}) custom-call(%image, %kernel), window={size=1x1}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convForward"
  %out = f32[1,2,4,16]{3,2,1,0} get-tuple-element(%conv), index=0
  %copy = f32[1,2,4,16]{0,3,2,1} copy(%out)
  ROOT %flat = f32[128]{0} bitcast(%copy)
}
"""  # noqa: E501


class Operations(list[Any]):
    """Every op of a module in text order; the module must live as long as they do."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module


def operations(module: Any) -> Operations:
    found = Operations(module)

    def visit(operation: Any) -> None:
        for region in operation.regions:
            for block in region.blocks:
                for op in block.operations:
                    found.append(op.operation)
                    visit(op.operation)

    visit(module.operation)
    return found


def converted(text: str) -> Operations:
    return operations(mlir.parse_module(hlo_text.to_stablehlo(text, where="test.hlo"), where="converted"))


def entry(body: str, *, result: str, header: str = "") -> str:
    """A module of one computation over `x: f32[8,16]` and `y: f32[8,16]`."""
    return (
        f"HloModule m, num_partitions=8{header}\n\n"
        "%add (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
        "  ROOT %s = f32[] add(%a, %b)\n}\n\n"
        f"ENTRY %main (x: f32[8,16], y: f32[8,16]) -> {result} {{\n"
        "  %x = f32[8,16]{1,0} parameter(0)\n  %y = f32[8,16]{1,0} parameter(1)\n  " + body + "\n}\n"
    )


def matrix_products(operations: list[Any]) -> Counter[str]:
    products = [op for op in operations if op.name in ("stablehlo.dot_general", "stablehlo.dot")]
    return Counter(str([*(v.type for v in op.operands), *(v.type for v in op.results)]) for op in products)


def attribute(op: Any, name: str) -> str:
    return str(op.attributes[f"meshcast.{name}"]).strip('"')


class TestUnoptimised:
    def test_jax_program_keeps_its_matrix_products_loops_and_names(self) -> None:
        def step(weights: jax.Array, x: jax.Array) -> jax.Array:
            def layer(h: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
                return jax.nn.gelu(h @ w, approximate=False), None

            return jax.grad(lambda ws: jnp.sum(jax.lax.scan(layer, x, ws)[0]))(weights)

        shapes = jax.ShapeDtypeStruct((6, 32, 32), jnp.float32), jax.ShapeDtypeStruct((8, 32), jnp.float32)
        lowered = jax.jit(step).lower(*shapes)
        text = lowered.as_text(dialect="hlo")
        assert hlo_text.looks_like_hlo(text[:100])
        found = converted(text)
        original = operations(mlir.parse_module(lowered.as_text(), where="original"))
        assert matrix_products(found) == matrix_products(original)
        assert sum(op.name == "stablehlo.while" for op in found) == 2
        assert any("dot_general" in str(op.location) for op in found)

    def test_stablehlo_is_not_hlo(self) -> None:
        assert not hlo_text.looks_like_hlo("module @jit_f {")
        with pytest.raises(InputError, match="does not start with 'HloModule'"):
            hlo_text.to_stablehlo("module @jit_f {}", where="f.mlir")

    def test_copies_before_scheduling_cost_nothing(self) -> None:
        found = converted(entry("ROOT %r = f32[8,16]{1,0} copy(%x)", result="f32[8,16]"))
        assert "stablehlo.transpose" not in {op.name for op in found}


class TestOptimised:
    @pytest.fixture(scope="class")
    def found(self) -> list[Any]:
        return converted(OPTIMISED)

    def named(self, found: list[Any], name: str) -> list[Any]:
        return [op for op in found if op.name == name]

    def test_loop_count_survives(self, found: list[Any]) -> None:
        (loop,) = self.named(found, "stablehlo.while")
        assert attribute(loop, "trip_count") == "12 : i64"
        assert "jit(step)/while" in str(loop.location)

    def test_fusions_become_calls_that_say_so(self, found: list[Any]) -> None:
        calls = {attribute(op, "name"): op for op in self.named(found, "func.call")}
        assert set(calls) == {"both", "fusion-start"}
        assert attribute(calls["both"], "fusion") == "kInput"
        assert "__triton" in attribute(calls["both"], "backend_config")
        assert "force_earliest_schedule" not in attribute(calls["both"], "backend_config")
        assert [str(value.type) for value in calls["both"].results] == ["tensor<8x16xf32>", "tensor<16x8xf32>"]

    def test_asynchronous_work_starts_and_ends_where_it_was_scheduled(self, found: list[Any]) -> None:
        (reduce,) = self.named(found, "stablehlo.all_reduce")
        assert attribute(reduce, "async") == "start"
        assert "[[0, 2, 4, 6], [1, 3, 5, 7]]" in str(reduce.attributes["replica_groups"])
        inside = [op.name for op in found[found.index(reduce) - 1 :] if op.name != "stablehlo.constant"]
        # func.call and all_reduce start; the counter's add runs beside them (reducer's add and return come first).
        assert inside[:6] == [
            "func.call",
            "stablehlo.all_reduce",
            "stablehlo.add",
            "stablehlo.return",
            "stablehlo.add",
            "stablehlo.optimization_barrier",
        ]
        waits = [attribute(op, "waits_for") for op in self.named(found, "stablehlo.optimization_barrier")]
        assert waits == ["fusion", "all-reduce"]

    def test_library_calls_keep_configuration_layouts_and_windows(self, found: list[Any]) -> None:
        matmul, convolution = self.named(found, "stablehlo.custom_call")
        assert "alpha_real" in str(matmul.attributes["backend_config"])
        assert attribute(matmul, "layouts") == "{1,0},{0,1}->{1,0},{0}"
        assert [str(value.type) for value in matmul.results] == ["tensor<8x16xf32>", "tensor<4096xi8>"]
        assert attribute(convolution, "dim_labels") == "b01f_o01i->b01f"
        assert attribute(convolution, "window") == "{size=1x1}"

    def test_bitcasts_are_views_and_copies_are_work(self, found: list[Any]) -> None:
        copies = [op for op in self.named(found, "stablehlo.transpose") if "meshcast.copy" in op.attributes]
        assert [attribute(op, "layouts") for op in copies] == ["{3,2,1,0}->{0,3,2,1}"]
        assert len(self.named(found, "stablehlo.reshape")) == 3

    def test_nothing_of_hlo_is_left(self, found: list[Any]) -> None:
        names = {op.name for op in found}
        assert not {name for name in names if name.startswith("mhlo.") or "tuple" in name}
        assert "chlo.erf" in names
        functions = {str(op.attributes["sym_name"]) for op in self.named(found, "func.func")}
        assert functions == {'"main"', '"fused_pair"', '"fused_slice"'}  # loop bodies stand in the loop only


@pytest.mark.parametrize(
    ("body", "result", "op", "types"),
    [
        (
            "all-gather(%x), replica_groups=[2,4]<=[8], dimensions={0}",
            "f32[32,16]",
            "all_gather",
            ["tensor<32x16xf32>"],
        ),
        (
            "all-gather(%x), replica_groups=mesh['a'=4,'b'=2] {'b'}, channel_id=1, dimensions={1}, "
            "use_global_device_ids=true",
            "f32[8,32]",
            "all_gather",
            ["tensor<8x32xf32>"],
        ),
        (
            "reduce-scatter(%x, %y), replica_groups={{0,1},{2,3}}, dimensions={0}, to_apply=%add",
            "(f32[4,16], f32[4,16])",
            "reduce_scatter",
            ["tensor<4x16xf32>"],
        ),
        (
            "all-to-all(%x, %y), replica_groups={{0,1},{2,3}}",
            "(f32[8,16], f32[8,16])",
            "all_to_all",
            ["tensor<8x16xf32>", "tensor<8x16xf32>"],
        ),
        (
            "collective-permute(%x), source_target_pairs={{0,1},{1,0}}",
            "f32[8,16]",
            "collective_permute",
            ["tensor<8x16xf32>"],
        ),
    ],
)
def test_collectives_keep_shapes(body: str, result: str, op: str, types: list[str]) -> None:
    found = converted(entry(f"ROOT %r = {result} {body}", result=result))
    collectives = [each for each in found if each.name == f"stablehlo.{op}"]
    assert collectives
    assert all([str(value.type) for value in each.results] == types for each in collectives)
    assert all("replica_group_mesh_axes" not in str(each) for each in collectives)


@pytest.mark.parametrize(
    ("groups", "iota"),
    [
        ("{{0,1},{2,3}}", "{{0,1},{2,3}}"),
        ("[2,4]<=[4,2]T(1,0)", "[2,4]<=[4,2]T(1,0)"),
        ("mesh['a'=4,'b'=2] {'a'}", "[2,4]<=[4,2]T(1,0)"),
        ("mesh['a'=4,'b'=2] {'b'}", "[4,2]<=[8]"),
        ("mesh['a'=8] {'a'}", "[1,8]<=[8]"),
        ("mesh['a'=2,'b'=1,'c'=4], device_ids=([4,2]T(1,0)) {'a'}", "{{0,1},{2,3},{4,5},{6,7}}"),
        ("mesh['a'=2,'b'=2], device_ids=(0,2,1,3) {'b'}", "{{0,2},{1,3}}"),
        ("mesh['a'=4,'b'=2] {'b','a'}", "[1,8]<=[4,2]T(1,0)"),
        ("mesh['a'=4,'b'=2] {'a':(2)2}", "[4,2]<=[2,2,2]T(0,2,1)"),
        ("mesh['a'=4,'b'=2] {'a':(1)2}", "[4,2]<=[2,2,2]T(1,2,0)"),
    ],
)
def test_groups_named_by_mesh_axes(groups: str, iota: str) -> None:
    assert spelled_out(groups) == iota


@pytest.mark.parametrize("result", ["f64[8,8]", "bf16[256]", "s32[128]"])
def test_bitcasts_to_another_element_type(result: str) -> None:
    found = converted(entry(f"ROOT %r = {result} bitcast(%x)", result=result))
    assert sum(op.name == "stablehlo.bitcast_convert" for op in found) == 1


def test_elements_of_tuples_spelled_as_newer_xla_does() -> None:
    body = (
        "%pair = (f32[8,16]{1,0}, f32[8,16]{1,0}) tuple(%x, %y)\n"
        "  %kept = (f32[8,16]{1,0}, f32[8,16]{1,0}) opt-barrier(%pair)\n"
        "  ROOT %r = f32[8,16]{1,0} add(%kept#0, %kept#1)"
    )
    found = converted(entry(body, result="f32[8,16]"))
    assert [op.name for op in found][:3] == ["func.func", "stablehlo.optimization_barrier", "stablehlo.add"]


@pytest.mark.parametrize(
    ("start", "done"),
    [
        ("async-start(%a), calls=%body", "async-done"),
        ("call-start(%a), to_apply=%body", "call-done"),
        ("fusion-start(%a), kind=kLoop, calls=%body", "fusion-done"),
    ],
)
def test_asynchronous_ops_whose_tuple_shows_an_operand(start: str, done: str) -> None:
    """What of the pair's tuple aliases an operand is nothing that the op itself may say."""
    text = f"""HloModule m, is_scheduled=true

%body (p: f32[64]) -> f32[64] {{
  %p = f32[64]{{0}} parameter(0)
  ROOT %r = f32[64]{{0}} negate(%p)
}}

ENTRY %main {{
  %a = f32[64]{{0}} parameter(0)
  %s = ((f32[64]{{0}}), f32[64]{{0}}, u32[]) {start}, output_to_operand_aliasing={{{{1}}: (0, {{}})}}
  ROOT %d = f32[64]{{0}} {done}(%s)
}}
"""
    assert "stablehlo.negate" in hlo_text.to_stablehlo(text, where="m.hlo")


def test_collectives_that_say_which_operand_they_show() -> None:
    """As XLA's newer releases print an all-reduce of a pipeline's stage; jaxlib's own parser may not know it."""
    text = """HloModule m, is_scheduled=true, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

ENTRY %main {
  %x = f32[64]{0} parameter(0)
  ROOT %r = f32[64]{0} all-reduce(%x), replica_groups={{0,1}}, to_apply=%add, output_to_operand_aliasing={{}: (0, {})}
}
"""
    assert "stablehlo.all_reduce" in hlo_text.to_stablehlo(text, where="m.hlo")


class TestErrors:
    def test_syntax_error_names_line_and_column(self) -> None:
        text = entry("ROOT %r = f32[8,16] addd(%x, %y)", result="f32[8,16]")
        with pytest.raises(InputError, match="Unknown opcode: addd") as caught:
            hlo_text.to_stablehlo(text, where="broken.hlo")
        assert re.fullmatch(r"broken\.hlo:12:\d+", str(caught.value.where))

    @pytest.mark.parametrize("length", [12, 200, 1000, 3000])
    def test_truncated_text(self, length: int) -> None:
        with pytest.raises(InputError):
            hlo_text.to_stablehlo(OPTIMISED[:length], where="cut.hlo")

    def test_shapes_that_do_not_fit(self) -> None:
        text = entry("ROOT %r = f32[3] add(%x, %y)", result="f32[3]")
        with pytest.raises(InputError, match="same shape"):
            hlo_text.to_stablehlo(text, where="broken.hlo")

    def test_bitcast_to_another_size(self) -> None:
        text = entry("ROOT %r = f32[127] bitcast(%x)", result="f32[127]")
        with pytest.raises(InputError, match=r"'r' makes f32\[127\] of f32\[8,16\]"):
            hlo_text.to_stablehlo(text, where="broken.hlo")

    def test_ops_without_a_stablehlo_form(self) -> None:
        body = (
            "%sizes = s64[2] constant({4, 4})\n  %w = f32[2,16,4] constant({...})\n"
            "  ROOT %r = f32[8,4] ragged-dot(%x, %w, %sizes), lhs_contracting_dims={1}, rhs_contracting_dims={1}, "
            "lhs_ragged_dims={0}, rhs_group_dims={0}"
        )
        with pytest.raises(UnsupportedError, match="ragged_dot"):
            hlo_text.to_stablehlo(entry(body, result="f32[8,4]"), where="ragged.hlo")


def instructions_of(text: str) -> set[str]:
    """Opcodes, kinds of fusion and targets of custom calls."""
    calls = re.findall(r'custom_call_target="[^"]*"|kind=k\w+', text)
    return {*re.findall(r"[\]})] ([a-z][a-z0-9-]*)\(", text), *calls}


@pytest.mark.skipif(not GROUND_TRUTH.is_dir(), reason="needs the measured programs beside the repository")
def test_every_instruction_of_measured_programs_converts() -> None:
    """The smallest programs first, and of larger ones those that have an instruction of another kind."""
    files = sorted(GROUND_TRUTH.glob("*/programs/*.opt.hlo.gz"), key=lambda path: (path.stat().st_size, path.name))
    assert files
    seen: set[str] = set()
    for path in files:
        text = gzip.decompress(path.read_bytes()).decode()
        kinds = instructions_of(text)
        if kinds <= seen:
            continue
        seen |= kinds
        found = Counter(op.name for op in converted(text))
        expected = Counter(re.findall(r" (custom-call|dot|while|sort|reduce)\(", text))
        assert found["stablehlo.custom_call"] == expected["custom-call"], path.name
        assert found["stablehlo.dot"] + found["stablehlo.dot_general"] == expected["dot"], path.name
        assert found["stablehlo.reduce"] == expected["reduce"], path.name
        assert found["stablehlo.while"] == expected["while"], path.name


def test_a_view_that_only_a_branch_reads_stands_before_the_branch() -> None:
    text = """HloModule m, is_scheduled=true

%fill (e: ()) -> (f32[8]) {
  %e = () parameter(0)
  %zero = f32[] constant(0)
  %zeros = f32[8]{0} broadcast(%zero), dimensions={}
  ROOT %of_zeros = (f32[8]{0}) tuple(%zeros)
}

%keep (t: (f32[8])) -> (f32[8]) {
  %t = (f32[8]{0}) parameter(0)
  %g = f32[8]{0} get-tuple-element(%t), index=0
  %copy = f32[8]{0} copy(%g)
  ROOT %of_copy = (f32[8]{0}) tuple(%copy)
}

ENTRY %main {
  %p = pred[] parameter(0)
  %x = f32[8,1]{1,0} parameter(1)
  %tanh = f32[8,1]{1,0} tanh(%x)
  %view = f32[8]{0} bitcast(%tanh)
  %read = (f32[8]{0}) tuple(%view)
  %nothing = () tuple()
  %chosen = (f32[8]{0}) conditional(%p, %nothing, %read), true_computation=%fill, false_computation=%keep
  ROOT %r = f32[8]{0} get-tuple-element(%chosen), index=0
}
"""
    module = mlir.parse_module(
        hlo_text.to_stablehlo(text, where="branch.hlo"), where="branch.hlo"
    )  # which checks who dominates whom
    names = [op.operation.name for op in module.body.operations[0].regions[0].blocks[0].operations]
    assert names.index("stablehlo.reshape") < names.index("stablehlo.if")
