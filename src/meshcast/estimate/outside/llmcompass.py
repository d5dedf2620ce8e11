"""LLMCompass: matrix products on a GPU that we describe to it, by its search over tiles of L2, shared memory and arrays.

An SM is told as a core of four systolic arrays of 16 x 16 with as many multiply-adds a clock as its tensor cores have, its shared
memory, and its lanes; L2, its bytes a clock, and the memory's bandwidth are the device's. Its mode `heuristic-GPU` is asked, for
operands of two bytes, the only ones that its products of batches take; a product takes it seconds to minutes of CPU time, so that
answers are kept on disk. What its authors measured of PyTorch's launches is not added: `time = max(its seconds, light) + launch`,
with the device's own launch. After the interface of github.com/PrincetonUniversity/LLMCompass (Zhang et al., ISCA 2024), whose
code is not part of this package: a clone of it, and a Python that has what it needs (torch, pandas, scalesim), are named by
environment variables.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from meshcast.base import UnsupportedError, cache_folder, keep, kept_as, tell
from meshcast.estimate.energy import joules_per_byte, joules_per_flop
from meshcast.estimate.estimator import Array, Estimates, Origin, Support, limiting
from meshcast.estimate.explanation import Explanation, Term
from meshcast.estimate.multiprocessors.chip import PORT_BYTES
from meshcast.estimate.products import product_of
from meshcast.estimate.rates import matrix_rate
from meshcast.estimate.roofline import interval_parameters, light_bounds
from meshcast.estimate.support import arithmetic_support
from meshcast.hardware import Device
from meshcast.lower import Kernel, KernelKind
from meshcast.workload import Gemm, element_bytes

FOLDER, PYTHON = "MESHCAST_LLMCOMPASS", "MESHCAST_LLMCOMPASS_PYTHON"
PROCESS = Path(__file__).with_name("_llmcompass_process.py")
PACKAGES = ("hardware_model", "software_model", "systolic_array_model")
NEEDED = Path("software_model", "matmul.py")
ARRAYS, SIDE, WIDTH = 4, 16, 2  # systolic arrays of a core, their sides, bytes of an operand
LONGEST_LINE = 300  # of what it says when it fails
LONGEST_S = 3600.0  # for one product, which takes it minutes at the most

Sides = tuple[int, int, int, int]


class LlmCompass:
    """Fidelity `simulated` on GPUs, products alone: `--simulator llmcompass`."""

    name = "llmcompass"
    fidelity = "simulated"
    by_kernel = True
    by_arithmetic = False

    def supports(self, kernel: Kernel, device: Device) -> Support:
        """Products of two-byte operands on GPUs whose file describes an SM."""
        if device.kind != "gpu" or device.core is None:
            return Support(level="no", reason=f"{device.name} has no SMs to describe to LLMCompass")
        if kernel.kind is not KernelKind.GEMM or not isinstance(kernel.geometry, Gemm):
            return Support(level="no", reason="LLMCompass is asked for products alone")
        widths = {element_bytes(each) for each in (kernel.geometry.lhs_dtype, kernel.geometry.rhs_dtype)}
        if widths != {WIDTH} or product_of(kernel.geometry) is None:
            return Support(level="no", reason="LLMCompass takes operands of two bytes")
        return arithmetic_support(kernel, device)

    def estimate(self, kernels: Sequence[Kernel], device: Device) -> Estimates:
        """Times of products; equal ones are asked for once.

        Raises:
            UnsupportedError: There is no LLMCompass, or it fails.
        """
        column = functools.partial(np.fromiter, dtype=np.float64, count=len(kernels))
        sides = [_sides(kernel) for kernel in kernels]
        seconds = answers(list(dict.fromkeys(sides)), device) if kernels else {}
        compute: Array = column(seconds[each] for each in sides)
        light, memory = light_bounds(kernels, device)
        overhead = np.full(len(kernels), device.launch_latency_s)
        time = np.maximum(compute, np.maximum(light, memory)) + overhead
        factor, launches = interval_parameters()
        rates = [matrix_rate(kernel, device) for kernel in kernels]
        joules: Array = column(joules_per_flop(device, rate.key, rate.flops) for rate in rates)
        flops: Array = column(kernel.matrix_flops for kernel in kernels)
        moved: Array = column(kernel.read_bytes + kernel.written_bytes for kernel in kernels)
        return Estimates(
            time=time,
            low=np.minimum(np.maximum(light, memory), time),
            high=time * factor + launches * device.launch_latency_s,
            compute_time=compute,
            memory_time=memory,
            overhead=overhead,
            energy=flops * joules + moved * joules_per_byte(device),
            origin=(Origin.SIMULATED,) * len(kernels),
        )

    def explain(self, kernel: Kernel, device: Device) -> Explanation:
        """The product's sides, what the device was described as, and the answer."""
        answer = self.estimate([kernel], device)
        batch, m, n, k = _sides(kernel)
        compute, memory, overhead = (float(c[0]) for c in (answer.compute_time, answer.memory_time, answer.overhead))
        return Explanation(
            estimator=self.name,
            model=f"LLMCompass: {device.cores} cores of {ARRAYS} arrays of {SIDE} x {SIDE}",
            formula="t = max(LLMCompass, light) + launch",
            terms=(
                Term("products", "batch", batch), Term("rows", "M", m), Term("columns", "N", n), Term("summed over", "K", k),
                Term("multiply-adds of a cell in a clock", "macs", description(device)["multiply_adds"]),
                Term("LLMCompass's seconds", "LLMCompass", compute, "s"), Term("launch", "launch", overhead, "s"),
            ),
            time=float(answer.time[0]),
            limited_by=limiting(compute, memory, overhead),
        )  # fmt: skip


