"""What passes between a pipeline's programs: arguments and results found by name, and their types compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshcast.base import KeptBeside, UnsupportedError, UsageError
from meshcast.workload import Tensor

if TYPE_CHECKING:
    from meshcast.jobs.program.run import Run

Values = dict[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartProgram:
    """One program of a part on its hardware.

    Attributes:
        label: What to call it: "stage first, forward".
        where: Its place in the pipeline's file.
        run: The program on its hardware.
        results: Paths of its results.
    """

    label: str
    where: str
    run: Run
    results: tuple[str, ...]

    def arguments(self, prefix: str) -> Values:
        """Arguments whose path starts so, by the rest of it."""
        workload = self.run.workload

        def selected() -> Values:
            names = (argument.name for argument in workload.arguments)
            values = (workload.tensors[value] for value in workload.body.inputs)
            return _selected(zip(names, values, strict=False), prefix)

        return _SELECTED.of(workload.body, prefix, selected)

    def outputs(self, prefix: str) -> Values:
        """Results whose path starts so, by the rest of it.

        Raises:
            UnsupportedError: A compiler has changed the results.
        """
        workload = self.run.workload
        tensors = [workload.tensors[value] for value in workload.body.outputs]
        if len(tensors) != len(self.results):
            raise UnsupportedError(
                f"{self.label}: {len(tensors)} results after compilation, {len(self.results)} before",
                where=self.where,
                fix="use --lowering modelled",
            )
        return _SELECTED.of(
            workload.body, (self.results, prefix), lambda: _selected(zip(self.results, tensors, strict=True), prefix)
        )

    def argument_names(self) -> str:
        """The first parts of its arguments' names, for messages."""
        heads = dict.fromkeys(a.name.split("[")[0].split(".")[0] for a in self.run.workload.arguments)
        return ", ".join(heads) or "none"

    def result_names(self) -> str:
        """The paths of its results, for messages."""
        return ", ".join(name or "unnamed" for name in self.results[:6]) + (", ..." if len(self.results) > 6 else "")


# A sweep over hardware asks the same programs again and again; nobody changes what is found.
_SELECTED: KeptBeside[Values] = KeptBeside(of_program=8)


def _selected(values: zip[tuple[str, Tensor]], prefix: str) -> Values:
    found: Values = {}
    for name, tensor in values:
        rest = name.removeprefix(prefix)
        if name.startswith(prefix) and rest[:1] in ("", "[", "."):
            found[rest] = tensor
    return found


def total_bytes(values: Values) -> int:
    """Bytes on one device."""
    return sum([tensor.bytes for tensor in values.values()])


def passed_on(
    giver: PartProgram, given: str, taker: PartProgram, taken: str, what: str, *, needed: bool = True
) -> Values:
    """What one program gives and another takes, types compared as one device holds them.

    JAX leaves arguments out that a program does not use, so not everything given must be taken.

    Raises:
        UsageError: The taker asks for something that is not given, or for another type of it.
    """
    results, arguments = giver.outputs(given), taker.arguments(taken)
    if not arguments and needed:
        raise UsageError(
            f"{taker.label} has no argument {taken!r} for {what} of {giver.label}; its arguments are "
            f"{taker.argument_names()}",
            where=taker.where,
            fix="name the argument so, or say under [wiring] what it is called",
        )
    for path, tensor in arguments.items():
        if path not in results:
            raise UsageError(
                f"{taker.label} takes {taken}{path} ({tensor}), which {giver.label} does not give as {given}{path}; "
                f"its results are {giver.result_names()}",
                where=taker.where,
                fix="return it there, or say under [wiring] where it is",
            )
        if results[path] != tensor:
            raise UsageError(
                f"{taker.label} takes {taken}{path} as {tensor} on each device, {giver.label} gives {results[path]}",
                where=taker.where,
                fix="give both the same shape, type and sharding",
            )
    return results
