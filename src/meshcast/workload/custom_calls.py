"""Costs of custom calls, by target name; users add their own kernels here.

Where a cost comes from, in this order: a declaration on the op itself (a `meshcast.cost` attribute), a rule registered
by the user, a built-in rule. A call that none of them knows is an error that says how to declare it.

A declaration is a dictionary attribute `meshcast.cost = {flops = 1.0e12 : f64, bytes = 4096 : i64, dtype = "bf16"}` or,
from JAX, the same as JSON in a frontend attribute: `set_xla_metadata(**{"meshcast.cost": json.dumps({...})})`. Keys:
`flops` (on the matrix engine), `vector_flops`, `transcendentals`, `bytes` (read and written), `dtype` (MLIR's name or
NumPy's: `bf16`, `bfloat16`); all optional, numbers not negative.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from meshcast.base import InputError, UnsupportedError, UsageError, expect
from meshcast.programs import ir
from meshcast.workload.graph import DTYPE_BITS, Cost, OpKind
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules import RULES
from meshcast.workload.rules.attention import fused_attention, transformer_engine_attention
from meshcast.workload.rules.attributes import text
from meshcast.workload.rules.backend_config import backend_config, dictionary, frontend_attributes, parse_object
from meshcast.workload.rules.costs import streamed, total_bytes, view
from meshcast.workload.rules.pallas import kernel_label, with_geometry
from meshcast.workload.rules.pallas_attention import training_attention
from meshcast.workload.rules.rng import threefry
from meshcast.workload.rules.solvers import SOLVERS
from meshcast.workload.rules.sorting import top_k
from meshcast.workload.rules.triton import TRITON, triton_cost
from meshcast.workload.rules.vendor import cublas_gemm, cudnn_convolution, radix_sort

_DECLARATION = "meshcast.cost"
_PALLAS_TPU = "tpu_custom_call"
_DECLARED_KEYS = frozenset({"flops", "vector_flops", "transcendentals", "bytes", "dtype"})
_REMEDY = (
    "declare its cost: meshcast.register_custom_call({target!r}, rule), or a "
    '`meshcast.cost = {{flops = ... : f64, bytes = ... : i64, dtype = "bf16"}}` attribute on the op'
)

_DTYPE_FIX = f"dtype is one of {', '.join(name for name in DTYPE_BITS if name != 'token')}, or NumPy's name for it"

_registered: dict[str, Rule] = {}  # the users' rules, by name or pattern


def registered_rules() -> tuple[tuple[str, Rule], ...]:
    """The users' rules at this moment: part of what a workload depends on, for whoever keeps one."""
    return tuple(_registered.items())


def register_custom_call(target_name: str, rule: Rule, *, replace: bool = False) -> None:
    """Costs every custom call to `target_name` (a name, or a pattern with `*`) by `rule` from now on.

    Raises:
        UsageError: A rule of this very name is registered already and `replace` is not set; or it is no name, or no rule.
    """
    expect(target_name, str, "a text", where="target_name", fix='such as "my_kernel", or "my_*" for all that begin so')
    if not callable(rule):
        raise UsageError(
            f"rule is a function of an OpReading that returns a Cost, not {rule!r}",
            where="rule",
            fix="docs/extending.md",
        )
    if target_name in _registered and not replace:
        raise UsageError(
            f"a cost rule for custom call {target_name!r} is registered already",
            fix="pass replace=True to put yours in its place",
        )
    _registered[target_name] = rule


def custom_call_cost(reading: OpReading) -> Cost:
    """The cost of one `stablehlo.custom_call`.

    Raises:
        UnsupportedError: Nothing declares or knows the cost of this target.
        InputError: Its declaration says what cannot be.
    """
    declared = _declaration(reading)
    target = text(reading.op, "call_target_name")
    if declared is not None:
        cost = declared_cost(reading, declared)
        return with_geometry(reading, cost) if target == _PALLAS_TPU else cost
    for rules in (_registered, _BUILT_IN):
        rule = _match(rules, target)
        if rule is not None:
            return rule(reading)
    raise _unknown(reading, target, "no rule knows what it does")


