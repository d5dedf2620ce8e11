"""The real compiler: its target descriptions, cache and errors without it; a whole compile where it is installed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshcast import Options, compare, predict, prepare
from meshcast.base.cache import cache_folder
from meshcast.base.child import ChildCrashedError, ChildFailedError, ChildTimedOutError
from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.hardware import device_names, load_device
from meshcast.jobs import predict_with_job
from meshcast.jobs.program.lowering import forget_lowered
from meshcast.lower.choice import choose_lowering
from meshcast.lower.compiled.real_compilers import lower_compiled
from meshcast.lower.compiled.xla_gpu import compiler
from meshcast.lower.compiled.xla_gpu.installation import Installation, found_gpu_compiler, own_folder
from meshcast.lower.compiled.xla_gpu.target import lanes_per_core, target_config
from meshcast.programs.files import from_bytes
from meshcast.programs.program import Program
from meshcast.report import prediction_data, subject_of
from meshcast.simulate import peak_memory

H200 = load_device("h200")
PROGRAM = """
module @m {
  func.func public @main(%a: tensor<512x256xbf16>, %b: tensor<256x128xbf16>) -> tensor<512x128xbf16> {
    %p = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<512x256xbf16>, tensor<256x128xbf16>) -> tensor<512x128xbf16>
    %t = stablehlo.tanh %p : tensor<512x128xbf16>
    return %t : tensor<512x128xbf16>
  }
}
"""
FACTORISED = """
module @m {
  func.func public @main(%a: tensor<64x64xf32>) -> tensor<64x64xf32> {
    %two = stablehlo.add %a, %a : tensor<64x64xf32>
    %f:2 = stablehlo.custom_call @cusolver_potrf_ffi(%two) {api_version = 4 : i32, backend_config = {lower = true},
      operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
      result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>]}
      : (tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<i32>)
    %t = stablehlo.tanh %f#0 : tensor<64x64xf32>
    return %t : tensor<64x64xf32>
  }
}
"""
COMPILED = """HloModule m, is_scheduled=true

