"""Functions of a number, one by one and in chains: what each costs in instructions, and what a chain costs in latency."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy import special

from meshcast.evidence.calibrate.probe import ProbeBody, ProbeChoices, Settings

LARGE = (2**22, 2**25)  # where instructions or bytes count
SMALL = (256, 2**14)  # where a chain's latency does
CHAINED = 150
Spec = jax.ShapeDtypeStruct


def _positive(x: Any) -> Any:
    return jnp.abs(x) + jnp.asarray(0.5, x.dtype)


# Arguments are within 0.03 of zero.
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "fma": lambda x: x * 1.5 + 0.25,
    "divide": lambda x: 1.5 / (x + 2),
    "sqrt": lambda x: jnp.sqrt(_positive(x)),
    "rsqrt": lambda x: jax.lax.rsqrt(_positive(x)),
    "cbrt": lambda x: jnp.cbrt(x),
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "log": lambda x: jnp.log(_positive(x)),
    "log1p": lambda x: jnp.log1p(jnp.abs(x)),
    "power": lambda x: jnp.power(_positive(x), 1.7),
    "power_two": lambda x: jnp.power(_positive(x), x + 2),
    "tanh": jnp.tanh,
    "logistic": jax.nn.sigmoid,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tan": jnp.tan,
    "atan2": lambda x: jnp.arctan2(x, x + 1),
    "asin": jnp.arcsin,
    "acos": jnp.arccos,
    "sinh": jnp.sinh,
    "asinh": jnp.arcsinh,
    "atanh": jnp.arctanh,
    "erf": special.erf,
    "erfc": special.erfc,
    "erf_inv": special.erfinv,
    "lgamma": lambda x: special.gammaln(_positive(x)),
    "digamma": lambda x: special.digamma(_positive(x)),
    "bessel": lambda x: special.i0e(_positive(x)),
    "softplus": jax.nn.softplus,
    "floor_mod": lambda x: jnp.mod(x * 100, 1.3),
    "round": lambda x: jnp.round(x * 100),
    "clip": lambda x: jnp.clip(x, -0.02, 0.02),
    "select": lambda x: jnp.where(x > 0, x, x * 0.01),
    "integer_divide": lambda x: (jnp.abs(x * 3e4).astype(jnp.int32) // 37).astype(x.dtype),
    "integer_mod": lambda x: (jnp.abs(x * 3e4).astype(jnp.int32) % 1013).astype(x.dtype),
}


def build(op: str, elements: int, dtype: str, times: int = 1) -> ProbeBody:
    """A function applied `times` times in a row to a vector."""
    function = FUNCTIONS[op]

    def chain(x: Any) -> Any:
        for _ in range(times):
            x = function(x).astype(x.dtype)
        return x

    return ProbeBody(function=chain, args=(Spec((elements,), jnp.dtype(dtype)),))


def probes() -> Iterator[Settings]:
    """Every function where its instructions count, then chains of all lengths and sizes."""
    for op in FUNCTIONS:
        for dtype in ("float32", "bfloat16"):
            yield {"op": op, "elements": LARGE[0], "dtype": dtype, "times": 4 if dtype == "float32" else 2}
    draw = ProbeChoices("functions/1")
    names = list(FUNCTIONS)
    for i in range(CHAINED):
        low, high = draw.pick((LARGE, SMALL))
        times = draw.pick((1, 1, 2, 4, 8, 16))
        dtype = draw.pick(("float32", "float32", "bfloat16", "float16"))
        yield {"op": names[i % len(names)], "elements": draw.log_uniform(low, high, 4), "dtype": dtype, "times": times}