def declared_cost(reading: OpReading, declared: Mapping[str, Any]) -> Cost:
    """The cost of an opaque kernel as declared; bytes beyond the results' are reads, shared out by operand size.

    Raises:
        InputError: A number is none, or negative; a dtype has no such name, or is needed and not given.
    """
    flops, vector, functions = (_amount(reading, declared, key) for key in ("flops", "vector_flops", "transcendentals"))
    written = total_bytes(reading.results)
    reads = tuple(tensor.bytes for tensor in reading.operands)
    if "bytes" in declared:
        total = int(_amount(reading, declared, "bytes"))
        whole = sum(reads)
        written = min(written, total) if whole else total
        reads = tuple((total - written) * read // whole if whole else 0 for read in reads)
    dtype = _dtype(reading, declared)
    if flops and not dtype:
        raise _misdeclared(reading, "has flops and no dtype, and no operand or result that has one", _DTYPE_FIX)
    return Cost(
        kind=OpKind.CUSTOM,
        dtype=dtype,
        matrix_flops=flops,
        vector_flops=vector,
        transcendentals=functions,
        operand_bytes=reads,
        written_bytes=written,
    )


def _amount(reading: OpReading, declared: Mapping[str, Any], key: str) -> float:
    """The declared number at `key`, 0 where there is none."""
    value = declared.get(key, 0)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max:
        return float(value)
    raise _misdeclared(reading, f"says {key} = {value!r}", f"{key} is a number, zero or more")


def _dtype(reading: OpReading, declared: Mapping[str, Any]) -> str:
    """The declared element type as MLIR spells it; the first operand's or result's where none is declared."""
    name = declared.get("dtype")
    if name is None:
        values = (*reading.operands, *reading.results)
        return next((tensor.dtype for tensor in values if tensor.dtype != "token"), "")
    known = _DTYPES.get(name.lower()) if isinstance(name, str) else None
    if known is None:
        raise _misdeclared(reading, f"says dtype = {name!r}", _DTYPE_FIX)
    return known


def _misdeclared(reading: OpReading, what: str, fix: str) -> InputError:
    target = text(reading.op, "call_target_name")
    return InputError(f"the declared cost of custom call {target!r} {what}", where=reading.location or None, fix=fix)


def _dtype_names() -> dict[str, str]:
    """MLIR's element types by every name in lower case: MLIR's, NumPy's (`bfloat16`), XLA's, the catalogue's."""
    names = {name.lower(): name for name in DTYPE_BITS if name != "token"}
    for name in tuple(names.values()):
        kind = re.fullmatch(r"(bf|f|ui|i)(\d+)(\w*)", name)
        if kind:
            spelled = {"bf": "bfloat", "f": "float", "ui": "uint", "i": "int"}[kind[1]] + kind[2]
            names[f"{spelled}_{kind[3].lower()}" if kind[3] else spelled] = name
            names[{"ui": "u", "i": "s"}.get(kind[1], kind[1]) + kind[2] + kind[3].lower()] = name
    return names | {
        "bool": "i1",
        "pred": "i1",
        "complex64": "complex<f32>",
        "complex128": "complex<f64>",
        "f8": "f8E4M3FN",  # one name for all formats of a width, as in device files: they run at one rate
        "f6": "f6E2M3FN",
        "f4": "f4E2M1FN",
    }


def _declaration(reading: OpReading) -> Mapping[str, Any] | None:
    """What the op's own `meshcast.cost` says, with unknown keys refused."""
    attributes = reading.op.attributes
    declared: Mapping[str, Any] | None = None
    if _DECLARATION in attributes and isinstance(
        attributes[_DECLARATION], ir.StringAttr
    ):  # through XLA's text and back
        declared = parse_object(text(reading.op, _DECLARATION))
    elif _DECLARATION in attributes:
        if not isinstance(attributes[_DECLARATION], ir.DictAttr):
            raise InputError(
                f"the {_DECLARATION} of custom call {text(reading.op, 'call_target_name')!r} is no dictionary",
                where=reading.location or None,
                fix="write it as {flops = 1.0e12 : f64, bytes = 4096 : i64}",
            )
        declared = dictionary(attributes[_DECLARATION])
    else:
        noted = frontend_attributes(reading.op)
        if _DECLARATION in noted:
            declared = parse_object(str(noted[_DECLARATION]))
    if declared is not None and not (declared and _DECLARED_KEYS.issuperset(declared)):
        raise UsageError(
            f"the {_DECLARATION} of custom call {text(reading.op, 'call_target_name')!r} has keys {sorted(declared)}",
            where=reading.location or None,
            fix="give at least one of " + ", ".join(sorted(_DECLARED_KEYS)) + ", and nothing else",
        )
    return declared


def _kernel(reading: OpReading) -> Cost:
    """A Pallas, Mosaic or Triton kernel: what its code or name tells, else the `cost_estimate` given to `pallas_call`."""
    target = text(reading.op, "call_target_name")
    counted = triton_cost(reading) if target == TRITON else ""
    if isinstance(counted, Cost) and not counted.guessed:
        return counted
    estimate = next(_estimates(reading), None)
    if not estimate:
        if isinstance(counted, Cost):
            return counted
        if target == _PALLAS_TPU and (cost := training_attention(reading)) is not None:
            return cost
        why = f"the kernel {kernel_label(reading)} carries no cost_estimate" + (f", and {counted}" if counted else "")
        raise _unknown(reading, target, why)
    # XLA writes its 64-bit numbers back as texts.
    said = {
        key: int(value) if isinstance(value, str) and value.isdecimal() else value for key, value in estimate.items()
    }
    declared = {"flops": said.get("flops", 0), "transcendentals": said.get("transcendentals", 0)}
    if said.get("bytes_accessed"):
        declared["bytes"] = said["bytes_accessed"]
    cost = declared_cost(reading, declared)
    if target == _PALLAS_TPU:
        cost = with_geometry(reading, cost)
    # Work that its author has estimated, at an efficiency that nobody has told.
    return cost if cost.geometry is not None else replace(cost, guessed=True)


def _estimates(reading: OpReading) -> Iterator[Mapping[str, Any]]:
    """The places of an estimate: Mosaic TPU's JSON, Mosaic GPU's string, the top level, what was noted while tracing."""
    config = backend_config(reading.op)
    for place in (config.get("custom_call_config"), config, frontend_attributes(reading.op)):
        if isinstance(place, Mapping):
            for key in ("cost_estimate", "cost_estimate_json"):
                found = place.get(key)
                if isinstance(found, str):
                    found = parse_object(found)
                if found:
                    yield found


def _host_call(reading: OpReading) -> Cost:
    """A Python callback: operands go to the host and results come back."""
    values = (*reading.operands, *reading.results)
    return streamed(reading, OpKind.HOST, dtype=values[0].dtype if values else "")


def _match(rules: Mapping[str, Rule], target: str) -> Rule | None:
    """The rule of that very name, else the first pattern that fits."""
    exact = rules.get(target)
    if exact is not None:
        return exact
    return next((rule for pattern, rule in rules.items() if "*" in pattern and fnmatchcase(target, pattern)), None)


def _unknown(reading: OpReading, target: str, why: str) -> UnsupportedError:
    """The error for a call that cannot be costed: what it is, what it is given, what to do."""
    operands = ", ".join(map(str, reading.operands)) or "nothing"
    results = ", ".join(map(str, reading.results)) or "nothing"
    return UnsupportedError(
        f"custom call {target!r} ({operands} -> {results}) has no known cost: {why}",
        where=reading.location or None,
        fix=_REMEDY.format(target=target),
    )


_DTYPES = _dtype_names()
_VIEWS = (
    "Sharding SPMDFullToShardShape SPMDShardToFullShape annotate_device_placement LayoutConstraint AllocateBuffer "
    "AssumeGatherIndicesInBound GatherScatterIndicesBitpacked PrepareAsyncCallStart PrepareAsyncCallDone ConcatBitcast "
    "X64SplitLow X64SplitHigh X64Combine meshcast.padded_view "
    "xla.sdy.* shape_assertion"
)
_KERNELS = f"{_PALLAS_TPU} mosaic_gpu* {TRITON} triton_kernel_call"
_CALLBACKS = "xla_*python_cpu_callback xla_*python_gpu_callback MoveToHost MoveToDevice"
# Older exports spell CHLO's functions as custom calls.
_SPELLED = {name.replace("chlo.", "mhlo."): rule for name, rule in RULES.items() if name.startswith("chlo.")}

_BUILT_IN: Mapping[str, Rule] = {
    **{name: view for name in _VIEWS.split()},
    **{name: _kernel for name in _KERNELS.split()},
    **{name: _host_call for name in _CALLBACKS.split()},
    **{name: top_k for name in ("TopK", "__gpu$TopK", "mhlo.topk", "ApproxTopK", "custom_call_topk")},
    **{name: radix_sort for name in ("__cub$DeviceRadixSort*", "xla.gpu.ext.cub_sort_*")},
    **_SPELLED,
    **{name: threefry for name in ("cu_threefry2x32*", "hip_threefry2x32*")},
    "__cudnn$fmha*": fused_attention,
    **{f"te_fused_attn_{way}_ffi": transformer_engine_attention for way in ("forward", "backward")},
    **{name: cublas_gemm for name in ("__cublas$gemm", "__cublas$lt$matmul*")},
    "__cudnn$conv*": cudnn_convolution,
    **SOLVERS,
}


def is_library_target(target: str) -> bool:
    """Whether a custom call is one of a library or of the compiler itself, not a kernel that a user wrote."""
    rule = _match(_BUILT_IN, target)
    return rule is not None and rule not in (_kernel, _host_call)


def any_custom_call_cost(reading: OpReading, target: str, warnings: dict[str, None]) -> Cost:
    """The cost of a custom call; of an unknown one that of its bytes alone (`Cost.guessed`), and a warning."""
    try:
        return custom_call_cost(reading)
    except UnsupportedError:
        warnings[f"custom call {target} has no known cost: counted by its bytes alone"] = None
        return Cost(
            kind=OpKind.CUSTOM,
            operand_bytes=tuple(t.bytes for t in reading.operands),
            written_bytes=sum(t.bytes for t in reading.results),
            guessed=True,
        )