def _sides(kernel: Kernel) -> Sides:
    found = product_of(kernel.geometry)
    assert found is not None  # see `supports`
    return found.count, found.m, found.n, found.k


def description(device: Device) -> dict[str, Any]:
    """A device in LLMCompass's terms; see the module."""
    assert device.core is not None  # see `LlmCompass.supports`
    clock, sms = device.peak_clock_hz, device.cores
    rate = device.matrix_flops.get("bf16", device.matrix_flops.get("f16", device.vector_flops["f32"]))
    lanes = device.vector_flops.get("f16", device.vector_flops["f32"])
    cached = device.cache_bandwidth or PORT_BYTES * sms * clock
    return {
        "cores": sms, "clock_hz": clock, "sublanes": ARRAYS, "array": SIDE,
        "multiply_adds": max(1, round(rate / 2 / (sms * clock) / (ARRAYS * SIDE * SIDE))),
        "vector_flops": round(lanes / (sms * clock)), "core_bytes": device.core.shared_memory_bytes,
        "cache_bytes": int(device.cache_bytes), "cache_bytes_per_cycle": round(cached / clock),
        "memory_bandwidth": device.memory_bandwidth, "memory_bytes": int(device.memory_bytes),
    }  # fmt: skip


def found_llmcompass() -> tuple[Path, Path]:
    """Its folder, and the Python that runs it.

    Raises:
        UnsupportedError: No folder is named, or it holds something else.
    """
    given = os.environ.get(FOLDER)
    if not given or not (Path(given) / NEEDED).is_file():
        seen = f"{FOLDER}={given} has no {NEEDED}" if given else f"{FOLDER} is not set"
        raise UnsupportedError(
            f"LLMCompass is not there: {seen}",
            where="--simulator llmcompass",
            fix=f"clone github.com/PrincetonUniversity/LLMCompass, set {FOLDER} to its folder and {PYTHON} to a Python with "
            "torch, pandas, scipy and scalesim; or leave --simulator out",
        )
    python = os.environ.get(PYTHON) or sys.executable
    # It runs in its own folder: a path is the user's, from here, and its links stay (an environment's Python is one); a name
    # alone is looked up on the PATH.
    return Path(given).resolve(), Path(python).absolute() if os.path.dirname(python) else Path(python)


def answers(products: Sequence[Sides], device: Device) -> dict[Sides, float]:
    """Seconds of products, those that were answered before from disk.

    Raises:
        UnsupportedError: It is not there, or fails.
    """
    folder, python = found_llmcompass()
    chip = description(device)
    source = _source(folder)
    places = {sides: _place(source, chip, sides) for sides in products}
    found = {sides: kept_as(place, _seconds) for sides, place in places.items()}
    missing = [sides for sides, seconds in found.items() if seconds is None]
    for number, sides in enumerate(missing):
        tell(f"LLMCompass: {number} of {len(missing)} products done", done=number, total=len(missing))
        seconds = _asked(folder, python, chip, sides)
        keep(places[sides], json.dumps(seconds).encode())
        found[sides] = seconds
    return {sides: seconds for sides, seconds in found.items() if seconds is not None}


def _source(folder: Path) -> str:
    """What answers follow from beside the question: its code, and ours that describes a device to it."""
    digest = hashlib.sha256(PROCESS.read_bytes())
    for path in sorted(path for each in PACKAGES for path in (folder / each).glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _place(source: str, chip: dict[str, Any], sides: Sides) -> Path:
    key = hashlib.sha256(json.dumps([source, chip, sides]).encode()).hexdigest()
    return cache_folder("llmcompass") / f"{key}.json"


def _asked(folder: Path, python: Path, chip: dict[str, Any], sides: Sides) -> float:
    with tempfile.TemporaryDirectory() as place:
        request, answer = Path(place, "request.json"), Path(place, "answer.json")
        request.write_text(json.dumps({"device": chip, "products": [sides]}))
        called = [str(python), str(PROCESS), str(request), str(answer)]
        try:
            done = subprocess.run(called, cwd=folder, capture_output=True, text=True, timeout=LONGEST_S)
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            return (
                _checked(json.loads(answer.read_text())[0])
                if done.returncode == 0
                else _fail(said, sides, folder, python)
            )
        except subprocess.TimeoutExpired:
            return _fail(f"none within {LONGEST_S:g} s", sides, folder, python)
        except (OSError, ValueError, IndexError, TypeError) as error:
            return _fail(str(error), sides, folder, python)


def _seconds(data: bytes) -> float:
    return _checked(json.loads(data))


def _checked(answer: Any) -> float:
    """Seconds, as they are kept and used.

    Raises:
        ValueError, TypeError: They are none.
    """
    seconds = float(answer)
    if not (math.isfinite(seconds) and seconds >= 0.0):
        raise ValueError(f"{seconds} is no number of seconds")
    return seconds


def _fail(said: str, sides: Sides, folder: Path, python: Path) -> NoReturn:
    raise UnsupportedError(
        f"LLMCompass gives no answer for a product of {'x'.join(map(str, sides))}: {said[:LONGEST_LINE]}",
        where="--simulator llmcompass",
        fix=f"try {python} in {folder}, or leave --simulator out",
    )
