"""The TPU compiler ahead of time: what is asked of it, what its answers mean, and the real one where it is installed."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshcast import predict
from meshcast.base.child import ChildCrashedError, ChildFailedError, ChildTimedOutError
from meshcast.base.errors import UnsupportedError
from meshcast.hardware import load_device
from meshcast.jobs.program.lowering import forget_lowered
from meshcast.lower.compiled.real_compilers import lower_compiled
from meshcast.lower.compiled.xla_tpu import OutOfMemoryError, compiler
from meshcast.lower.compiled.xla_tpu.topology import GENERATIONS, missing_facts, slice_shape, topology
from meshcast.lower.kernel import Kernel, LoopStep
from meshcast.programs.files import from_bytes
from meshcast.programs.program import Program

V6E = load_device("tpu-v6e")
PROGRAM = """
module @jit_f {
  func.func public @main(%x: tensor<32x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<32x4096xbf16> {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<32x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<32x4096xbf16>
    return %0 : tensor<32x4096xbf16>
  }
}
"""
# As the compiler writes a chain of products whose carried operand stays in VMEM, less what nobody reads.
COMPILED = (Path(__file__).parents[2] / "fixtures" / "tpu_chain.hlo").read_text()
ANSWER = {"hlo": COMPILED, "arguments": 33816576, "outputs": 262144, "temporaries": 0, "aliased": 0}
TOO_LARGE = (
    "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries (38.33G) exceeds "
    "available HBM (31.25G)."
)


@pytest.fixture
def program() -> Program:
    return from_bytes(PROGRAM.encode(), name="chain", where="chain.mlir")


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[Mapping[str, Any]]]:
    """Puts an installed compiler in place that gives these answers, one after the other; returns what it was asked."""

    def install(*answers: Any) -> list[Mapping[str, Any]]:
        seen: list[Mapping[str, Any]] = []
        waiting = list(answers)

        def request(header: Mapping[str, Any], data: bytes, *, timeout_s: float) -> bytes:
            seen.append(header)
            answer = waiting.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return json.dumps(answer).encode()

        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        forget_lowered()  # the same program was lowered with other answers
        monkeypatch.setattr(compiler._child, "request", request)
        monkeypatch.setattr(compiler, "installed_version", lambda: "libtpu 1")
        return seen

    return install


class TestTopology:
    @pytest.mark.parametrize(
        ("device", "count", "name", "options"),
        [
            ("tpu-v6e", 1, "v6e:1x1", {"chips_per_host_bounds": [1, 1, 1]}),
            ("tpu-v6e", 8, "v6e:2x4", {}),
            ("tpu-v5e", 256, "v5e:16x16", {}),
            ("tpu-v5e", 1024, "v5e:16x16", {"num_slices": 4}),
            ("tpu-v5p", 1, "v5p:1x1x1", {"chips_per_host_bounds": [1, 1, 1]}),
            ("tpu-v5p", 4, "v5p:2x2x1", {}),
            ("tpu-v5p", 64, "v5p:4x4x4", {}),
            ("tpu-v5p", 8960, "v5p:16x20x28", {}),
            ("tpu-v4", 8, "v4:2x2x2", {"chip_config_name": "megacore"}),
            ("tpu-v7-core", 1, "tpu7x:1x1x1", {"chips_per_host_bounds": [1, 1, 1]}),
            ("tpu-v7-core", 16, "tpu7x:2x2x2", {}),
        ],
    )
    def test_the_smallest_slices(self, device: str, count: int, name: str, options: dict[str, Any]) -> None:
        assert topology(load_device(device), count) == (name, options)

    def test_half_a_chip_too_many(self) -> None:
        with pytest.raises(UnsupportedError, match="no whole number of tpu7x chips"):
            topology(load_device("tpu-v7-core"), 3)

    @pytest.mark.parametrize("chips", range(1, 65))
    @pytest.mark.parametrize("target", GENERATIONS)
    def test_shapes_hold_what_was_asked_for(self, target: str, chips: int) -> None:
        pod = GENERATIONS[target].pod
        shape = slice_shape(chips, pod)
        fitting = [
            sides
            for sides in itertools.product(*(range(1, most + 1) for most in pod))
            if math.prod(sides) == chips
            # As slices are named: sides grow, but for those of 1, which come last (2x4, 2x2x1).
            and sides == tuple(sorted(sides, key=lambda side: (side == 1, side)))
        ]
        if shape is None:
            assert not fitting
        else:
            assert shape in fitting

    @pytest.mark.parametrize(("device", "why"), [("h200", "does not compile for h200"), ("tpu-v7", "one TensorCore")])
    def test_devices_it_has_no_target_for(self, device: str, why: str) -> None:
        assert why in str(missing_facts(load_device(device)))

    def test_a_file_without_tensor_cores_or_with_an_unknown_generation(self) -> None:
        assert "[tensor_cores]" in str(missing_facts(replace(V6E, tensor_cores=None)))
        assert V6E.tensor_cores is not None
        unknown = replace(V6E, tensor_cores=replace(V6E.tensor_cores, target="v9"))
        assert "not 'v9'" in str(missing_facts(unknown))


class TestReading:
    def test_kernels_carry_cycles_places_and_moments(self, program: Program, answering: Any) -> None:
        seen = answering(ANSWER)
        lowered = lower_compiled(program, V6E)
        assert seen == [{"topology": "v6e:1x1", "options": {"chips_per_host_bounds": [1, 1, 1]}, "devices": 1}]
        fetched, _, loop, stored = lowered.schedule.steps
        assert isinstance(fetched, Kernel)
        assert isinstance(stored, Kernel)
        assert isinstance(loop, LoopStep)
        one = 32 * 4096 * 2
        assert (fetched.read_bytes, fetched.written_bytes, fetched.on_chip_bytes) == (one, 0, one)
        assert "prefetch" in fetched.flags
        assert (stored.read_bytes, stored.written_bytes, stored.on_chip_bytes) == (0, one, one)
        assert "beside" in stored.flags
        assert loop.trips == 64  # the increment is carried through the loop, the start a copy
        product = loop.body.steps[-1]
        assert isinstance(product, Kernel)
        assert product.cycles == 43720  # less the mark of 2**60
        assert (product.read_bytes, product.written_bytes, product.on_chip_bytes) == (4096 * 4096 * 2, 0, 2 * one)
        assert product.matrix_flops == 2 * 32 * 4096 * 4096
        assert (lowered.lowering, lowered.backend) == ("compiled", "xla-tpu")
        assert lowered.memory is not None
        assert lowered.memory.arguments == 33816576

    def test_the_step_takes_the_compilers_cycles_or_the_memorys_time(self, program: Program, answering: Any) -> None:
        answering(ANSWER)
        found = predict(program, on="tpu-v6e", fidelity="compiled")
        assert found.fidelity == "compiled"
        assert found.step_time_s is not None
        assert found.step_time_s > 64 * 43720 / V6E.clock_hz
        assert found.step_time_s < 1.5 * 64 * 43720 / V6E.clock_hz

    def test_the_second_time_comes_from_the_cache(self, program: Program, answering: Any) -> None:
        seen = answering(ANSWER, ANSWER)
        assert compiler.compile_program(program, V6E) == compiler.compile_program(program, V6E)
        assert len(seen) == 1
        compiler.compile_program(program, load_device("tpu-v5e"))
        assert len(seen) == 2


class TestRefusals:
    def test_out_of_memory_is_an_infeasible_result(self, program: Program, answering: Any) -> None:
        seen = answering(ChildFailedError(TOO_LARGE))
        found = predict(program, on="tpu-v6e", fidelity="compiled")
        assert found.step_time_s is None
        assert found.infeasible is not None
        assert (found.infeasible.resource, found.infeasible.demand) == ("memory_bytes", int(38.33 * 2**30))
        assert found.infeasible.bound == int(31.25 * 2**30)
        assert any("38.3 GiB" in lever for lever in found.infeasible.levers)
        with pytest.raises(OutOfMemoryError):  # kept as well
            compiler.compile_program(program, V6E)
        assert len(seen) == 1

    def test_a_program_it_cannot_compile_is_named(self, program: Program, answering: Any) -> None:
        answering(ChildFailedError("INVALID_ARGUMENT: Custom emitter for __cudnn$fmhaSoftmax not found\n\nmore"))
        with pytest.raises(UnsupportedError, match=r"__cudnn\$fmhaSoftmax not found") as caught:
            compiler.compile_program(program, V6E)
        assert caught.value.exit_code == 4

    def test_a_crash_is_told_and_not_kept(self, program: Program, answering: Any) -> None:
        seen = answering(ChildCrashedError(-9, "killed"), ANSWER)
        with pytest.raises(UnsupportedError, match="the TPU compiler died"):
            compiler.compile_program(program, V6E)
        compiler.compile_program(program, V6E)
        assert len(seen) == 2

    def test_what_takes_too_long_says_how_to_allow_more_and_is_tried_again(
        self, program: Program, answering: Any
    ) -> None:
        seen = answering(ChildTimedOutError(-9, ""), ANSWER)
        with pytest.raises(UnsupportedError, match="takes longer than 90 s") as raised:
            compiler.compile_program(program, V6E, limit_s=90.0)
        assert "--compile-limit 180" in str(raised.value.fix)
        assert compiler.compile_program(program, V6E).hlo
        assert len(seen) == 2

    def test_a_missing_compiler_names_its_extra(self, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(compiler, "installed_version", lambda: None)
        with pytest.raises(UnsupportedError, match=r"meshcast\[tpu\]"):
            predict(program, on="tpu-v6e", fidelity="compiled")

    def test_auto_does_not_wait_for_it(self, program: Program, answering: Any) -> None:
        seen = answering()
        assert predict(program, on="tpu-v6e").lowering == "modelled"
        assert not seen


@pytest.mark.skipif(compiler.why_not_installed() is not None, reason="needs the extra tpu")
class TestRealCompiler:
    @pytest.mark.parametrize("device", ["tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7-core"])
    def test_a_product_on_every_generation(
        self, device: str, program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        found = lower_compiled(program, load_device(device))
        assert sum(k.matrix_flops for k, _ in found.schedule.walk()) == 2 * 32 * 4096 * 4096
        assert any(k.cycles for k, _ in found.schedule.walk())

    def test_a_sharded_program_has_collectives(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        text = (Path(__file__).parents[2] / "fixtures" / "sharded.mlir").read_bytes()
        sharded = from_bytes(text, name="sharded", where="sharded.mlir")
        found = lower_compiled(sharded, load_device("tpu-v5e"))
        assert any(k.collective for k, _ in found.schedule.walk())
