"""A traced function split in two: what some of its results need, and everything else, with the values that pass between.

    first(inputs)         -> (some results, kept)
    second(inputs, kept)  -> the other results

Zero-bubble schedules (Qi 2024) split the backward pass so: `first` is the gradient of a part's input, `second` that of its
weights. No arithmetic is done twice: a value of `first` that `second` needs is kept, unless it is an input in another
shape or type, which is made again. A scan is split into two scans, and what passes between them is stacked over its turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, unmapped_aval

# Equations that stand for the body they call, and under which name they have it.
_BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_CALLS = ("jit", "pjit", "remat2", "checkpoint", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call")
# Values in another shape or type: cheaper to make again than to keep.
_RESHAPED = (
    "reshape", "transpose", "broadcast_in_dim", "convert_element_type", "squeeze", "expand_dims", "slice", "copy",
    "iota", "sharding_constraint",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The two halves. The first takes all inputs, the second those that it may see and what the first one kept."""

    first: ClosedJaxpr
    second: ClosedJaxpr


def split(function: ClosedJaxpr, wanted: Sequence[bool], visible: Sequence[bool]) -> Split:
    """A function split by its results.

    Args:
        function: The traced function.
        wanted: Which of its results the first half gives.
        visible: Which of its inputs the second half has; of the others, what it needs is kept.
    """
    return _split(_inlined(function), wanted, visible)


def _split(function: ClosedJaxpr, wanted: Sequence[bool], visible: Sequence[bool]) -> Split:
    """The split of a function without calls inside."""
    jaxpr = function.jaxpr
    results = [v for v, asked in zip(jaxpr.outvars, wanted, strict=True) if asked]
    others = [v for v, asked in zip(jaxpr.outvars, wanted, strict=True) if not asked]
    early = _Needed.of(jaxpr, results)
    there = _there(jaxpr, visible)
    needed, kept = set(_variables(others)), dict[Var, None]()
    first: list[JaxprEqn] = []
    second: list[JaxprEqn] = []
    for number in reversed(range(len(jaxpr.eqns))):
        eqn = jaxpr.eqns[number]
        asked = [v for v in eqn.outvars if v in needed]
        made = early.made.get(number)
        if made is None or not made.issuperset(asked):  # not of the first half, or a scan that is so in part
            late = eqn
            if made is not None:
                before, late = _split_scan(eqn, made)
                first.append(before)
                kept |= dict.fromkeys(v for v in asked if v in made)
                kept |= dict.fromkeys(before.outvars[len(made) :])
            elif not asked:
                continue
            second.append(late)
            needed.update(v for v in _variables(late.invars) if v not in kept)
            continue
        first.append(_scan_of(eqn, made) if eqn.primitive.name == "scan" else eqn)
        if asked and there.issuperset(asked):
            second.append(eqn)
            needed.update(_variables(eqn.invars))
        else:
            kept |= dict.fromkeys(asked)
    seen = [v for v, is_seen in zip(jaxpr.invars, visible, strict=True) if is_seen]
    kept |= dict.fromkeys(v for v in jaxpr.invars if v in needed and v not in set(seen))
    return Split(
        first=_closed(function, jaxpr.invars, first, [*results, *kept]),
        second=_closed(function, [*seen, *kept], second, others),
    )


def _there(jaxpr: Jaxpr, visible: Sequence[bool]) -> set[Var]:
    """What the second half sees, and can make of it without arithmetic."""
    found = {v for v, is_seen in zip(jaxpr.invars, visible, strict=True) if is_seen} | set(jaxpr.constvars)
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in _RESHAPED and found.issuperset(_variables(eqn.invars)):
            found.update(eqn.outvars)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needed:
    """What some results of a function are made by.

    Attributes:
        made: Of each equation that takes part, by its number, the values that it has to make: of a scan some, else all.
        values: Everything that is read.
    """

    made: dict[int, set[Var]]
    values: set[Var]

    @classmethod
    def of(cls, jaxpr: Jaxpr, results: Iterable[Any]) -> _Needed:
        """By going back from the results."""
        made: dict[int, set[Var]] = {}
        values = set(_variables(results))
        for number in reversed(range(len(jaxpr.eqns))):
            eqn = jaxpr.eqns[number]
            if values.isdisjoint(eqn.outvars):
                continue
            made[number], read = set(eqn.outvars), eqn.invars
            if eqn.primitive.name == "scan":
                made[number] = _with_carries(eqn, values)
                read = _scan_of(eqn, made[number]).invars
            values.update(_variables(read))
        return cls(made=made, values=values)


