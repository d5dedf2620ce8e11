"""The ATen calls of a recommender's layers in eager PyTorch, forwards, backwards and by Adagrad, written without PyTorch.

Calls are those that torch 2.13 makes of the modules of `benchmarks/embeddings.py`, one by one (`tests/programs` holds both
against each other): a linear layer is `addmm`, and backwards two products and a sum down columns; DLRM's interaction is a
batched product whose pairs are picked by `index`, and put back by `index_put`; under autocast operands, weights and biases are
cast before every layer and gradients after it; Adagrad takes lists of tensors (`_multi_tensor_adagrad`), and reads each
parameter's count of steps on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshcast.programs import CallWriter, View


@dataclass(slots=True, kw_only=True)
class WrittenLinear:
    """A linear layer: its parameters, and what its backward pass needs."""

    weight: View
    bias: View | None
    read: View | None = None
    used: View | None = None  # the weight as the product saw it
    gradients: tuple[View, ...] = ()


class EagerLayers:
    """Writes layers; `half` is the dtype that autocast casts to, `tf32` whether fp32 products may use tensor cores."""

    def __init__(self, calls: CallWriter, *, half: str | None, tf32: bool) -> None:
        self.calls, self.half, self.tf32 = calls, half, tf32
        self.linears: list[WrittenLinear] = []  # in the order in which an optimizer has them

    def linear(self, n: int, m: int, *, bias: bool = True) -> WrittenLinear:
        """The parameters of a layer from `n` to `m` columns."""
        weight = self.calls.tensor(m, n, held="parameter")
        made = WrittenLinear(weight=weight, bias=self.calls.tensor(m, held="parameter") if bias else None)
        self.linears.append(made)
        return made

    def cast(self, view: View) -> View:
        """An operand as autocast has it."""
        if self.half is None or view.dtype == self.half:
            return view
        made = View(self.calls.tensor(*view.shape, dtype=self.half).storage, view.shape, view.strides, self.half)
        with self.calls.autocast(on=False):  # autocast calls it from inside
            return self.calls.call("_to_copy", [view], [made], dtype=self.half)

    def product(self, name: str, takes: Sequence[View], *shape: int) -> View:
        """A product by cuBLAS."""
        return self.calls.new(name, takes, *shape, allow_tf32=self.tf32)

    def apply(self, layer: WrittenLinear, x: View) -> View:
        """`x W^T + b`."""
        calls = self.calls
        calls.module()
        x = layer.read = self.cast(x)
        layer.used = self.cast(layer.weight)
        bias = self.cast(layer.bias) if layer.bias is not None else None
        turned = calls.turned(layer.used)
        shape = (x.shape[0], layer.weight.shape[0])
        if bias is None:
            return self.product("mm", [x, turned], *shape)
        return self.product("addmm", [bias, x, turned], *shape)

    def back(self, layer: WrittenLinear, gradient: View, *, needed: bool = True) -> View | None:
        """Gradients of a layer's parameters, and of what it read where that is needed."""
        calls, x, used = self.calls, layer.read, layer.used
        assert x is not None
        assert used is not None
        further = None
        if needed and layer.bias is not None:
            further = self._of_read(gradient, used)
        weight = self.product("mm", [calls.turned(gradient), x], *layer.weight.shape)
        calls.nothing("t")
        if needed and layer.bias is None:
            further = self._of_read(gradient, used)
        found = []
        if layer.bias is not None:
            bias = calls.new("sum", [gradient], 1, gradient.shape[1], dim=(0,))
            found.append(self.kept(calls.look("view", bias, (gradient.shape[1],))))
        calls.nothing("t")
        found.append(self.kept(weight))
        layer.gradients = tuple(reversed(found))
        return further

    def _of_read(self, gradient: View, used: View) -> View:
        self.calls.nothing("t")
        return self.product("mm", [gradient, used], gradient.shape[0], used.shape[1])

    def kept(self, gradient: View) -> View:
        """A parameter's gradient as it is accumulated: in fp32, and taken over."""
        if gradient.dtype != "float32":
            gradient = self.calls.alike("_to_copy", gradient, dtype="float32")
        self.calls.nothing("detach")
        return gradient

    def relu(self, x: View) -> View:
        """A module of its own; its result is kept."""
        self.calls.module()
        made = self.calls.alike("relu", x)
        self.calls.nothing("detach")
        return made

    def relu_back(self, gradient: View, made: View) -> View:
        """By what it gave."""
        self.calls.nothing("detach")
        return self.calls.new("threshold_backward", [gradient, made], *made.shape, threshold=0)

    def adagrad(self, *, lists: bool = True) -> None:
        """Adagrad over lists of all parameters, or one by one as releases before 2.1 had it (`torch/optim/adagrad.py`)."""
        calls = self.calls
        parameters = [each for layer in self.linears for each in (layer.weight, layer.bias) if each is not None]
        gradients = [each for layer in self.linears for each in layer.gradients]
        calls.phase = "optimizer"
        sums = [calls.tensor(*each.shape, held="state") for each in parameters]
        # Counts of steps lie on the host: they are added to one by one, and read.
        calls.nothing("add_", len(parameters))
        calls.nothing("item", 2 * len(parameters))
        if not lists:
            for parameter, gradient, state in zip(parameters, gradients, sums, strict=True):
                calls.call("addcmul_", [state, gradient, gradient], [state])
                root = calls.alike("sqrt", state)
                calls.call("add_", [root], [root])
                calls.call("addcdiv_", [parameter, gradient, root], [parameter])
            return

        def over(name: str, *lists: list[View], new: bool = False) -> list[View]:
            names = ("self", "tensor1", "tensor2")
            place = [name for name, each in zip(names, lists, strict=False) for _ in each]
            gives = [calls.tensor(*each.shape) for each in lists[0]] if new else lists[0]
            calls.call(name, [view for each in lists for view in each], gives, place=place)
            return gives

        over("_foreach_addcmul_", sums, gradients, gradients)
        roots = over("_foreach_sqrt", sums, new=True)
        over("_foreach_add_", roots)
        scaled = over("_foreach_mul", gradients, new=True)
        over("_foreach_addcdiv_", parameters, scaled, roots)
