"""The zoo: reference programs written plainly in JAX, captured over any mesh with neither devices nor weights.

Listing the zoo imports no jax; building a program does. A builder returns `(fn, args, options)`: `args` are pytrees of
`jax.ShapeDtypeStruct`, `options` go to `jax.jit`. The names of `fn`'s parameters are the roles of its arguments:
`params`, `opt_state`, `batch`, `cache`.
"""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
