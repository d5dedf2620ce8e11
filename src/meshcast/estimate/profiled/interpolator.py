"""A device's measured kernels, ready to be asked: families by name, kept in one file of arrays."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import numpy as np

from meshcast.base import InputError, write_whole
from meshcast.estimate.gpu.programs import is_program
from meshcast.estimate.measurements.calls import backward_kernel
from meshcast.estimate.measurements.silicon_kernels import attention_kernel
from meshcast.estimate.profiled.features import ALONE, place
from meshcast.estimate.profiled.interpolation import KernelFamily, checked, fit
from meshcast.estimate.profiled.reference import fixed_cost, reference_model
from meshcast.hardware import Device
from meshcast.lower import CostKey, Kernel, KernelKind
from meshcast.workload import Attention, AttentionLibrary, Gemm, Geometry, Reduction

SCHEMA = "meshcast.interpolator/1"
KEPT = ".kernels.npz"  # how files of measured kernels are called, behind their device
_NUMBERS = tuple(f.name for f in fields(KernelFamily) if f.init and f.name not in ("places", "y", "doubt"))


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpolatorRow:
    """A measured kernel and the program it was measured in."""

    kernel: Kernel
    seconds: float
    program: str
    common: bool = False  # measured in a program as users run them, not in a probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpolator:
    """Measured kernels of one device."""

    device: str
    families: Mapping[str, KernelFamily]
    reference: str  # digest of the reference model that `y` is relative to
    sources: tuple[str, ...] = ()
    fixed_s: float = 0.0  # of the reference model, where it has a fixed cost

    def family(self, name: str) -> KernelFamily | None:
        """A family; where only kernels that run alone were measured, or only those in programs, the other ones stand in."""
        other = name.removesuffix(ALONE) if name.endswith(ALONE) else name + ALONE
        return self.families.get(name) or self.families.get(other)

    def to_bytes(self) -> bytes:
        """Arrays and header as one file."""
        header = {
            "schema": SCHEMA,
            "device": self.device,
            "reference": self.reference,
            "sources": self.sources,
            "fixed_s": self.fixed_s,
            "families": {name: {n: getattr(f, n) for n in _NUMBERS} for name, f in self.families.items()},
        }
        arrays: dict[str, Any] = {"header": np.array(json.dumps(header))}
        for index, family in enumerate(self.families.values()):
            arrays[f"x{index}"] = family.places.astype(np.float32)
            arrays[f"y{index}"] = family.y.astype(np.float32)
            arrays[f"d{index}"] = family.doubt.astype(np.float32)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        return buffer.getvalue()

    def save(self, path: Path) -> None:
        """Writes the file.

        Raises:
            UsageError: It cannot be written.
            OutputError: The disk is full.
        """
        write_whole(path, self.to_bytes())


def load(data: bytes, where: str) -> Interpolator:
    """The interpolator from the bytes that `to_bytes` gave.

    Raises:
        InputError: It is none of it.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            header = json.loads(str(arrays["header"]))
            if header.get("schema") != SCHEMA:
                raise InputError(f"not measured kernels: its schema is {header.get('schema')!r}", where=where)
            families = {
                name: checked(
                    KernelFamily(
                        places=arrays[f"x{index}"].astype(np.float64),
                        y=arrays[f"y{index}"].astype(np.float64),
                        doubt=arrays[f"d{index}"].astype(np.float64),
                        **numbers,
                    )
                )
                for index, (name, numbers) in enumerate(header["families"].items())
            }
            return Interpolator(
                device=header["device"],
                families=families,
                reference=header["reference"],
                sources=tuple(header["sources"]),
                fixed_s=float(header.get("fixed_s", 0.0)),
            )
    except InputError:
        raise
    except (
        Exception
    ) as error:  # of damaged bytes numpy, zipfile and zlib raise a dozen types, none of them theirs alone
        said = f"{type(error).__name__}: {error}"
        raise InputError(f"not measured kernels: {said}", where=where, fix="copy or collect the file again") from error


def reference_digest(device: Device) -> str:
    """Changes with the times that the reference model gives: it is made of those of one kernel of each sort."""
    times = reference_model(device, 0.0).estimate(_sorts(), device).time
    return hashlib.sha256(" ".join(f"{time:.4g}" for time in times).encode()).hexdigest()[:16]


