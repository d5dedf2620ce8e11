"""XLA HLO text in, StableHLO text out, so that one reader serves every input: before or after XLA's optimisations.

XLA's own parser and converter inside jaxlib do the work; only what a compiled program has and StableHLO lacks is
rewritten first (`hlo_rewrite`). No `jax` is imported. Metadata's `op_name` becomes the MLIR location; the ops of a
scheduled module stand in the order of its schedule.

Attributes that the result's ops may carry, all strings unless said otherwise:

| attribute | on | meaning |
|---|---|---|
| `meshcast.trip_count` (i64) | `stablehlo.while` | the loop count XLA knew |
| `meshcast.scheduled` | the module | compiled and scheduled: what has a name below is one launch |
| `meshcast.name` | op, `func.call` | the instruction's name, on what a scheduled module launches |
| `meshcast.fusion` | `func.call` | the callee was one kernel, of this kind (`kLoop`, ...) |
| `meshcast.backend_config` | any | the backend's JSON beside the op, defaults left out (tile sizes, estimated cycles) |
| `meshcast.async` | op, `optimization_barrier` | `start`: beside what follows; `prefetch`: in the step before; `done`: awaited |
| `meshcast.on_chip` | op, `func.call` | positions of results outside of main memory: a TPU's VMEM, or counters |
| `meshcast.waits_for` | `optimization_barrier` | the opcode that `done` ends |
| `meshcast.copy` | `stablehlo.transpose` | was a copy: same dimensions, maybe another layout |
| `meshcast.layouts` | op | operands' and results' layouts, innermost dimension first, where not row-major |
| `meshcast.combined` | collective | name of the variadic collective that it was a part of |
| `meshcast.window`, `.dim_labels`, `.{feature,batch}_group_count` | `custom_call` | a library convolution |
"""

from __future__ import annotations

import importlib
import re
from typing import Any

from meshcast.base import InputError, UnsupportedError
from meshcast.programs.hlo_rewrite import rewrite
from meshcast.programs.hlo_sugar import desugar, has_sugar
from meshcast.programs.hlo_tidy import tidy

_ENTRY_COMPUTATION = re.compile(r"^\s*ENTRY\b", re.MULTILINE)
_PARTITIONED_ENTRY = re.compile(r"^\s*ENTRY %?[\w.-]*_spmd\b", re.MULTILINE)
_UNBOUNDED = re.compile(r"\b(?:pred|bf16|[fsuc]\d\w*)\[[\d<=, ]*\?[\d<=,? ]*\]")
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_PLACE = re.compile(r"was parsing (\d+):(\d+): error: (.*)")
_FRONTEND_ATTRIBUTES = re.compile(r'mhlo\.frontend_attributes = \{((?:"[^"]*"|[^{}"])*)\}')
_ENTRY = re.compile(r'([\w.$-]+|"[^"]*") = ("[^"]*")')
_UNARY = re.compile(
    r"mhlo\.(acos|acosh|asin|asinh|atanh|cosh|erf|erf_inv|sinh) (%[\w#]+)( \{.*?\})? : (\S+?)(?= loc\(|$)", re.MULTILINE
)
_TOP_K = re.compile(r"mhlo\.topk\((%[\w#]+), k = (\d+)(?:, largest = true)?\)")
_ALL_TO_ALL = re.compile(r'"mhlo\.all_to_all"\(([^)]*)\) <\{([^\n]*?)\}>([^\n]*?) : \(tensor<([^>]*)>')
_MODULE_ATTRIBUTES = re.compile(r"^module\b[^\n{]*attributes \{", re.MULTILINE)
SCHEDULED = "meshcast.scheduled"
_DEVICE_COUNTS = {"num_partitions": "num_partitions", "num_replicas": "replica_count"}
_INTEGERS = ("meshcast.trip_count", "meshcast.order")
_MHLO_OP = re.compile(r'(?:= |^\s*)"?(mhlo\.[\w.]+)', re.MULTILINE)


def looks_like_hlo(text_head: str) -> bool:
    """True when the text starts as XLA's HLO does."""
    return text_head.lstrip().startswith("HloModule ")


def is_partitioned(text: str) -> bool:
    """True when the text is one device's program: compiled and scheduled, or as XLA's partitioner leaves it.

    Its parameters may still carry the shardings that the program had before.
    """
    header = text.lstrip().split("\n", 1)[0]
    return "is_scheduled=true" in header or _PARTITIONED_ENTRY.search(text) is not None


def to_stablehlo(text: str, *, where: str) -> str:
    """The HLO module as a StableHLO module in MLIR text; contents of large constants are not kept.

    Args:
        text: HLO text as XLA prints or dumps it: unoptimised, after a pass, or compiled and scheduled.
        where: The text's origin, for error messages.
    """
    _refuse_unbounded(text, where)
    plain = rewrite(_normalised(text, where), where=where)
    module = _with_header(_respelled(_hoisted(_converted(plain, where))), text)
    _refuse_leftovers(module, where)
    return tidy(module, where=where)


def _hlo() -> Any:
    """XLA's own reader of HLO text; jaxlib ships no types for it."""
    return importlib.import_module("jaxlib._hlo")


