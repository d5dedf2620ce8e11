"""A module, or a training step of it, run on tensors without values while every ATen call is written down.

Tensors are fake ones of the CPU, which every build of torch has; what PyTorch does otherwise on CUDA before an operator is
reached (autocast's lists, the choice of an attention, fused dropout) is put in place of the CPU's way (`cuda_choices`).

Imports torch: only to be imported after `library.require_torch`.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from meshcast.base import UnsupportedError, UsageError
from meshcast.programs.pytorch.options import TorchOptions
from meshcast.programs.pytorch.recording.calls import AtenOp, Phase, Recording, View
from meshcast.programs.pytorch.recording.cuda_choices import Casts, as_on_cuda
from meshcast.programs.pytorch.recording.fake_modules import on_fakes
from meshcast.programs.pytorch.recording.host_tensors import HostTensors
from meshcast.programs.pytorch.recording.known_values import NumbersAlone
from meshcast.programs.pytorch.recording.value_calls import in_other_terms, shaped_by_values
from meshcast.programs.stand_ins import standing_in
from meshcast.programs.user_lines import user_line

_NOTHING = frozenset(
    {
        "lift_fresh",
        "device",
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "sym_size",
        "is_same_size",
    }
)

_DRAWS = frozenset({"rand", "randn", "randint", "uniform_", "bernoulli_"})


class _CallNotes(TorchDispatchMode):  # type: ignore[misc]
    """Writes down what is called."""

    def __init__(self, casts: Casts) -> None:
        super().__init__()
        self._casts = casts
        self.ops: list[AtenOp] = []
        self.sizes: dict[int, int] = {}
        self.phase: Phase = "forward"
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._freed: list[int] = []
        self._drawn: set[int] = set()  # single random numbers, and what was made of them alone
        self.on = False
        self.modules = 0  # called since the last operator
        self.reads = 0  # of values by the host
        self.values = NumbersAlone()
        self.host: HostTensors | None = None  # which tensors are the host's, where that is followed

    def called(self, *_: Any) -> None:
        """Notes that a module is called."""
        self.modules += 1

    def view(self, tensor: Any) -> View:
        """A tensor as a view of its storage."""
        storage = tensor.untyped_storage()
        number = self._numbers.get(storage)
        if number is None:
            number = len(self.sizes)
            self._numbers[storage] = number
            self.sizes[number] = storage.nbytes()
            weakref.finalize(storage, self._freed.append, number)
        return View(
            number,
            tuple(map(int, tensor.shape)),
            tuple(map(int, tensor.stride())),
            str(tensor.dtype).removeprefix("torch."),
            int(tensor.storage_offset()),
        )

    def waits(self) -> None:
        """Notes that the host waits for the device."""
        if self.on:
            self.reads += 1
            self.ops.append(AtenOp(name="wait", phase=self.phase, takes=(), gives=(), shares=True, waits=True))

    def _answer(self, tensor: Any) -> Any:
        """What the host reads of a tensor without values: its own numbers, the middle of random ones, yes of truths; or None."""
        view = self.view(tensor)
        known = self.values.number(tensor)
        if self.host is None or not self.host.holds(tensor):
            self.waits()
        elif (number := self.host.number(tensor)) is not None:
            return number
        if known is not None:
            return known
        if view.storage in self._drawn:  # such as whether a layer is dropped
            return tensor.dtype != torch.bool and 0.5
        return True if tensor.dtype == torch.bool else None  # such as whether a mask masks nothing

    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of a call on tensors without values."""
        try:
            return func(*args, **kwargs)
        except DynamicOutputShapeException:
            made = shaped_by_values(func, args, kwargs, self.values)
            if made is None:
                raise
        if self.host is None or not self.host.holds(args[0]):
            self.waits()  # for how many there are
        return made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default:
            value = self._answer(args[0])
            if value is not None:
                return value
        if self.on and (other := in_other_terms(func, args, kwargs, self.values, self.waits)) is not None:
            with self:
                return other()
        if not self.on or func.namespace != "aten":  # before the step; marks of the profiler, questions about devices
            return func(*args, **kwargs)
        frees, self._freed[:] = tuple(self._freed), []
        before = len(self.sizes)
        named = list(_named(func, args, kwargs))
        takes = [(name, self.view(leaf)) for name, leaf in named if isinstance(leaf, torch.Tensor)]
        result = self._called(func, args, kwargs)
        self.values.note(func, args, kwargs, result)
        given = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        gives = [self.view(leaf) for leaf in given]
        written = [
            self.view(leaf)
            for argument, value in _arguments(func, args, kwargs)
            if argument.alias_info is not None and argument.alias_info.is_write
            for leaf in pytree.tree_leaves(value)
            if isinstance(leaf, torch.Tensor)
        ]
        name = func.overloadpacket.__name__
        if gives and gives[0].elements == 1 and (name in _DRAWS or any(v.storage in self._drawn for _, v in takes)):
            self._drawn.update(view.storage for view in gives)
        new = any(each.storage >= before for each in gives)
        self.ops.append(
            AtenOp(
                name=name,
                phase=self.phase,
                takes=tuple(view for _, view in takes),
                gives=tuple(gives) if new or not written else tuple(written),
                told={name: _plain(value) for name, value in named if not isinstance(value, torch.Tensor)},
                shares=name in _NOTHING or not (new or written) or (self.host is not None and self.host.computing),
                frees=frees,
                place=tuple(name for name, _ in takes),
                modules=self.modules,
                cast=self._casts.regions[-1:] == [True],
            )
        )
        self.modules = 0
        return result