def _with_carries(eqn: JaxprEqn, values: set[Var]) -> set[Var]:
    """The results of a scan that are among the values, and those that their making carries from turn to turn."""
    body, consts, carries = _scan_parts(eqn)
    asked = [v in values for v in eqn.outvars]
    while True:
        read = _Needed.of(body, [v for v, is_asked in zip(body.outvars, asked, strict=True) if is_asked]).values
        more = [is_asked or (at < carries and body.invars[consts + at] in read) for at, is_asked in enumerate(asked)]
        if more == asked:
            return {v for v, is_asked in zip(eqn.outvars, asked, strict=True) if is_asked}
        asked = more


def _scan_parts(eqn: JaxprEqn) -> tuple[Jaxpr, int, int]:
    """The body of a scan, how many values all turns share, and how many are carried from one to the next."""
    params = eqn.params
    if "ft_in" in params:  # as of jax 0.12
        shared, carried, _ = (len(list(part)) for part in params["ft_in"].update(eqn.invars).unpack())
        return params["jaxpr"].jaxpr, shared, carried
    return params["jaxpr"].jaxpr, params["num_consts"], params["num_carry"]


def _scan_of(eqn: JaxprEqn, made: set[Var]) -> JaxprEqn:
    """A scan that makes some of its results, which carry nothing but themselves, and reads what these need."""
    body, consts, carries = _scan_parts(eqn)
    chosen = [v in made for v in eqn.outvars]
    results = [v for v, is_chosen in zip(body.outvars, chosen, strict=True) if is_chosen]
    needed = _Needed.of(body, results)
    eqns = [
        _scan_of(each, needed.made[number]) if each.primitive.name == "scan" else each
        for number, each in reversed(list(enumerate(body.eqns)))
        if number in needed.made
    ]
    closed = _closed(eqn.params["jaxpr"], body.invars, eqns, results)
    left = [v for v in eqn.outvars if v in made]
    return _rescanned(eqn, closed, list(eqn.invars), consts, chosen[:carries], left)


def _split_scan(eqn: JaxprEqn, made: set[Var]) -> tuple[JaxprEqn, JaxprEqn]:
    """Two scans: one that makes these results, with everything that it keeps behind them, and one of the others."""
    body, consts, carries = _scan_parts(eqn)
    chosen = [v in made for v in eqn.outvars]
    visible = [not (0 <= at - consts < carries and chosen[at - consts]) for at in range(len(body.invars))]
    halves = _split(eqn.params["jaxpr"], chosen, visible)
    passed = halves.first.jaxpr.outvars[sum(chosen) :]
    stacked = [Var(unmapped_aval(eqn.params["length"], 0, v.aval)) for v in passed]
    results = [v for v in eqn.outvars if v in made]
    early = _rescanned(eqn, halves.first, list(eqn.invars), consts, chosen[:carries], [*results, *stacked])
    # Of the second half: what the turns share, its own carries, one value for each turn, and what is kept.
    seen = [v for v, is_seen in zip(eqn.invars, visible, strict=True) if is_seen]
    own = [True] * chosen[:carries].count(False)
    others = [v for v in eqn.outvars if v not in made]
    return early, _rescanned(eqn, halves.second, [*seen, *stacked], consts, own, others)


def _rescanned(
    eqn: JaxprEqn, body: ClosedJaxpr, inputs: list[Any], consts: int, carried: Sequence[bool], results: list[Var]
) -> JaxprEqn:
    """A scan with another body: of its carries those that are chosen, of other inputs those that the body reads."""
    jaxpr = body.jaxpr
    read = set(_variables(v for each in jaxpr.eqns for v in each.invars)) | set(_variables(jaxpr.outvars))
    taken = [
        carried[at - consts] if 0 <= at - consts < len(carried) else v in read for at, v in enumerate(jaxpr.invars)
    ]
    values = [v for v, is_taken in zip(inputs, taken, strict=True) if is_taken]
    own = jaxpr.replace(invars=[v for v, is_taken in zip(jaxpr.invars, taken, strict=True) if is_taken])
    model = _scan_like(eqn, values, sum(taken[:consts]), sum(carried), [v.aval for v in own.outvars])
    scan: JaxprEqn = model.replace(
        invars=values,
        outvars=results,
        params={**model.params, "jaxpr": ClosedJaxpr(own, body.consts)},
        source_info=eqn.source_info,
        ctx=eqn.ctx,
    )
    return scan


