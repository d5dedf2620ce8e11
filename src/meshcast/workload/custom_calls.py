"""Costs of custom calls, by target name; users add their own kernels here.

Where a cost comes from, in this order: a declaration on the op itself (a `meshcast.cost` attribute), a rule registered
by the user, a built-in rule. A call that none of them knows is an error that says how to declare it.

A declaration is a dictionary attribute `meshcast.cost = {flops = 1.0e12 : f64, bytes = 4096 : i64, dtype = "bf16"}` or,
from JAX, the same as JSON in a frontend attribute: `set_xla_metadata(**{"meshcast.cost": json.dumps({...})})`. Keys:
`flops` (on the matrix engine), `vector_flops`, `transcendentals`, `bytes` (read and written), `dtype`; all optional.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from meshcast.errors import UnsupportedError, UsageError
from meshcast.workload.graph import Cost, OpKind
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules import RULES
from meshcast.workload.rules.attention import fused_attention
from meshcast.workload.rules.attributes import text
from meshcast.workload.rules.backend_config import backend_config, dictionary, parse_object
from meshcast.workload.rules.costs import streamed, total_bytes, view
from meshcast.workload.rules.rng import threefry
from meshcast.workload.rules.solvers import SOLVERS
from meshcast.workload.rules.sorting import top_k
from meshcast.workload.rules.vendor import cublas_gemm, cudnn_convolution, radix_sort

_DECLARATION = "meshcast.cost"
_DECLARED_KEYS = frozenset({"flops", "vector_flops", "transcendentals", "bytes", "dtype"})
_REMEDY = (
    "declare its cost: meshcast.workload.custom_calls.register_custom_call({target!r}, rule), or a "
    '`meshcast.cost = {{flops = ... : f64, bytes = ... : i64, dtype = "bf16"}}` attribute on the op'
)

_registered: dict[str, Rule] = {}  # the users' rules, by name or pattern


def register_custom_call(target_name: str, rule: Rule, *, replace: bool = False) -> None:
    """Costs every custom call to `target_name` (a name, or a pattern with `*`) by `rule` from now on.

    Raises:
        UsageError: A rule of this very name is registered already and `replace` is not set.
    """
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
    """
    declared = _declaration(reading)
    if declared is not None:
        return declared_cost(reading, declared)
    target = text(reading.op, "call_target_name")
    for rules in (_registered, _BUILT_IN):
        rule = _match(rules, target)
        if rule is not None:
            return rule(reading)
    raise _unknown(reading, target, "no rule knows what it does")


def declared_cost(reading: OpReading, declared: Mapping[str, Any]) -> Cost:
    """The cost of an opaque kernel as declared; bytes beyond the results' are reads, shared out by operand size."""
    results = total_bytes(reading.results)
    reads = tuple(tensor.bytes for tensor in reading.operands)
    if "bytes" in declared:
        total = int(declared["bytes"])
        results = min(results, total)
        whole = max(1, sum(reads))
        reads = tuple((total - results) * read // whole for read in reads)
    return Cost(
        kind=OpKind.CUSTOM,
        dtype=str(declared.get("dtype") or (reading.operands or reading.results)[0].dtype),
        matrix_flops=float(declared.get("flops", 0.0)),
        vector_flops=float(declared.get("vector_flops", 0.0)),
        transcendentals=float(declared.get("transcendentals", 0.0)),
        operand_bytes=reads,
        written_bytes=results,
    )


def _declaration(reading: OpReading) -> Mapping[str, Any] | None:
    """What the op's own `meshcast.cost` says, with unknown keys refused."""
    attributes = reading.op.attributes
    declared: Mapping[str, Any] | None = None
    if _DECLARATION in attributes:
        declared = dictionary(attributes[_DECLARATION])
    elif "mhlo.frontend_attributes" in attributes:
        noted = dictionary(attributes["mhlo.frontend_attributes"])
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
    """A Pallas, Mosaic or Triton kernel with the `cost_estimate` its author gave to `pallas_call`."""
    config = backend_config(reading.op)
    estimate = next(_estimates(config), None)
    if not estimate:
        raise _unknown(reading, text(reading.op, "call_target_name"), "the kernel carries no cost_estimate")
    declared = {"flops": estimate.get("flops", 0), "transcendentals": estimate.get("transcendentals", 0)}
    if estimate.get("bytes_accessed"):
        declared["bytes"] = estimate["bytes_accessed"]
    return declared_cost(reading, declared)


def _estimates(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The places where JAX puts an estimate: Mosaic TPU's JSON, Mosaic GPU's string, or the top level."""
    for place in (config.get("custom_call_config"), config):
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


_VIEWS = (
    "Sharding SPMDFullToShardShape SPMDShardToFullShape annotate_device_placement LayoutConstraint AllocateBuffer "
    "xla.sdy.* shape_assertion"
)
_KERNELS = "tpu_custom_call mosaic_gpu* __gpu$xla.gpu.triton triton_kernel_call"
_CALLBACKS = "xla_*python_cpu_callback xla_*python_gpu_callback MoveToHost MoveToDevice"
# Older exports spell CHLO's functions as custom calls.
_SPELLED = {name.replace("chlo.", "mhlo."): rule for name, rule in RULES.items() if name.startswith("chlo.")}

_BUILT_IN: Mapping[str, Rule] = {
    **{name: view for name in _VIEWS.split()},
    **{name: _kernel for name in _KERNELS.split()},
    **{name: _host_call for name in _CALLBACKS.split()},
    **{name: top_k for name in ("TopK", "__gpu$TopK", "mhlo.topk", "ApproxTopK")},
    "__cub$DeviceRadixSort*": radix_sort,
    **_SPELLED,
    **{name: threefry for name in ("cu_threefry2x32*", "hip_threefry2x32*")},
    "__cudnn$fmha*": fused_attention,
    **{name: cublas_gemm for name in ("__cublas$gemm", "__cublas$lt$matmul*")},
    "__cudnn$conv*": cudnn_convolution,
    **SOLVERS,
}
