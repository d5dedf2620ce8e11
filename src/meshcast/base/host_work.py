"""What a framework's host does before a launch, by name and in the order in which programs count it."""

from __future__ import annotations

# What a framework's host does before a launch: another view of a tensor, a call of an operator, of a module, of an operator
# whose operands it may cast, of a compiled kernel, of a library from compiled code, a parameter looked at by its optimizer;
# a wait until the device is done; a convolution of cuDNN's; a gradient that compiled code hands to its parameter; the entry
# of a compiled graph; a call and a view without gradients, those of the backward pass, a gradient that is added to its
# parameter, a parameter that a compiled graph looks at before it runs, and one that a compiled graph hands to autograd.
HOST_WORK = (
    "view", "call", "module", "cast", "compiled", "library", "parameter", "wait", "convolution", "gradient", "graph",
    "plain", "plain_view", "returned", "returned_view", "accumulated", "guarded",
    "tracked",
)  # fmt: skip