class _BrokenModules:
    """Notes the results of modules inside which a value is read: their frames cannot be one graph, and what they return to the
    caller is a result of a graph, whoever reads it afterwards.
    """

    def __init__(self, notes: _CallNotes) -> None:
        self._notes = notes
        self._reads: list[int] = []
        self.results: list[View] = []

    def enter(self, *_: Any) -> None:
        """A module begins."""
        self._reads.append(self._notes.reads)

    def leave(self, _module: Any, _args: Any, result: Any) -> None:
        """A module is done."""
        if self._notes.reads > self._reads.pop():
            values = list(result.values()) if isinstance(result, dict) else result
            leaves = [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]
            known = {view.storage for view in self.results}
            made = [self._notes.view(leaf) for leaf in leaves if leaf.requires_grad]
            self.results += [view for view in made if view.storage not in known]


def _plain(value: Any) -> Any:
    """Numbers, truths and lists of them as they are, everything else by its name."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value).removeprefix("torch.")


def _arguments(func: Any, args: Any, kwargs: Any) -> Iterator[tuple[Any, Any]]:
    """What a call's schema says of each argument, `out=` among them, with its value."""
    told = func._schema.arguments
    yield from zip(told, args, strict=False)
    yield from ((argument, kwargs[argument.name]) for argument in told if argument.name in kwargs)


def _named(func: Any, args: Any, kwargs: Any) -> Iterator[tuple[str, Any]]:
    """Arguments by name, tensors of lists one by one."""
    names = [argument.name for argument in func._schema.arguments]
    for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
        if isinstance(value, (list, tuple)) and any(isinstance(each, torch.Tensor) for each in value):
            yield from ((name, each) for each in value)
        else:
            yield name, value


