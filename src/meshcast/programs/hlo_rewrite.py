"""Optimised HLO turned back into plain HLO that has a StableHLO spelling, with notes of what the compiler had decided.

The compiler's own forms go: fusions become calls, start/done pairs one op and a barrier where it is waited for,
bitcasts reshapes, copies identity transposes (or nothing, before scheduling: they are no work then). What a
performance model wants to know of them stays as `meshcast.*` attributes; `hlo_text` lists them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from meshcast.base import InputError
from meshcast.programs.hlo_groups import spelled_out
from meshcast.programs.hlo_lines import (
    Array,
    Instruction,
    array,
    bits,
    closing,
    element,
    elements,
    head,
    memory_space,
    parse,
    shape_text,
    successor,
    without_tiles,
)
from meshcast.programs.hlo_tpu import OF_ONE_TYPE, exact_reduction, of_one_type, padded_view

# The layout of these decides their speed: which operand dimension is contiguous, which reduction runs along rows.
_LAYOUT_MATTERS = frozenset(
    ("convolution", "copy", "custom-call", "dot", "gather", "reduce", "reduce-window", "scatter", "sort", "transpose")
)
_NO_KERNEL = frozenset(("bitcast", "constant", "domain", "get-tuple-element", "parameter", "tuple"))
_CONTROL = frozenset(("call", "conditional", "while"))  # what launches is inside them
_CONVOLUTION_ATTRIBUTES = ("window", "dim_labels", "feature_group_count", "batch_group_count")
_COMPUTATION = re.compile(r"(?:ENTRY )?%(\S+) \(")
_CALLED = re.compile(r"(?:calls|to_apply)=%([^\s,}]+)")
_ASYNC = re.compile(r" ([a-z][\w-]*)-(start|update|done)\(%([^\s,)#]+)")
_TRIP_COUNT = re.compile(r'"known_trip_count":\s*\{\s*"n":\s*"?(\d+)')


def rewrite(text: str, *, where: str) -> str:
    """The module's text (as XLA's printer writes it) with nothing left that only a compiled program has."""
    try:
        return "\n".join(map(without_tiles, _Rewriter(text.splitlines()).lines()))
    except InputError as error:
        raise InputError(error.message, where=where, fix=error.fix) from None


class _Rewriter:
    """One pass over the lines; shapes are remembered by name, and names are unique in a printed module."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._scheduled = bool(lines) and "is_scheduled=true" in lines[0]
        self._tiled = bool(lines) and "T(" in lines[0]  # a TPU's program, which mixes types where its units can
        self._shapes: dict[str, str] = {}
        self._inside_kernels = {name for line in lines if " call(" not in line for name in _CALLED.findall(line)}
        self._order = 0
        self._ordered = False
        self._results, self._updated = _async_results(lines)
        self._rules: dict[str, Callable[[Instruction], list[Instruction]]] = {
            "add-dependency": self._first_operand,
            "bitcast": self._bitcast,
            "collective-permute": self._one_at_a_time,
            "copy": self._copy,
            "custom-call": self._custom_call,
            "domain": self._first_operand,
            "fusion": self._fusion,
            "reduce": lambda found: exact_reduction(found, self._shape),
            "reduce-scatter": self._one_at_a_time,
            "rng-get-and-update-state": self._rng_state,
            "stochastic-convert": self._stochastic_convert,
            "while": self._while,
        }
        if self._tiled:
            self._rules |= dict.fromkeys(OF_ONE_TYPE, lambda found: of_one_type(found, self._shape))

    def lines(self) -> list[str]:
        """The new lines."""
        rewritten: list[str] = []
        for line in self._lines:
            found = head(line)
            if found is None:
                self._begin(line)
                rewritten.append("}" if line.startswith("},") else line)
                continue
            self._shapes[found[1]] = found[2]
            if self._stays(found[3], line):
                rewritten.append(line)
                continue
            instruction = parse(spelled_out(line) if "replica_groups=mesh" in line else line)
            assert instruction is not None
            rewritten.extend(map(str, self._rewritten(instruction)))
        return rewritten

    def _begin(self, line: str) -> None:
        """A new computation, if the line opens one; what runs inside a kernel has no place in the schedule."""
        name = _COMPUTATION.match(line)
        if name:
            self._order = 0
            self._ordered = self._scheduled and name[1] not in self._inside_kernels

    def _stays(self, opcode: str, line: str) -> bool:
        if self._ordered and opcode not in _NO_KERNEL:
            return False
        if opcode in self._rules or opcode in _LAYOUT_MATTERS or _ASYNC.search(line):
            return False
        if self._tiled and opcode in OF_ONE_TYPE:
            return False
        return "backend_config=" not in line and "replica_groups=mesh" not in line

    def _rewritten(self, instruction: Instruction) -> list[Instruction]:
        self._order += 1
        instruction.attributes.pop("async_execution_thread", None)
        action, _, moment = instruction.opcode.rpartition("-")
        if moment in ("start", "update", "done") and action not in ("send", "recv", "async-start"):
            if moment == "update":
                return []
            if moment == "done":
                return self._done(instruction, action)
            self._start(instruction, action)
        layouts = self._layouts(instruction) if instruction.opcode in _LAYOUT_MATTERS else None
        if layouts:
            instruction.annotate(layouts=layouts)
        rule = self._rules.get(instruction.opcode)
        made = rule(instruction) if rule else [instruction]
        self._keep_backend_config(made[-1])
        if self._ordered and instruction.opcode not in _NO_KERNEL:
            made[-1].annotate(order=str(self._order))
            if instruction.opcode not in _CONTROL:
                for each in made:
                    if each.opcode != "tuple":
                        each.annotate(name=instruction.name, **self._places(instruction))
        return made

    def _places(self, instruction: Instruction) -> dict[str, str]:
        """Which of its results do not lie in the device's main memory, by position."""
        spaces = map(memory_space, elements(instruction.shape))
        aside = ",".join(str(position) for position, space in enumerate(spaces) if space)
        return {"on_chip": aside} if aside else {}

    def _start(self, instruction: Instruction, action: str) -> None:
        """The op itself, where it was started, with the shape its `done` gives."""
        instruction.opcode = "call" if action == "async" else action
        # Of the pair's tuple, which the op itself does not have; the parser refuses it on most ops.
        instruction.attributes.pop("output_to_operand_aliasing", None)
        result = self._results.get(instruction.name)
        if result is None:
            index = 0 if action == "copy" else 1
            parts = elements(instruction.shape)
            result = instruction.shape if action == "all-reduce" or len(parts) < 2 else parts[index]
        instruction.shape = result
        self._shapes[instruction.name] = result
        if action == "async":
            instruction.attributes["to_apply"] = instruction.attributes.pop("calls")
            instruction.annotate(name=instruction.name)
        if action == "collective-permute" and not result.startswith("("):
            del instruction.operands[1:]  # TPU programs pass the output buffer and its indices too
        prefetched = instruction.attributes.pop("cross_program_prefetch_index", None) is not None
        instruction.annotate(**{"async": "prefetch" if prefetched else "start"})

    def _done(self, instruction: Instruction, action: str) -> list[Instruction]:
        """A barrier where the result is waited for: no work, but the schedule's place is kept."""
        started = instruction.operands[0].removeprefix("%")
        while started in self._updated:
            started = self._updated[started]
        barrier = successor(instruction, "opt-barrier", [f"%{started}"])
        barrier.annotate(**{"async": "done", "waits_for": action})
        if self._ordered:
            barrier.annotate(order=str(self._order))
        return [barrier]

    def _fusion(self, instruction: Instruction) -> list[Instruction]:
        call = successor(instruction, "call", instruction.operands)
        call.attributes["to_apply"] = instruction.attributes["calls"]
        if config := instruction.attributes.get("backend_config"):
            call.attributes["backend_config"] = config
        call.annotate(fusion=instruction.attributes.get("kind", "kLoop"))
        return [call]

    def _while(self, instruction: Instruction) -> list[Instruction]:
        count = _TRIP_COUNT.search(instruction.attributes.pop("backend_config", ""))
        if count:
            instruction.annotate(trip_count=count[1])
        return [instruction]

    def _bitcast(self, instruction: Instruction) -> list[Instruction]:
        source, target = array(self._shape(instruction.operands[0])), array(instruction.shape)
        if source is None or target is None:
            return self._first_operand(instruction)
        padded = source.elements * bits(source.dtype) != target.elements * bits(target.dtype)
        flags = source.dtype != target.dtype and "pred" in (source.dtype, target.dtype)  # bytes here, bits in StableHLO
        if "T(" in instruction.shape and (padded or flags):
            return [padded_view(instruction)]
        if source.dtype == target.dtype:
            _check_view(instruction, source, target)
            return [successor(instruction, "reshape", instruction.operands)]
        return _bitcast_convert(instruction, source, target)

    def _copy(self, instruction: Instruction) -> list[Instruction]:
        target = array(instruction.shape)
        if target is None or not self._scheduled:
            return self._first_operand(instruction)
        copy = successor(instruction, "transpose", instruction.operands)
        copy.attributes["dimensions"] = "{" + ",".join(map(str, range(len(target.sizes)))) + "}"
        copy.annotate(copy="true")
        if config := instruction.attributes.get("backend_config"):
            copy.attributes["backend_config"] = config
        return of_one_type(copy, self._shape) if self._tiled else [copy]

    def _custom_call(self, instruction: Instruction) -> list[Instruction]:
        notes = {
            key: instruction.attributes.pop(key) for key in _CONVOLUTION_ATTRIBUTES if key in instruction.attributes
        }
        if notes:
            instruction.annotate(**notes)
        return [instruction]

    def _one_at_a_time(self, instruction: Instruction) -> list[Instruction]:
        """Variadic forms that StableHLO lacks, one op for each operand, marked as belonging together."""
        if not instruction.shape.startswith("("):
            return [instruction]
        single: list[Instruction] = []
        shapes = elements(instruction.shape)
        for index, (operand, shape) in enumerate(zip(instruction.operands, shapes, strict=False)):
            part = Instruction(
                name=f"{instruction.name}.part{index}",
                shape=shape,
                opcode=instruction.opcode,
                operands=[operand],
                attributes=dict(instruction.attributes),
            )
            part.annotate(combined=instruction.name)
            single.append(part)
        together = Instruction(
            name=instruction.name,
            shape=instruction.shape,
            opcode="tuple",
            operands=[f"%{part.name}" for part in single],
            root=instruction.root,
        )
        return [*single, together]

    def _first_operand(self, instruction: Instruction) -> list[Instruction]:
        """The operand as it is: ops that move nothing."""
        source, target = array(self._shape(instruction.operands[0])), array(instruction.shape)
        if source and target:
            _check_view(instruction, source, target)
        opcode = "reshape" if target else "opt-barrier"
        return [successor(instruction, opcode, instruction.operands[:1])]

    def _stochastic_convert(self, instruction: Instruction) -> list[Instruction]:
        return [successor(instruction, "convert", instruction.operands[:1])]

    def _rng_state(self, instruction: Instruction) -> list[Instruction]:
        return [successor(instruction, "constant", ["{...}"])]

    def _shape(self, operand: str) -> str:
        name, *path = operand.removeprefix("%").split("#")
        return element(self._shapes.get(name, ""), path)

    def _layouts(self, instruction: Instruction) -> str | None:
        """`{1,0},{0,1}->{1,0}`, innermost dimension first, when some array is not row-major."""
        inputs = [array(part) for operand in instruction.operands for part in elements(self._shape(operand))]
        outputs = [array(part) for part in elements(instruction.shape)]
        if all(each is None or each.row_major for each in (*inputs, *outputs)):
            return None
        return f"{_minor_to_major(inputs)}->{_minor_to_major(outputs)}"

    def _keep_backend_config(self, instruction: Instruction) -> None:
        """What the backend noted beside the op (tile sizes, estimated cycles); a custom call keeps its own."""
        if instruction.opcode == "custom-call":
            return
        config = _said(instruction.attributes.pop("backend_config", ""))
        if config:
            instruction.annotate(backend_config=config)


