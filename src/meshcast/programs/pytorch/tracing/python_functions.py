"""Functions of torch that are written in Python: taken apart one level at a time, so that what they call is seen too.

A function mode is off while it handles a call. So what `multi_head_attention_forward` calls,
`scaled_dot_product_attention` among it, would reach torch's C++ and come back in pieces that no fused kernel is made of.
Its body is therefore run with the mode on. The body begins by asking whether a mode wants the call; a copy of the function,
to which the answer is no, goes on with the rest.

Imports torch: only to be imported after `library.require_torch`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

_ASKS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


@functools.cache
def body_of(function: Any) -> Callable[..., Any] | None:
    """The function as it goes on when no mode wants its call; None where it is not one of Python's that asks."""
    if not isinstance(function, FunctionType):
        return None
    asks = [name for name in _ASKS if name in function.__code__.co_names and name in function.__globals__]
    if not asks:
        return None
    unasked = {**function.__globals__, **dict.fromkeys(asks, lambda *_: False)}
    body = FunctionType(function.__code__, unasked, function.__name__, function.__defaults__, function.__closure__)
    body.__kwdefaults__ = function.__kwdefaults__
    return body
