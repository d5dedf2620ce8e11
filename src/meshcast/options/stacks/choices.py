"""Every choice of a stack with its value and where that comes from: its own source, its section's, or the default."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from meshcast.hardware import Document, Fact, Key, Reader

if TYPE_CHECKING:
    from meshcast.options.stacks.stack import Stack

CHOICES = {
    "kernels": ("fusion", "products", "attention", "attention_library", "layers", "ragged"),
    "overlap": ("scheduler", "channels", "rewrites"),
    "defaults": (
        "recomputation", "selective", "full", "sequence_parallel", "zero", "gradients", "context_attention", "offloads",
    ),
}  # fmt: skip
"""The sections of choices, and the keys of each."""
HOST = ("run", "argument", "output", "launch", "convolution", "graph", "graph_kernel", "relaunch", "iteration")
"""What `[host]` has in seconds."""
UsedBy = Literal["predictions", "plan", "runs", "nothing"]
# Choices that not every prediction with the stack takes: what a plan has to say (by its key), what is looked at where a
# published run does not say (`evidence.validate.runs`), and what is told alone.
_IN_PLANS = {
    "defaults.recomputation": "remat",
    "defaults.sequence_parallel": "sp",
    "defaults.zero": "zero",
    "defaults.gradients": "gradients",
}
_OTHERS: dict[str, UsedBy] = {
    "kernels.products": "nothing",
    "defaults.selective": "runs",
    "defaults.full": "runs",
    "defaults.offloads": "runs",
}
_UNIT = "choice"  # of a fact that is no number
_FIELDS = {"rewrites": "overlap"}  # attributes of `Stack` that have another name


@dataclass(frozen=True, slots=True, kw_only=True)
class StackChoice:
    """One choice of a stack.

    Attributes:
        name: Its place in the file, `kernels.attention`.
        value: As files write it.
        source: A name under `[sources]`, `assumption` or `user`; `default` where neither the file nor its base say it.
        note: Why, in words.
        plan_key: The key of a plan that says it (`Stack.recipe` has its value); empty where it is not for plans.
    """

    name: str
    value: Any
    source: str
    note: str = ""
    plan_key: str = ""

    @property
    def used_by(self) -> UsedBy:
        """Who takes it: every prediction with the stack, a plan that says so, published runs that do not say, nothing."""
        return "plan" if self.plan_key else _OTHERS.get(self.name, "predictions")


class ChoiceReader(Reader):
    """Reads a stack's file: a choice is a value, or a value with a source and a note as numbers have them."""

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self.said: set[str] = set()

    def _value(self, key: Key) -> Any:
        value = super()._value(key)
        if value is None or key[0] not in CHOICES or len(key) != 2:
            return value
        dotted = f"{key[0]}.{key[1]}"
        self.said.add(dotted)
        if not isinstance(value, dict):
            return value
        if extra := set(value) - {"value", "source", "note"}:
            self._problem(key, f"{dotted}: a choice has value, source and note, not {', '.join(sorted(extra))}")
        source = str(value.get("source", "user"))
        self._record(key, 0.0, _UNIT, {"value": str(value.get("value")), "source": source, "note": value.get("note")})
        return value.get("value")

    def section_sources(self) -> dict[str, Fact]:
        """Source and note of each section, for those of its choices that have none of their own."""
        for section in CHOICES:
            note = self.text(section, "note", default="") or None
            source = self.text(section, "source", default="user")
            self._record((section, "source"), 0.0, _UNIT, {"value": "", "source": source, "note": note})
        return {section: self.facts.pop(f"{section}.source") for section in CHOICES}


def choices_of(stack: Stack) -> Iterator[StackChoice]:
    """Everything that a stack's file may say, in its order."""
    for section, names in CHOICES.items():
        for name in names:
            dotted = f"{section}.{name}"
            value = getattr(stack, _FIELDS.get(name, name))
            fact = stack.facts.get(dotted, stack.sections.get(section) if dotted in stack.said else None)
            source, note = (fact.source, fact.note) if fact is not None else ("default", None)
            key = _IN_PLANS.get(dotted, "")
            yield StackChoice(name=dotted, value=value, source=source, note=note or "", plan_key=key)
    launch = stack.facts.get("host.launch")
    told = launch.source if launch is not None else "default"
    yield StackChoice(
        name="host.graphs", value=stack.host.graphs, source=told, note="whether launches share CUDA graphs"
    )
    for name in HOST:
        fact = stack.facts.get(f"host.{name}")
        value = f"{getattr(stack.host, name) * 1e6:g} us"
        yield StackChoice(
            name=f"host.{name}",
            value=value,
            source=fact.source if fact else "default",
            note=fact.note or "" if fact else "",
        )
