"""Probes compiled, many at a time: XLA compiles outside of Python's lock."""

from __future__ import annotations

import base64
import gzip
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from meshcast.evidence.calibrate.inputs import filler
from meshcast.evidence.calibrate.probe import Probe, ProbeBody
from meshcast.evidence.calibrate.suite import build

PROBE_NAME, FILL_NAME = "probe_", "fill_"  # of modules in a profile, before a number
SEED = jax.ShapeDtypeStruct((), np.uint32)
# Without Triton's candidates a product is cuBLAS's best: no kernels are compiled to be timed.
_LIBRARY_ONLY: dict[str, str | bool] = {"xla_gpu_enable_triton_gemm": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A compiled probe and the program that makes its arguments."""

    probe: Probe
    number: int  # in this process; names its modules
    body: ProbeBody
    run: Any
    fill: Any
    compile_s: float
    memory: dict[str, int]
    stablehlo: str | None  # packed; only where it cannot be traced without the device


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A probe that could not be compiled or run, and why."""

    probe: Probe
    error: str


def compile_batch(
    batch: Sequence[tuple[int, Probe]], pool: ThreadPoolExecutor, *, backend: str
) -> list[Ready | Failed]:
    """Every probe of a batch, compiled; all are done when it returns, as tuning on the device disturbs measurements."""
    return list(pool.map(lambda item: _compile(item[0], item[1], backend), batch))


def _compile(number: int, item: Probe, backend: str) -> Ready | Failed:
    try:
        body = build(item)
        lowered = jax.jit(_named(body.function, f"{PROBE_NAME}{number}"), donate_argnums=body.donate).lower(*body.args)
        text = pack(lowered.as_text()) if ("impl", "cudnn") in item.settings else None
        start = time.perf_counter()
        options = _LIBRARY_ONLY if item.library and backend == "gpu" else None
        run = lowered.compile(compiler_options=options)
        seconds = time.perf_counter() - start
        filled = jax.jit(_named(filler(body), f"{FILL_NAME}{number}")).lower(SEED).compile()
        memory: Any = run.memory_analysis()
        sizes = {
            "args": memory.argument_size_in_bytes,
            "out": memory.output_size_in_bytes,
            "temp": memory.temp_size_in_bytes,
            "alias": memory.alias_size_in_bytes,
        }
    except Exception as error:  # an unsupported type, no memory to tune in, a bug of XLA: the row says so
        return Failed(probe=item, error=short(error))
    return Ready(
        probe=item,
        number=number,
        body=body,
        run=run,
        fill=filled,
        compile_s=seconds,
        memory=sizes,
        stablehlo=text,
    )


def _named(function: Any, name: str) -> Any:
    """The function under a name of its own: what a profile tells programs apart by."""

    def call(*args: Any) -> Any:
        return function(*args)

    call.__name__ = call.__qualname__ = name
    return call


def short(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def pack(text: str) -> str:
    """A text, compressed, for a JSON string."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def unpack(text: str) -> str:
    """The text that `pack` compressed."""
    return gzip.decompress(base64.b64decode(text)).decode()