ENTRY %main {
  %a = bf16[512,256]{1,0} parameter(0)
  %b = bf16[256,128]{1,0} parameter(1)
  %d = bf16[512,128]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %t = bf16[512,128]{1,0} tanh(%d)
}
"""
ANSWER = {"hlo": COMPILED, "arguments": 100, "outputs": 20, "temporaries": 7, "aliased": 3}


@pytest.fixture
def program() -> Program:
    return from_bytes(PROGRAM.encode(), name="net", where="net.mlir")


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[Mapping[str, str]]]:
    """Puts an installed compiler in place that gives these answers, one after the other; returns the flags it saw."""

    def install(*answers: Any) -> list[Mapping[str, str]]:
        seen: list[Mapping[str, str]] = []
        waiting = list(answers)

        def request(header: Mapping[str, Any], data: bytes, *, timeout_s: float) -> bytes:
            seen.append(header["flags"])
            answer = waiting.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return json.dumps(answer).encode()

        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr(compiler._child, "request", request)
        found = Installation(release="compiler 1", library=Path("plugin.so"), toolkit=Path("cuda"))
        monkeypatch.setattr(compiler, "found_gpu_compiler", lambda: found)
        forget_lowered()
        return seen

    return install


class TestTargets:
    def test_a_description_has_the_data_sheet_and_the_core(self) -> None:
        text = target_config(H200)
        for line in (
            "core_count: 132",
            "fpus_per_core: 128",
            "shared_memory_per_core: 233472",
            "shared_memory_per_block_optin: 232448",
            "memory_bandwidth: 4800000000000",
            "cuda_compute_capability { major: 9 minor: 0 feature_extension: ACCELERATED_FEATURES }",
        ):
            assert line in text

    @pytest.mark.parametrize("name", [n for n in device_names() if load_device(n).vendor == "NVIDIA"])
    def test_every_nvidia_gpu_has_one(self, name: str) -> None:
        device = load_device(name)
        # GP100, Volta, Turing and the Ampere of data centres (GA100) have 64 f32 units an SM, all others 128.
        few = ("p100", "v100", "t4", "a100", "a800", "a30")
        assert lanes_per_core(device) == (64 if name.startswith(few) else 128)
        assert "cuda_compute_capability" in target_config(device)

    @pytest.mark.parametrize("name", ["mi300x", "tpu-v5e", "cpu-generic"])
    def test_others_are_unsupported(self, name: str) -> None:
        with pytest.raises(UnsupportedError, match="does not compile for"):
            target_config(load_device(name))

    def test_what_is_missing_is_named(self) -> None:
        with pytest.raises(UnsupportedError, match="compute_capability, threads, registers"):
            target_config(replace(H200, core=None))

    def test_hosts_have_eight_gpus(self) -> None:
        assert [compiler.topology(n) for n in (1, 6, 8, 64)] == ["1x1x1", "1x1x6", "1x1x8", "1x8x8"]


class TestCompiling:
    def test_kernels_memory_and_origin(self, program: Program, answering: Any) -> None:
        answering(ANSWER)
        found = lower_compiled(program, H200)
        assert found.lowering == "compiled"
        assert [kernel.name for kernel, _ in found.schedule.walk()] == ["d", "t"]
        run = replace(prepare(program, Options(on="h200", lowering="modelled")), lowered=found)
        memory = run.memory
        assert (memory.arguments, memory.outputs, memory.temporaries, memory.aliased) == (100, 20, 7, 3)
        assert memory.peak == 124
        assert run.predict().to_json()["lowering"] == "compiled"

    def test_a_product_that_cublas_would_win_has_its_workspace(self, answering: Any) -> None:
        def temporaries(rows: int) -> int:
            hlo = COMPILED.replace("512", str(rows)).replace("256", "8192").replace("128", "4096")
            answering({**ANSWER, "hlo": hlo})
            text = PROGRAM.replace("512", str(rows)).replace("256", "8192").replace("128", "4096")
            found = lower_compiled(from_bytes(text.encode(), name="net", where="net.mlir"), H200)
            return peak_memory(found, H200).temporaries

        assert temporaries(16) == 7  # few rows stay with Triton: what the compiler states
        # A workspace; the result of the library's call lies in the memory of the output that is made of it.
        assert temporaries(2048) == 7 + 32 * 2**20

    def test_the_second_time_comes_from_the_cache(self, program: Program, answering: Any) -> None:
        seen = answering(ANSWER, ANSWER)
        first = compiler.compile_program(program, H200)
        assert compiler.compile_program(program, H200) == first
        assert len(seen) == 1
        compiler.compile_program(program, load_device("a100"))  # another target is another entry
        assert len(seen) == 2

    def test_a_damaged_entry_counts_as_absent(self, program: Program, answering: Any) -> None:
        seen = answering(ANSWER, ANSWER)
        compiler.compile_program(program, H200)
        (entry,) = cache_folder(compiler._CACHE).rglob("*.json.gz")
        entry.write_bytes(entry.read_bytes()[:-20])
        compiler.compile_program(program, H200)
        assert len(seen) == 2

    def test_products_that_triton_cannot_tile_become_library_calls(self, program: Program, answering: Any) -> None:
        seen = answering(ChildFailedError("INTERNAL: Couldn't find output tile sizes that satisfy hlo"), ANSWER)
        compiler.compile_program(program, H200)
        assert seen == [compiler.TRITON, compiler.CUBLAS]

    def test_several_devices_get_the_scheduler_that_hides_latency(
        self, program: Program, answering: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from meshcast.cli.doctor import SHARDED_PRODUCT

        hiding = {"xla_gpu_enable_latency_hiding_scheduler": "True"}
        sharded = from_bytes(SHARDED_PRODUCT.encode(), name="product", where="doctor")
        seen = answering(*([ANSWER] * 4))
        compiler.compile_program(program, H200)  # one device alone sends nothing
        compiler.compile_program(sharded, H200)
        compiler.compile_program(sharded, H200, hides_latency=False)  # is another entry of the cache
        monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_latency_hiding_scheduler=false")
        compiler.compile_program(sharded, H200)  # who sets the flag is not overruled
        assert seen == [compiler.TRITON, {**compiler.TRITON, **hiding}, compiler.TRITON, compiler.TRITON]

    @pytest.mark.parametrize(
        ("scheduler", "hides"), [("latency-hiding", True), ("ideal", True), ("program", False), ("serial", False)]
    )
    def test_the_scheduler_that_is_asked_for_is_the_compilers(
        self, scheduler: Any, hides: bool, answering: Any
    ) -> None:
        from meshcast.cli.doctor import SHARDED_PRODUCT

        seen = answering(ANSWER)
        sharded = from_bytes(SHARDED_PRODUCT.encode(), name="product", where="doctor")
        predict(sharded, on="dgx-h200", lowering="compiled", scheduler=scheduler, levers=False)
        assert ["xla_gpu_enable_latency_hiding_scheduler" in flags for flags in seen] == [hides]

    @pytest.mark.parametrize("failure", [ChildFailedError("INVALID: no such thing"), ChildCrashedError(-6, "check")])
    def test_a_refusal_or_crash_is_an_error_for_whoever_asked(
        self, failure: Exception, program: Program, answering: Any
    ) -> None:
        answering(failure, failure)
        with pytest.raises(UnsupportedError, match=r"no such thing|check"):
            predict(program, on="h200", lowering="compiled")

    def test_without_being_asked_for_it_is_a_warning(self, program: Program, answering: Any) -> None:
        answering(ChildFailedError("INVALID: no such thing"))
        found = predict(program, on="h200")
        assert found.lowering == "modelled"
        assert any("the lowering is modelled instead" in warning for warning in found.warnings)

    def test_what_takes_too_long_is_told_and_not_waited_for_again(self, program: Program, answering: Any) -> None:
        seen = answering(ChildTimedOutError(-9, ""), ANSWER)
        with pytest.raises(UnsupportedError, match="takes longer than 20 s for this program") as caught:
            compiler.compile_program(program, H200, limit_s=20.0)
        assert "--compile-limit 40" in str(caught.value.fix)
        with pytest.raises(UnsupportedError, match="as an earlier run found"):
            compiler.compile_program(program, H200, limit_s=10.0)
        assert len(seen) == 1
        assert compiler.compile_program(program, H200, limit_s=40.0).hlo == COMPILED  # who allows more is served
        assert len(seen) == 2

    def test_where_auto_asked_kernels_are_modelled_after_the_limit(self, program: Program, answering: Any) -> None:
        answering(ChildTimedOutError(-9, ""))
        found = predict(program, on="h200", compile_limit=20)
        assert found.lowering == "modelled"
        assert any("takes longer than 20 s" in warning for warning in found.warnings)
        with pytest.raises(UsageError, match="a limit of -1 s"):
            predict(program, on="h200", compile_limit=-1)

    def test_a_prediction_says_who_compiled_and_for_how_long(self, program: Program, answering: Any) -> None:
        answering(ANSWER)
        first = predict(program, on="h200", levers=False)
        assert first.to_json()["compiler"]["release"] == "compiler 1"
        assert first.to_json()["compiler"]["kept"] is False
        assert "compiled  by compiler 1 in" in " ".join(str(first).split(" ")).replace("   ", "  ")
        forget_lowered()
        second = predict(program, on="h200", levers=False).to_json()["compiler"]
        assert second == {**first.to_json()["compiler"], "kept": True}

    def test_what_would_help_is_not_compiled(self, answering: Any) -> None:
        program = from_bytes(PROGRAM.replace("512", "8192").encode(), name="net", where="net.mlir")
        seen = answering({**ANSWER, "hlo": COMPILED.replace("512", "8192")})
        found = predict(program, on="h200", levers=6)
        assert found.lowering == "compiled"
        assert len(seen) == 1
        modelled = predict(program, on="h200", levers=6, lowering="modelled")
        assert [(each.flag, each.saved_share) for each in found.levers] == [
            (each.flag, each.saved_share) for each in modelled.levers
        ]
        assert found.levers
        for ours, theirs in zip(found.levers, modelled.levers, strict=True):
            assert ours.step_time_s / (found.step_time_s or 0) == pytest.approx(
                theirs.step_time_s / (modelled.step_time_s or 0)
            )

    def test_a_comparison_of_several_is_not_compiled(self, program: Program, answering: Any) -> None:
        seen = answering(ANSWER)
        several = compare(program, on=["h200", "a100"], fidelities="auto")
        assert {cell.prediction["lowering"] for cell in several.cells if cell.prediction} == {"modelled"}
        assert not seen
        (alone,) = compare(program, on="h200", fidelities="auto").cells
        assert alone.prediction is not None
        assert alone.prediction["lowering"] == "compiled"

    def test_fidelity_compiled_times_the_compilers_kernels(self, program: Program, answering: Any) -> None:
        answering(ANSWER)
        found = predict(program, on="h200", fidelity="compiled")
        assert (found.fidelity, found.lowering, found.kernels) == ("compiled", "compiled", 2)

    def test_a_report_has_the_compilers_memory_over_time_and_by_line(self, tmp_path: Path, answering: Any) -> None:
        """Of three products the first result is there alone, then beside the second; the block has room for one more."""
        type, size = "tensor<512x512xbf16>", 512 * 512 * 2
        chain = ((1, "a", "b"), (2, "1", "b"), (3, "2", "1"))
        lines = [
            f"%{n} = stablehlo.dot_general %{one}, %{other}, contracting_dims = [1] x [0] : ({type}, {type}) -> {type} "
            f'loc("product_{n}"("model.py":{n}:3))'
            for n, one, other in chain
        ]
        text = "\n".join(
            (f"func.func public @main(%a: {type}, %b: {type}) -> {type} {{", *lines, f"return %3 : {type}", "}")
        )
        made = [
            f"{'ROOT ' if n == 3 else ''}%p{n} = bf16[512,512]{{1,0}} dot(%{'p' * one.isdigit()}{one}, "
            f"%{'p' * other.isdigit()}{other}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, "
            f'metadata={{op_name="product_{n}"}}'
            for n, one, other in chain
        ]
        head = "HloModule m, is_scheduled=true\n\nENTRY %main {"
        given = [f"%{name} = bf16[512,512]{{1,0}} parameter({at})" for at, name in enumerate("ab")]
        hlo = "\n  ".join((head, *given, *made)) + "\n}\n"
        answering({"hlo": hlo, "arguments": 2 * size, "outputs": size, "temporaries": 3 * size, "aliased": 0})
        program = from_bytes(text.encode(), name="chain", where="chain.mlir")
        found = subject_of(*predict_with_job(program, Options(on="h200", lowering="compiled")))
        section = prediction_data(found, traces=False, only=("memory",))["sections"]["memory"]
        (scene,) = section["scenes"]
        assert max(scene["total"]["values"]) == section["peak"] == found.prediction.memory.peak
        parts = {part["name"]: sorted({*part["values"]}) for part in scene["parts"]}
        assert parts["temporaries"] == [size, 2 * size]
        assert parts["room between buffers"] == [size]
        rows = [row for row in section["buffers"]["rows"] if row[3] == "temporary"]
        assert [(row[1], row[4]) for row in rows] == [(size, "model.py:1"), (size, "model.py:2"), (size, "")]

    def test_lowerings_are_kept_apart(self, program: Program, answering: Any) -> None:
        answering(ANSWER)
        modelled = prepare(program, Options(on="h200", lowering="modelled")).lowered
        compiled = prepare(program, Options(on="h200", lowering="compiled")).lowered
        assert (modelled.lowering, compiled.lowering) == ("modelled", "compiled")


class TestChoice:
    def test_auto_models_unless_the_compiler_is_preferred_and_there(self, program: Program, answering: Any) -> None:
        answering()
        assert choose_lowering("auto", program, H200, prefer_compiled=False) == "modelled"
        assert choose_lowering("auto", program, H200, prefer_compiled=True) == "compiled"
        assert choose_lowering("auto", program, load_device("mi300x"), prefer_compiled=True) == "modelled"

    def test_a_compiled_program_stays_as_it_is(self) -> None:
        given = from_bytes(COMPILED.encode(), name="net", where="net.hlo")
        assert choose_lowering("auto", given, H200, prefer_compiled=True) == "given"
        assert choose_lowering("modelled", given, H200, prefer_compiled=True) == "modelled"

    def test_a_wrong_name_is_told(self, program: Program) -> None:
        with pytest.raises(UsageError, match="no lowering 'fast'"):
            choose_lowering("fast", program, H200, prefer_compiled=True)

    def test_a_missing_compiler_is_told(self, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(UnsupportedError, match="meshcast doctor --install gpu-compiler"):
            choose_lowering("compiled", program, H200, prefer_compiled=True)


@pytest.fixture(autouse=True, scope="class")
def _real(request: pytest.FixtureRequest) -> Iterator[None]:
    """The compiler that is installed on this machine, which other tests do not see."""
    with pytest.MonkeyPatch.context() as patch:
        if request.cls is TestRealCompiler:
            patch.setenv("MESHCAST_GPU_COMPILER", os.environ.get("MESHCAST_TESTED_GPU_COMPILER", ""))
            patch.delenv("XLA_FLAGS", raising=False)  # the tests' own are jaxlib's, and another release may lack some
            if isinstance(found := found_gpu_compiler(), str):
                pytest.skip(found)
            if found.library.is_relative_to(own_folder()):  # which tests with a cache of their own look for elsewhere
                patch.setenv("MESHCAST_GPU_COMPILER", str(own_folder()))
        yield


class TestRealCompiler:
    def test_a_product_and_its_epilogue(
        self, program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        found = lower_compiled(program, H200)
        assert found.memory is not None
        assert found.memory.arguments == 2 * (512 * 256 + 256 * 128)
        assert sum(kernel.matrix_flops for kernel, _ in found.schedule.walk()) == 2 * 512 * 256 * 128
        assert list(cache_folder(compiler._CACHE).rglob("*.json.gz"))

    def test_a_sharded_program_gets_its_collectives(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        from meshcast.cli.doctor import SHARDED_PRODUCT

        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        sharded = from_bytes(SHARDED_PRODUCT.encode(), name="product", where="doctor")
        found = lower_compiled(sharded, H200)
        (kernel,) = [kernel for kernel, _ in found.schedule.walk() if kernel.collective]
        assert kernel.collective is not None
        assert (kernel.collective.kind, kernel.collective.group.size) == ("all_reduce", 2)

    def test_a_call_that_no_gpu_can_be_asked_for_stays_a_call(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        found = lower_compiled(from_bytes(FACTORISED.encode(), name="net", where="net.mlir"), H200)
        assert [kernel.kind.value for kernel, _ in found.schedule.walk()].count("solver") == 1