def _async_results(lines: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Result shapes by the name of the op that started them, and what every `update` continues."""
    updated: dict[str, str] = {}
    done: list[tuple[str, str]] = []
    for line in lines:
        match = _ASYNC.search(line)
        found = head(line) if match else None
        if match is None or found is None or found[3] != f"{match[1]}-{match[2]}":
            continue
        if match[2] == "update":
            updated[found[1]] = match[3]
        elif match[2] == "done":
            done.append((match[3], found[2]))
    results: dict[str, str] = {}
    for name, shape in done:
        while name in updated:
            name = updated[name]
        results[name] = shape
    return results, updated


def _check_view(instruction: Instruction, source: Array, target: Array) -> None:
    """Refuses what XLA's own check would answer by aborting the process."""
    if source.elements != target.elements:
        shapes = f"{shape_text(target.dtype, target.sizes)} of {shape_text(source.dtype, source.sizes)}"
        raise InputError(f"{instruction.opcode} '{instruction.name}' makes {shapes}", fix="check its shape")


def _bitcast_convert(instruction: Instruction, source: Array, target: Array) -> list[Instruction]:
    """A bitcast to another element type: through shapes that differ only in a last dimension, as StableHLO asks."""
    if source.elements == target.elements:
        before = after = target.sizes
    elif target.elements > source.elements:
        before, after = (source.elements,), (source.elements, target.elements // max(source.elements, 1))
    else:
        before, after = (target.elements, source.elements // max(target.elements, 1)), (target.elements,)
    if math.prod(before) != source.elements or math.prod(after) != target.elements:
        _check_view(instruction, source, target)
    flat = Instruction(
        name=f"{instruction.name}.view",
        shape=shape_text(source.dtype, before),
        opcode="reshape",
        operands=instruction.operands,
    )
    cast = Instruction(
        name=f"{instruction.name}.cast",
        shape=shape_text(target.dtype, after),
        opcode="bitcast-convert",
        operands=[f"%{flat.name}"],
    )
    return [flat, cast, successor(instruction, "reshape", [f"%{cast.name}"])]


def _minor_to_major(arrays: list[Array | None]) -> str:
    return ",".join("{" + ",".join(map(str, each.minor_to_major)) + "}" for each in arrays if each is not None)


def _said(config: str) -> str:
    """A backend's JSON without what it left at its default; empty when nothing is left."""
    if not config.startswith("{"):
        return ""
    try:
        value = _pruned(json.loads(config[: closing(config, 0) + 1]))
    except (ValueError, RecursionError):
        return ""
    return json.dumps(value, separators=(",", ":")) if value else ""


def _pruned(value: Any) -> Any:
    if isinstance(value, dict):
        pairs = {key: _pruned(inner) for key, inner in value.items()}
        return {key: inner for key, inner in pairs.items() if inner}
    if value == "0" or (isinstance(value, str) and value.endswith("_INVALID")):
        return None
    return value