def _sorts() -> list[Kernel]:
    """A large and a small kernel of each sort that makes up most of a model's time."""
    found = []
    for side in (512, 4096):
        elements = side * side
        product = Gemm(
            batch=1, m=side, n=side, k=side, lhs_dtype="bf16", rhs_dtype="bf16", out_dtype="bf16",
            lhs_contracting_minor=True, rhs_contracting_minor=False,
        )  # fmt: skip
        shapes: tuple[tuple[KernelKind, Geometry | None, int], ...] = (
            (KernelKind.GEMM, product, 2 * elements * 2),
            (KernelKind.LOOP_FUSION, None, elements * 2),
            (KernelKind.TRANSPOSE, None, elements * 2),
            (KernelKind.REDUCTION, Reduction(shape=(side, side), dims=(1,)), elements * 2),
            (KernelKind.REDUCTION, Reduction(shape=(side, side), dims=(0,)), elements * 2),
        )
        for kind, geometry, read in shapes:
            found.append(
                Kernel(
                    name=kind.value,
                    kind=kind,
                    dtype="bf16",
                    geometry=geometry,
                    read_bytes=read,
                    elements=elements,
                    written_bytes=elements * 2,
                    vector_flops=float(elements),
                    matrix_flops=2.0 * side**3 if kind is KernelKind.GEMM else 0.0,
                )
            )
        for library in get_args(AttentionLibrary):
            heads = Attention(
                batch=2, heads=16, kv_heads=16, q_len=side, kv_len=side, head_dim=128, dtype="bf16", causal=True,
                backward=False, library=library,
            )  # fmt: skip
            forward = attention_kernel(heads)
            found += [forward, backward_kernel(forward, heads)]
    return found


def build_interpolator(
    rows: Iterable[InterpolatorRow], device: Device, sources: Iterable[str] = (), earlier: Interpolator | None = None
) -> Interpolator:
    """Families fitted to measured kernels; a kernel that a program launches often counts once, with the median of its times.

    One whose tile is known is kept without it, too: our own lowering does not foresee which tile XLA will choose. Families that
    `earlier` measured kernels have too keep its lengths and noises (`fit`).
    """
    timed = [row for row in rows if row.seconds > 0]
    timed += [
        replace(row, kernel=replace(row.kernel, tile=0, warps=0, programs=0)) for row in timed if is_program(row.kernel)
    ]
    alike: defaultdict[tuple[str, CostKey], list[InterpolatorRow]] = defaultdict(list)
    for row in timed:
        alike[row.program, row.kernel.cost_key].append(row)
    found = [replace(rows[-1], seconds=statistics.median(row.seconds for row in rows)) for rows in alike.values()]
    fixed = fixed_cost(device, [row.seconds for row in found])
    model = reference_model(device, fixed)
    reference = [float(t) for t in model.estimate([row.kernel for row in found], device).time]
    grouped: defaultdict[str, list[tuple[tuple[float, ...], float, str, bool]]] = defaultdict(list)
    for row, seconds in zip(found, reference, strict=True):
        family, where = place(row.kernel, device)
        grouped[family].append((where, float(np.log(row.seconds / seconds)), row.program, row.common))
    families = {}
    for name, members in sorted(grouped.items()):
        places, y, programs, common = zip(*members, strict=True)
        families[name] = fit(places, y, programs, common, earlier.families.get(name) if earlier else None)
    return Interpolator(
        device=device.name,
        families=families,
        reference=reference_digest(device),
        sources=tuple(sources),
        fixed_s=fixed,
    )


def shipped_devices() -> list[str]:
    """Devices whose measured kernels come with meshcast."""
    files = resources.files("meshcast.estimate").joinpath("data").iterdir()
    return sorted(file.name.removesuffix(KEPT) for file in files if file.name.endswith(KEPT))


@functools.cache
def shipped(device: str) -> Interpolator | None:
    """The measured kernels of a device that come with meshcast."""
    name = (
        f"{device}{KEPT}"  # a user's own name is looked for, never made a path: it may be too long for one, or lead out
    )
    found = next(
        (file for file in resources.files("meshcast.estimate").joinpath("data").iterdir() if file.name == name), None
    )
    return load(found.read_bytes(), name) if found is not None else None