def _scan_like(eqn: JaxprEqn, inputs: list[Any], consts: int, carries: int, results: list[Any]) -> JaxprEqn:
    """A scan of such inputs and results, whatever its body: how an equation says what is carried is jax's own matter."""

    def scanned(*values: jax.Array) -> Any:
        shared, first, xs = values[:consts], values[consts : consts + carries], values[consts + carries :]

        def turn(carry: Any, x: Any) -> tuple[Any, Any]:
            _, carry, _ = jax.lax.optimization_barrier((shared, carry, x))  # reads everything, in order
            return carry, [jnp.zeros(aval.shape, aval.dtype) for aval in results[carries:]]

        params = eqn.params
        return jax.lax.scan(turn, first, xs, params["length"], params["reverse"], params["unroll"])

    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in inputs]
    found: list[JaxprEqn] = [e for e in jax.make_jaxpr(scanned)(*shapes).eqns if e.primitive.name == "scan"]
    return found[0]


def _closed(
    whole: ClosedJaxpr, inputs: Sequence[Var], backwards: list[JaxprEqn], results: Sequence[Any]
) -> ClosedJaxpr:
    """A function of some of another's equations, which come in reverse."""
    jaxpr = whole.jaxpr.replace(
        invars=list(inputs),
        eqns=backwards[::-1],
        outvars=list(results),
        debug_info=whole.jaxpr.debug_info.with_unknown_names(),
    )
    return ClosedJaxpr(jaxpr, whole.consts)


def _inlined(function: ClosedJaxpr) -> ClosedJaxpr:
    """A copy of the function with its calls inlined, every value under a name of its own."""
    eqns: list[JaxprEqn] = []
    constants: dict[Var, Any] = dict(zip(function.jaxpr.constvars, function.consts, strict=True))

    def walk(jaxpr: Jaxpr, known: dict[Var, Any], outer: Any) -> list[Any]:
        def read(atom: Any) -> Any:
            return atom if isinstance(atom, Literal) else known.get(atom, atom)

        for eqn in jaxpr.eqns:
            names = eqn.source_info.name_stack if outer is None else outer + eqn.source_info.name_stack
            inputs = [read(atom) for atom in eqn.invars]
            body = next((eqn.params[key] for key in _BODIES if key in eqn.params), None)
            if eqn.primitive.name in _CALLS and body is not None:
                inner, consts = (body.jaxpr, body.consts) if isinstance(body, ClosedJaxpr) else (body, [])
                held = {v: Var(v.aval) for v in inner.constvars}
                constants.update(zip(held.values(), consts, strict=True))
                results = walk(inner, held | dict(zip(inner.invars, inputs, strict=True)), names)
                known.update(zip(eqn.outvars, results, strict=True))
                continue
            is_scan = eqn.primitive.name == "scan"
            params = {**eqn.params, "jaxpr": _inlined(eqn.params["jaxpr"])} if is_scan else eqn.params
            made = [Var(v.aval) for v in eqn.outvars]
            known.update(zip(eqn.outvars, made, strict=True))
            source = eqn.source_info.replace(name_stack=names)
            eqns.append(eqn.replace(invars=inputs, outvars=made, params=params, source_info=source))
        return [read(atom) for atom in jaxpr.outvars]

    results = walk(function.jaxpr, {}, None)
    jaxpr = function.jaxpr.replace(constvars=list(constants), eqns=eqns, outvars=results)
    return ClosedJaxpr(jaxpr, list(constants.values()))


def _variables(atoms: Iterable[Any]) -> Iterable[Var]:
    return (atom for atom in atoms if isinstance(atom, Var))