def _normalised(text: str, where: str) -> str:
    """The text as XLA's own printer writes it: one instruction a line, every name unique."""
    if not looks_like_hlo(text):
        raise InputError(
            "not HLO text: it does not start with 'HloModule'", where=where, fix="pass a StableHLO or HLO file"
        )
    if not _ENTRY_COMPUTATION.search(text):  # XLA's parser would take the last computation of a truncated text
        raise InputError(
            "the HLO has no ENTRY computation", where=where, fix="the text is truncated, or one computation of a module"
        )
    try:
        return str(_hlo().hlo_module_from_text(text).to_string())
    except (RuntimeError, ValueError) as error:
        if not has_sugar(text):
            raise _parse_error(str(error), where) from None
    try:  # newer XLA's spelling: the line numbers of the second attempt would not be the user's
        return str(_hlo().hlo_module_from_text(desugar(text)).to_string())
    except (RuntimeError, ValueError) as error:
        raise _parse_error(_PLACE.sub(r"\3", str(error)), where) from None


def _refuse_unbounded(text: str, where: str) -> None:
    """Raises UnsupportedError for a size that the text leaves open; a bound, `<=8`, is taken for the size."""
    found = _UNBOUNDED.search(_QUOTED.sub(lambda quoted: " " * len(quoted[0]), text)) if "?" in text else None
    if found:
        line = text.count("\n", 0, found.start()) + 1
        raise UnsupportedError(
            f"the shape {found[0]} has a dimension without a size",
            where=f"{where}:{line}",
            fix="write its size, or a bound such as <=8",
        )


def _parse_error(message: str, where: str) -> InputError:
    found = _PLACE.findall(message)
    fix = "check that the text is complete; text from a newer XLA needs a newer jaxlib"
    if not found:
        return InputError(f"XLA cannot read this HLO: {message.strip()}", where=where, fix=fix)
    line, column, first = found[0]
    return InputError(f"XLA cannot read this HLO: {first}", where=f"{where}:{line}:{column}", fix=fix)


def _converted(text: str, where: str) -> str:
    from jaxlib import _jax

    try:
        proto = _hlo().hlo_module_from_text(text).as_serialized_hlo_module_proto()
        return str(_jax.mlir.xla_computation_to_mlir_module(_hlo().XlaComputation(proto)))
    except (RuntimeError, ValueError) as error:
        found = _PLACE.findall(str(error))
        reason = found[0][2] if found else str(error).strip().splitlines()[0]
        raise UnsupportedError(
            f"this HLO has no StableHLO form: {reason}",
            where=where,
            fix="pass the StableHLO the program was compiled from",
        ) from None


def _hoisted(module: str) -> str:
    """`meshcast.*` notes as attributes of the op itself, out of XLA's dictionary of frontend attributes."""

    def spell(key: str, value: str) -> str:
        return f"{key} = {int(value[1:-1])} : i64" if key in _INTEGERS else f"{key} = {value}"

    def hoist(match: re.Match[str]) -> str:
        entries = _ENTRY.findall(match[1])
        ours = [spell(key, value) for key, value in entries if key.startswith("meshcast.")]
        if not ours:
            return match[0]
        others = [f"{key} = {value}" for key, value in entries if not key.startswith("meshcast.")]
        return ", ".join(ours + (["mhlo.frontend_attributes = {" + ", ".join(others) + "}"] if others else []))

    return _FRONTEND_ATTRIBUTES.sub(hoist, module)


def _respelled(module: str) -> str:
    """Ops that XLA's converter leaves in MHLO, in CHLO or StableHLO."""
    if "mhlo." not in module:
        return module
    module = _UNARY.sub(r"chlo.\1 \2\3 : \4 -> \4", module)
    module = _TOP_K.sub(r"chlo.top_k(\1, k = \2)", module)
    module = module.replace(" = mhlo.scan(", " = chlo.scan(").replace("mhlo.return ", "stablehlo.return ")
    return _ALL_TO_ALL.sub(_all_to_all, module)


def _all_to_all(match: re.Match[str]) -> str:
    """HLO's all-to-all of n operands: StableHLO's, each operand split in n; the bytes on the wire are the same."""
    operands, attributes, rest, tensor = match.groups()
    count = operands.count("%")
    *sizes, _ = tensor.split("x")
    axis = next((axis for axis, size in enumerate(sizes) if size.isdigit() and int(size) % count == 0), None)
    if axis is None:
        return match[0]
    attributes = attributes.replace("#mhlo.", "#stablehlo.")
    split = f"concat_dimension = {axis} : i64, split_count = {count} : i64, split_dimension = {axis} : i64"
    return f'"stablehlo.all_to_all"({operands}) <{{{attributes}, {split}}}>{rest} : (tensor<{tensor}>'


def _with_header(module: str, text: str) -> str:
    """The header's numbers of partitions and replicas as JAX writes them, and whether the module is scheduled.

    XLA's converter drops all three.
    """
    header = text.lstrip().split("\n", 1)[0]
    counts = {name: re.search(rf"\b{hlo}=(\d+)", header) for name, hlo in _DEVICE_COUNTS.items()}
    said = "".join(f"mhlo.{name} = {found[1]} : i32, " for name, found in counts.items() if found)
    if "is_scheduled=true" in header:
        said += f'{SCHEDULED} = "true", '
    return _MODULE_ATTRIBUTES.sub(rf"\g<0>{said}", module, count=1)


def _refuse_leftovers(module: str, where: str) -> None:
    left = _MHLO_OP.search(module)
    if left:
        raise UnsupportedError(
            f"the HLO op behind '{left[1]}' has no StableHLO form",
            where=where,
            fix="pass the StableHLO the program was compiled from",
        )
