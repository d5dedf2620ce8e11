"""Launches as a scheduled StableHLO program, in the terms of `programs.hlo_text`: every launch a call with a name.

A storage is a flat tensor; a launch's function shapes it as the kernel sees it. Views launch nothing and are not in the program.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from meshcast.base import UnsupportedError
from meshcast.programs.pytorch.launches.forms import function_text
from meshcast.programs.pytorch.launches.launch import Launch
from meshcast.programs.pytorch.launches.launch_functions import type_of
from meshcast.programs.pytorch.recording.calls import BYTES, Recording, View

ROLES = {"parameter": "params", "buffer": "buffers", "state": "opt_state", "input": "batch"}


def stablehlo_of(
    recording: Recording, launches: Sequence[Launch], *, memory: Mapping[str, int], host: Sequence[Sequence[int]]
) -> str:
    """The program's text.

    Args:
        recording: What was recorded.
        launches: Its kernels, in order.
        memory: Bytes of the caching allocator at the worst moment, told as a compiler tells them.
        host: What the host does before each launch (`host_work`).
    """
    program = _ProgramText(recording)
    for launch in launches:
        program.launch(launch)
    return program.text(memory, host)


class _ProgramText:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._types: dict[int, tuple[str, int]] = {}  # storage -> dtype, elements
        self._values: dict[int, str] = {}
        self._functions: dict[str, str] = {}  # body -> name
        self._lines: list[str] = []
        self._arguments: list[tuple[int, str]] = []
        self._count = 0
        for storage, role in recording.held.items():
            self._arguments.append((storage, role))

    def _typed(self, view: View) -> tuple[str, int]:
        found = self._types.get(view.storage)
        if found is None:
            size = self._recording.sizes.get(view.storage, view.bytes)
            found = self._types[view.storage] = (view.dtype, max(1, size // BYTES[view.dtype], _reach(view)))
        return found

    def _value(self, view: View) -> str:
        found = self._values.get(view.storage)
        if found is not None:
            return found
        dtype, elements = self._typed(view)
        if view.storage in self._recording.held:
            value = f"%arg{view.storage}"
        else:  # memory that nothing was written to yet
            value = f"%e{view.storage}"
            self._lines.append(
                f"    {value} = stablehlo.constant dense<{_zero(dtype)}> : {type_of((elements,), dtype)}"
            )
        self._values[view.storage] = value
        return value

    def launch(self, launch: Launch) -> None:
        """Adds a call of the launch's function."""
        takes = _each_once([view for view in launch.takes if view.elements])
        gives = _each_once(launch.gives)
        # What is written in part keeps the rest: it is an operand too.
        kept = [each for each in gives if self._in_part(each) and each.storage not in {v.storage for v in takes}]
        operands = [*takes, *kept]
        typed = [self._typed(each) for each in operands]
        results = [self._typed(each) for each in gives]
        body = function_text(
            launch,
            [(view, *kind) for view, kind in zip(operands, typed, strict=True)],
            [(view, *kind) for view, kind in zip(gives, results, strict=True)],
        )
        name = self._functions.setdefault(body, f"k{len(self._functions)}")
        values = [self._value(each) for each in operands]
        made = f"%v{self._count}"
        code = {"share": float(f"{launch.share:.4g}")} if launch.share != 1.0 else {}
        code |= {"extra_us": round(launch.extra * 1e6, 3)} if launch.extra else {}
        code |= {"block_cycles": launch.block_cycles} if launch.block_cycles else {}
        code |= {"wait_cycles": launch.wait_cycles} if launch.wait_cycles else {}
        config = json.dumps(json.dumps({"own_code": code}))
        notes = f'meshcast.name = "{launch.name}.{self._count}", meshcast.backend_config = {config}'
        if launch.form in ("pointwise", "reduce"):
            notes += f', meshcast.fusion = "{"kLoop" if launch.form == "pointwise" else "kInput"}"'
        self._count += 1
        arguments = ", ".join(type_of((n,), dtype) for dtype, n in typed)
        given = ", ".join(type_of((n,), dtype) for dtype, n in results)
        several = f"{made}:{len(gives)}" if len(gives) > 1 else made
        self._lines.append(
            f"    {several} = func.call @{name}({', '.join(values)}) {{{notes}}} : ({arguments}) -> ({given})"
        )
        for i, each in enumerate(gives):
            self._values[each.storage] = f"{made}#{i}" if len(gives) > 1 else made

    def _in_part(self, view: View) -> bool:
        return view.elements < self._typed(view)[1] and (
            view.storage in self._values or view.storage in self._recording.held
        )

    def text(self, memory: Mapping[str, int], host: Sequence[Sequence[int]]) -> str:
        """The module."""
        signature = []
        for storage, role in self._arguments:
            if storage not in self._types:
                size = self._recording.sizes[storage]
                self._types[storage] = ("uint8", max(1, size))
            dtype, elements = self._types[storage]
            signature.append(f'%arg{storage}: {type_of((elements,), dtype)} loc("{ROLES[role]}[{storage}]")')
        returned = [view for view in self._recording.returned if view.storage in self._values]
        if not returned:
            raise UnsupportedError("the program launches nothing", where=self._recording.label)
        kinds = ", ".join(type_of((n,), d) for d, n in (self._typed(view) for view in returned))
        values = ", ".join(self._values[view.storage] for view in returned)
        said = json.dumps(json.dumps({"memory": dict(memory), "host": [list(each) for each in host]}))
        functions = "\n".join(text.replace("@NAME", f"@{name}", 1) for text, name in self._functions.items())
        return (
            f'module @step attributes {{meshcast.scheduled = "true", meshcast.told = {said}}} {{\n'
            f"  func.func public @main({', '.join(signature)}) -> ({kinds}) {{\n"
            + "\n".join(self._lines)
            + f"\n    return {values} : {kinds}\n  }}\n{functions}\n}}\n"
        )


def _reach(view: View) -> int:
    """Elements from the begin of a storage to the last that a view shows."""
    if not view.elements:
        return 0
    return view.offset + 1 + sum((n - 1) * abs(step) for n, step in zip(view.shape, view.strides, strict=True))


def _zero(dtype: str) -> str:
    if dtype == "bool":
        return "false"
    return "0" if dtype.startswith(("int", "uint")) else "0.0"


def _each_once(views: Sequence[View]) -> list[View]:
    """The largest view of each storage, in order of appearance."""
    found: dict[int, View] = {}
    for view in views:
        if view.storage not in found or view.elements > found[view.storage].elements:
            found[view.storage] = view
    return list(found.values())
