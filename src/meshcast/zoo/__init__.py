"""The zoo: reference programs written plainly in JAX, captured over any mesh with neither devices nor weights.

Listing the zoo imports no jax; building a program does. A builder returns `(fn, args, options)`: `args` are pytrees of
`jax.ShapeDtypeStruct`, `options` go to `jax.jit`. The names of `fn`'s parameters are the roles of its arguments:
`params`, `opt_state`, `batch`, `cache`.

`names` finds a model, `builder` asks its family for a program: a module of `architectures`, built of `layers`, with sizes of
`shapes`.
"""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