def _each_once(fake: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same, which gives one fake for a tensor that is given twice."""
    made: dict[int, Any] = {}

    def known(value: Any) -> Any:
        return made.setdefault(id(value), fake(value)) if isinstance(value, torch.Tensor) else value

    return known


def record(
    module: Any, args: tuple[Any, ...], options: TorchOptions, *, label: str, compiled: bool = False
) -> Recording:
    """What a module, or a training step of it, calls.

    Args:
        module: The module.
        args: Its positional arguments.
        options: How it is run.
        label: What to call it.
        compiled: Whether it is asked as `torch.compile` asks it.

    Raises:
        UnsupportedError: A value decides what runs.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cpu")

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(mode)
        real = stack.enter_context(on_fakes(module, fake))
        casts = stack.enter_context(as_on_cuda(compiled=compiled))
        given = pytree.tree_map(_each_once(fake), (args, dict(options.kwargs), tuple(options.targets)))
        notes = stack.enter_context(_CallNotes(casts))
        for fake_buffer, value in real:
            notes.values.put(fake_buffer, value)
        held = {notes.view(tensor).storage: "parameter" for tensor in module.parameters()}
        held.update({notes.view(tensor).storage: "buffer" for tensor in module.buffers()})
        held.update({notes.view(leaf).storage: "input" for leaf in pytree.tree_leaves(given) if torch.is_tensor(leaf)})
        optimizer = _optimizer(module, options, label) if options.train else None
        if optimizer is not None:
            _make_state(optimizer)
            state = [leaf for each in optimizer.state.values() for leaf in pytree.tree_leaves(each)]
            held.update({notes.view(leaf).storage: "state" for leaf in state if torch.is_tensor(leaf)})
        if (
            not compiled
        ):  # Inductor makes on the device what a graph makes on the host for it (`move_constructors_to_gpu`)
            notes.host = stack.enter_context(HostTensors(notes.waits))
            # Modules look for tensors of others' classes before they take a faster way, and would find that mode.
            stack.enter_context(standing_in(torch.overrides, has_torch_function=lambda _: False))
        broken = _BrokenModules(notes)
        for each in module.modules():
            stack.callback(each.register_forward_pre_hook(notes.called).remove)
            if compiled:
                stack.callback(each.register_forward_pre_hook(broken.enter).remove)
                stack.callback(each.register_forward_hook(broken.leave).remove)
        notes.on = True
        try:
            result = _step(module, given, options, optimizer, notes, compiled)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise UnsupportedError(
                f"a value that no one knows without running it decides what runs: {error.func}",
                where=user_line(error) or label,
                fix="give numbers where tensors are asked (.item(), .tolist(), repeat_interleave), or torch.where and masks",
            ) from error
        notes.on = False
        returned = tuple(notes.view(leaf) for leaf in pytree.tree_leaves(result) if torch.is_tensor(leaf))
        ops, sizes = tuple(notes.ops), dict(notes.sizes)
    passed_on = tuple(view for view in broken.results if view.storage not in {each.storage for each in returned})
    return Recording(ops=ops, sizes=sizes, held=held, returned=returned, label=label, passed_on=passed_on)


def _step(module: Any, given: Any, options: TorchOptions, optimizer: Any, notes: _CallNotes, compiled: bool) -> Any:
    args, kwargs, targets = given
    dtype = getattr(torch, options.autocast) if isinstance(options.autocast, str) else options.autocast
    region = torch.autocast("cuda", dtype=dtype, enabled=dtype is not None)
    if optimizer is None:
        with torch.no_grad(), region:
            return module(*args, **kwargs)
    with region:
        out = module(*args, **kwargs)
        loss = out if options.loss is None else options.loss(out, *targets)
        loss = loss if isinstance(loss, torch.Tensor) else loss["loss"] if isinstance(loss, dict) else loss.loss
    del out
    notes.phase = "backward"
    # AOTAutograd traces the backward pass inside the forward's region (`functorch.config.backward_pass_autocast`).
    with torch.autocast("cuda", dtype=dtype, enabled=compiled and dtype is not None):
        loss.backward()
    notes.phase = "optimizer"
    if options.clip_grad_norm is not None:
        torch.nn.utils.clip_grad_norm_(module.parameters(), options.clip_grad_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


def _optimizer(module: Any, options: TorchOptions, label: str) -> Any:
    """The optimizer on the module's tensors: AdamW fused, SGD with momentum over lists, or as the given one is set."""
    trained = [each for each in module.parameters() if each.requires_grad]
    if not trained:
        raise UsageError("no parameter of the module is trained", where=label, fix="set requires_grad")
    given = options.optimizer
    if isinstance(given, str):
        if given == "sgd":
            return torch.optim.SGD(trained, lr=0.1, momentum=0.9, foreach=True)
        return torch.optim.AdamW(trained, lr=1e-4, fused=True)
    group = dict(given.param_groups[0])
    group.pop("params")
    if not group.get("fused"):
        group["foreach"] = group.get("foreach") is not False  # the default on CUDA
    kind = {"AdamW": torch.optim.AdamW, "Adam": torch.optim.Adam, "SGD": torch.optim.SGD}[type(given).__name__]
    known = kind.__init__.__code__.co_varnames
    return kind(trained, **{name: value for name, value in group.items() if name in known})


def _make_state(optimizer: Any) -> None:
    """One update, so that the step that is recorded finds the optimizer's state."""
    for group in optimizer.param_groups:
        for each in group["params"]:
            each.grad = torch.empty_like(each)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
