"""StableHLO to workload: one walk over the module, calls inlined, types divided by their shardings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from meshcast.base import InputError, UnsupportedError, allow_nesting, expect
from meshcast.programs import Program, entry_function, ir, string_of, symbol_of
from meshcast.workload.calls import called, with_executions
from meshcast.workload.chosen_branches import chosen_region
from meshcast.workload.collectives import SDY_COLLECTIVES, SDY_VIEWS, STABLEHLO_COLLECTIVES, CollectiveReader
from meshcast.workload.custom_calls import any_custom_call_cost, custom_call_cost
from meshcast.workload.data_loops import DataLoop, assumed_turns, data_loop, refuse_unused
from meshcast.workload.emitted_ops import EmittedOps, location_name
from meshcast.workload.graph import Block, Cost, Indexed, Op, OpKind
from meshcast.workload.index_values import Frame, few_rows_warning, picked_counts
from meshcast.workload.launches import copy_cost, framework_step, launch_of
from meshcast.workload.local_types import TupleError
from meshcast.workload.options import ReadOptions as ReadOptions
from meshcast.workload.rule import OpReading
from meshcast.workload.rules import COMPOSITES, REFUSED, RULES
from meshcast.workload.trip_count import most_trips, trip_count
from meshcast.workload.tuples import without_tuples
from meshcast.workload.workload import Workload, are_alike

_RETURNS = frozenset({"stablehlo.return", "func.return", "sdy.return", "mhlo.return"})


def read_workload(program: Program, options: ReadOptions | None = None) -> Workload:
    """The op graph of one device's program.

    Raises:
        UnsupportedError: an op, dtype or custom call that no rule covers.
        UsageError: a loop whose trip count must be given, or a trip count that no loop needs; or it is no program.
    """
    expect(program, Program, "a meshcast.Program", where="program", fix="such as what meshcast.load gives")
    told = ReadOptions() if options is None else options
    expect(told, ReadOptions, "ReadOptions or None", where="options")
    try:
        return _Reader(program, told).read()
    except TupleError:  # so few programs have tuples that none is searched for them
        return _Reader(replace(program, module=without_tuples(program.module)), told).read()


class _Reader(EmittedOps):
    """State of one walk."""

    def __init__(self, program: Program, options: ReadOptions) -> None:
        super().__init__(program)
        self._program = program
        self._options = options
        self._collectives = CollectiveReader(program.mesh, self._types)
        self._functions: dict[str, Any] = {}
        self._depth = 0
        self._barriers = False  # whether something may be recomputed
        self._top: list[Op] = []
        self._loops = 0  # read so far
        self._data_loops: list[DataLoop] = []
        self._warnings: dict[str, None] = {}
        self._on_chip: set[int] = set()
        self._frames: list[Frame] = []  # the bodies that are being read whose arguments are an op's operands
        self._handlers: dict[str, Callable[[Any, list[Op], str], None]] = {
            "stablehlo.while": self._while,
            "stablehlo.case": self._branch,
            "stablehlo.if": self._branch,
            "func.call": self._call,
            "stablehlo.composite": self._composite,
            "stablehlo.custom_call": self._custom_call,
            "stablehlo.async_start": self._manual_computation,
            "stablehlo.async_done": self._forward,
            "stablehlo.optimization_barrier": self._forward,
            "sdy.manual_computation": self._manual_computation,
            "sdy.named_computation": self._manual_computation,
            "sdy.constant": self._constant,
            "sdy.all_slice": self._all_slice,
            "mhlo.fusion": self._manual_computation,
            **{name: self._forward for name in SDY_VIEWS},
            **{name: self._sdy_collective for name in SDY_COLLECTIVES},
            **{name: self._stablehlo_collective for name in STABLEHLO_COLLECTIVES},
        }

    def read(self) -> Workload:
        program = self._program
        main = entry_function(program.module, where=program.source)
        for op in program.module.body.operations:
            if op.operation.name == "func.func":
                self._functions[string_of(op.attributes["sym_name"])] = op
        block = main.operation.regions[0].blocks[0]
        marks = main.attributes.get("arg_attrs")
        inputs = []
        for index, argument in enumerate(block.arguments):
            attributes: Any = ir.DictAttr(marks[index]) if marks is not None else {}
            sharding = attributes["sdy.sharding"] if program.partitioned and "sdy.sharding" in attributes else None
            inputs.append(self._define(argument, sharding))
        outputs = self._read_block(block, self._top, "")
        ops = with_executions(self._top, self._calls.executions(), self._warnings)
        if not ops and not outputs:
            raise InputError(
                "the module is empty: its entry function does nothing",
                where=program.source,
                fix="return what the step computes from its entry function",
            )
        loops = tuple(self._data_loops)
        refuse_unused(self._options.trip_counts, loops, self._loops - len(loops), where=program.source)
        self._warnings.update(dict.fromkeys(assumed_turns(loops)))
        if self._barriers and not self._located:
            self._warnings[
                "the program may recompute (it has optimization barriers) but has no debug locations to tell what: "
                "MFU counts recomputed work too"
            ] = None
        return Workload(
            name=program.name,
            tensors=tuple(self._tensors),
            body=Block(inputs=tuple(inputs), outputs=outputs, ops=tuple(ops)),
            arguments=program.arguments,
            mesh=program.mesh,
            source=program.source,
            sha256=program.sha256,
            warnings=tuple(self._warnings),
            facts=program.facts,
            data_loops=loops,
            scheduled=self._scheduled,
            on_chip=frozenset(self._on_chip),
            step=framework_step(program.module),
        )

    # Blocks and ordinary ops.

    def _read_block(self, block: Any, ops: list[Op], scope: str) -> tuple[int, ...]:
        """Appends the block's ops; returns the values its terminator yields."""
        self._depth += 1
        if self._depth % 32 == 0:
            allow_nesting(self._depth, where=self._program.source)
        returned: tuple[int, ...] = ()
        handlers, typed = self._handlers, self._typed
        enclosing, scheduled = self._launch, self._scheduled
        for view in block.operations:
            operation = view.operation
            name = operation.name
            if scheduled:
                self._launch = enclosing or launch_of(operation)
            known = typed.get(name)
            if known is not None:
                self._plain_by_types(name, operation, ops, known)
                continue
            handler = handlers.get(name)
            if handler is not None:
                handler(operation, ops, scope)
            elif name in _RETURNS:
                returned = self._operands(operation)
            else:
                self._plain(name, operation, ops, scope)
            if scheduled and enclosing is None and self._launch is not None and self._launch.on_chip:
                results = operation.results
                self._on_chip.update(self._ids[results[p]] for p in self._launch.on_chip if p < len(results))
        self._launch = enclosing
        self._depth -= 1
        return returned

    def _plain(self, name: str, operation: Any, ops: list[Op], scope: str) -> None:
        rule = RULES.get(name)
        location = location_name(operation) if self._named else ""
        if rule is None:
            reason = REFUSED.get(name, "no cost rule knows it")
            raise UnsupportedError(
                f"the op {name} is not supported: {reason}",
                where=self._where(location, scope),
                fix="lower the program without it",
            )
        operands, results = self._operands(operation), self._results(operation)
        equal = () if self._scheduled else self._equal.before(name, operation, operands, results)
        cost = self._costs.of(name, operation, rule, operands, results)
        if cost is not None:
            self._emit(name, cost, operands, results, location, ops, equal=equal)
            return
        reading = self._reading(name, operation, operands, results, self._where(location, scope))
        for implied in self._collectives.implied(reading, operands, results, self._shardings):
            operands = (*operands, self._emit_halo(implied, operands, location, ops))
        copied = name == "stablehlo.transpose" and "meshcast.copy" in operation.attributes
        if copied:
            self._emit("meshcast.copy", copy_cost(reading), operands, results, location, ops)
            return
        cost = rule(reading)
        # Of a part that we cut out ourselves positions count from its own start; in what XLA compiled they are as they will be.
        if name == "stablehlo.scatter" and (self._scheduled or not self._program.partitioned):
            cost = self._with_counts(operation, cost)
        self._emit(name, cost, operands, results, location, ops, equal=equal)

    def _with_counts(self, operation: Any, cost: Cost) -> Cost:
        """The cost of a scatter that knows how often each row is picked, where the program tells; else a warning."""
        shape = cost.geometry
        if not isinstance(shape, Indexed) or shape.unique or shape.extremum:
            return cost
        counts = picked_counts(operation, self._frames, self._functions)
        if counts:
            return replace(cost, geometry=replace(shape, counts=counts))
        warning = few_rows_warning(shape) if counts is None else None  # of no counts nothing waits
        if warning:
            self._warnings[warning] = None
        return cost

    def _reading(
        self, name: str, operation: Any, operands: tuple[int, ...], results: tuple[int, ...], where: str
    ) -> OpReading:
        takes, gives = self._tensors_of(operands), self._tensors_of(results)
        return OpReading(
            name=name, operands=takes, results=gives, op=operation, location=where, skew=self._options.skew
        )

    def _forward(self, operation: Any, ops: list[Op], scope: str) -> None:
        """Results that are their operands under another name."""
        if operation.name == "stablehlo.optimization_barrier":
            self._barriers = True
            self._equal.bar(operation)
        self._ids.update(zip(operation.results, self._operands(operation), strict=False))

    def _hand_over(self, arguments: Any, operation: Any) -> None:
        """Names a body's arguments as the operands that they are."""
        self._equal.hand_over(arguments, operation)
        self._ids.update(zip(arguments, self._operands(operation), strict=True))

    def _constant(self, operation: Any, ops: list[Op], scope: str) -> None:
        self._emit("stablehlo.constant", Cost(kind=OpKind.GENERATE), (), self._results(operation), "", ops)

    def _all_slice(self, operation: Any, ops: list[Op], scope: str) -> None:
        operands = self._operands(operation)
        result = self._define(operation.results[0], operation.attributes["out_sharding"])
        moved = self._tensors[result].bytes
        cost = Cost(kind=OpKind.SLICE, operand_bytes=(moved,), written_bytes=moved)
        self._emit("sdy.all_slice", cost, operands, (result,), location_name(operation), ops)

    def _custom_call(self, operation: Any, ops: list[Op], scope: str) -> None:
        operands, results = self._operands(operation), self._results(operation)
        location = location_name(operation)
        where = self._where(location, scope)
        reading = self._reading("stablehlo.custom_call", operation, operands, results, where)
        target = string_of(operation.attributes["call_target_name"])
        known = not self._options.approximate
        cost = custom_call_cost(reading) if known else any_custom_call_cost(reading, target, self._warnings)
        self._emit(f"custom_call:{target}", cost, operands, results, location, ops)

    # Collectives.

    def _sdy_collective(self, operation: Any, ops: list[Op], scope: str) -> None:
        operands = self._operands(operation)
        sharding = operation.attributes["out_sharding"]
        result = self._define(operation.results[0], sharding)
        costs = list(self._collectives.sdy(operation, self._tensors[operands[0]], self._tensors[result]))
        for cost in costs[:-1]:  # several axes moved one after the other: each step is a value of its own
            step = len(self._tensors)
            self._tensors.append(self._tensors[result])
            self._emit(operation.name, cost, operands, (step,), location_name(operation), ops)
            operands = (step,)
        self._emit(operation.name, costs[-1], operands, (result,), location_name(operation), ops)

    def _stablehlo_collective(self, operation: Any, ops: list[Op], scope: str) -> None:
        operands, results = self._operands(operation), self._results(operation)
        cost = self._collectives.stablehlo(operation, self._tensors_of(operands), self._tensors_of(results))
        self._emit(operation.name, cost, operands, results, location_name(operation), ops)

    # Structure.

    def _call(self, operation: Any, ops: list[Op], scope: str) -> None:
        self._inline(symbol_of(operation.attributes["callee"]), operation, ops, scope)

    def _composite(self, operation: Any, ops: list[Op], scope: str) -> None:
        """One named after an op (`chlo.top_k`, as jax.export has it) costs what that op costs; others are read through."""
        name = string_of(operation.attributes["name"])
        if name in COMPOSITES:
            self._plain(name, operation, ops, scope)
            return
        self._inline(symbol_of(operation.attributes["decomposition"]), operation, ops, scope)

    def _inline(self, symbol: str, operation: Any, ops: list[Op], scope: str) -> None:
        block = self._functions[symbol].operation.regions[0].blocks[0]
        operands = self._operands(operation)
        if self._calls.fits(symbol):
            self._hand_over(block.arguments, operation)
            self._frames.append(Frame(block, operation))
            with self._calls.inlined(symbol):
                outputs = self._read_block(block, ops, f"{scope}/{symbol}")
            self._frames.pop()
        else:
            if symbol not in self._calls.results:
                self._count(symbol, block, operands, f"{scope}/{symbol}")
            self._calls.call(symbol)
            outputs = tuple(self._returned(value, operands, ops) for value in self._calls.results[symbol])
        self._ids.update(zip(operation.results, outputs, strict=True))

    def _count(self, symbol: str, block: Any, operands: tuple[int, ...], scope: str) -> None:
        """Reads a function as a loop of the entry function that carries the arguments and the results of its calls."""
        arguments = tuple(self._define_like(a, v) for a, v in zip(block.arguments, operands, strict=True))
        inner: list[Op] = []
        with self._calls.counted(symbol), self._equal.block():
            outputs = self._read_block(block, inner, scope)
        held = (*arguments, *outputs)
        first, count = len(self._tensors), len(held)
        self._tensors += self._tensors_of(held) * 3
        initial, before, after = (tuple(range(first + n * count, first + (n + 1) * count)) for n in range(3))
        for value in initial:  # whatever a call is given: it lies in memory
            self._emit("stablehlo.constant", Cost(kind=OpKind.GENERATE), (), (value,), "", self._top)
        body = Block(inputs=(*arguments, *before[len(arguments) :]), outputs=held, ops=tuple(inner))
        self._emit(called(symbol), Cost(kind=OpKind.LOOP), initial, after, "", self._top, (body,))
        self._calls.results[symbol] = after[len(arguments) :]

    def _returned(self, value: int, operands: tuple[int, ...], ops: list[Op]) -> int:
        """What a call of a counted function returns: its result, which needs what this call was given."""
        result, kind = len(self._tensors), self._tensors[value]
        self._tensors.append(kind)
        cost = Cost(kind=OpKind.ELEMENTWISE, dtype=kind.dtype, operand_bytes=(kind.bytes,), written_bytes=kind.bytes)
        self._emit("meshcast.returned", cost, (value, *operands), (result,), "", ops)
        return result

    def _manual_computation(self, operation: Any, ops: list[Op], scope: str) -> None:
        """A region whose arguments are its operands: shard_map bodies, named computations, fusions."""
        enclosing = self._recomputing  # JAX does not tell the ops of a shard_map's body where it stands
        self._recomputing |= "rematted_computation" in location_name(operation)
        block = operation.regions[0].blocks[0]
        self._hand_over(block.arguments, operation)
        self._frames.append(Frame(block, operation))
        outputs = self._read_block(block, ops, scope)
        self._frames.pop()
        self._recomputing = enclosing
        self._ids.update(zip(operation.results, outputs, strict=False))

    def _while(self, operation: Any, ops: list[Op], scope: str) -> None:
        operands = self._operands(operation)
        location = location_name(operation)
        self._loops += 1
        label = f"while#{self._loops}"
        trips, asks = trip_count(operation), False
        if trips is None:
            found = data_loop(label, location, most_trips(operation), self._options.trip_counts)
            self._data_loops.append(found)
            trips, asks = found.turns, True
        condition, body = (region.blocks[0] for region in operation.regions)
        asked = self._condition(condition, operands, ops, scope, label) if asks else None
        carried = tuple(self._define_like(each, value) for each, value in zip(body.arguments, operands, strict=True))
        inner: list[Op] = []
        with self._calls.looped(trips), self._equal.block():
            outputs = self._read_block(body, inner, scope)
            again = self._condition(condition, outputs, inner, scope, label) if asks else None
        results = self._results(operation)
        if (
            asked is not None and again is not None
        ):  # the answer of every turn decides about the next: it is carried along
            first = len(self._tensors)
            self._tensors += [self._tensors[asked]] * 2
            operands, outputs = (*operands, asked), (*outputs, again)
            carried, results = (*carried, first), (*results, first + 1)
        block = Block(inputs=carried, outputs=outputs, ops=tuple(inner))
        self._emit(label, Cost(kind=OpKind.LOOP), operands, results, location, ops, (block,), trips)

    def _condition(self, condition: Any, values: tuple[int, ...], ops: list[Op], scope: str, label: str) -> int | None:
        """Appends what a loop's condition computes of the carried values; its answer, or None where there is nothing to compute.

        A loop that ends on data asks before its first turn and behind every turn. One that counts does not ask at all:
        compilers know its turns.
        """
        self._ids.update(zip(condition.arguments, values, strict=True))
        found: list[Op] = []
        (answer,) = self._read_block(condition, found, scope)
        if all(op.cost.kind is OpKind.GENERATE for op in found):
            return None
        ops += [replace(op, asks=label) for op in found]
        return answer

    def _branch(self, operation: Any, ops: list[Op], scope: str) -> None:
        chosen = None if self._scheduled else chosen_region(operation, self._frames, self._functions)
        if chosen is not None:
            self._ids.update(zip(operation.results, self._read_block(chosen.blocks[0], ops, scope), strict=True))
            return
        operands = self._operands(operation)
        blocks = []
        for region in operation.regions:
            inner: list[Op] = []
            with self._equal.block():
                outputs = self._read_block(region.blocks[0], inner, scope)
            blocks.append(Block(inputs=(), outputs=outputs, ops=tuple(inner)))
        if not are_alike(blocks):
            self._warnings["a branch of the program depends on data: the costlier side is counted"] = None
        results = self._results(operation)
        self._emit(
            operation.name, Cost(kind=OpKind.BRANCH), operands, results, location_name(operation), ops, tuple(blocks)
        )

    def _where(self, location: str, scope: str) -> str:
        return f"{self._program.source}{scope}" + (f" at {location}" if location else "")
