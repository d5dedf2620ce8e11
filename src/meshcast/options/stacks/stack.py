"""`Stack`: what a software stack fuses, overlaps and launches, and what it does where nobody says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from meshcast.base import Rows, shown
from meshcast.hardware import Fact, Source
from meshcast.lower import Fusion, Layers, RaggedProducts
from meshcast.simulate import HostCosts, Scheduler
from meshcast.workload import AttentionLibrary
from meshcast.zoo import Gradients

StackAttention = Literal["auto", "plain", "flash"]
Recomputation = Literal["none", "selective", "full"]
Selective = Literal["selective", "alternate"]
Full = Literal["full", "whole"]
ContextAttention = Literal["ring", "all-gather", "parts"]


@shown
@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A software stack.

    Attributes:
        framework: What programs for it are written in; stacks of the same one run the same programs.
        fusion: `compiler`: chains of pointwise ops and reductions become one kernel; `eager`: one kernel for each op of
            the framework.
        products: The library that its matrix products come from; told, not modelled: see docs/stacks.md.
        attention_library: Whose fused attention it runs on GPUs.
        layers: `scanned` over stacked arrays, or `separate` arrays for each (`lower.frameworks.separate_layers`).
        ragged: Whether ragged products of experts are one grouped kernel, or dense ones of masked operands
            (`lower.products.ragged_products`).
        scheduler: How communication may overlap (`simulate.scheduling`).
        channels: Collectives that may be under way at once; 0: one for each group.
        overlap: Rewrites that hide communication (`lower.overlap.rewrites`).
        attention: Scores in memory (`plain`), on chip where model and device can (`auto`), and `flash`: likewise, and a
            warning where they cannot.
        recomputation: What its recipes recompute where they do not say.
        selective: What its recipes call selective recomputation, as a plan's `remat`.
        full: What they call full recomputation, likewise.
        sequence_parallel: Whether tensor parallelism splits the rest of a layer by position, where nobody says.
        zero: How far data parallelism shards the optimizer (ZeRO stage), where nobody says.
        gradients: The type its recipes add up and reduce gradients in, where they do not say.
        context_attention: How keys and values reach the devices that split a sequence, where nobody says.
        offloads: Whether its recipes put what layers keep into the host's memory where it does not fit otherwise.
        host: What issuing a step costs the host.
        sections: Source and note of each section of the file, for choices without their own.
        facts: Numbers, and choices with a source of their own, by dotted key.
        said: Choices that the file or its base makes, by dotted key; the others are at their defaults.
    """

    name: str
    title: str
    framework: str
    fusion: Fusion
    products: str
    attention_library: AttentionLibrary
    layers: Layers
    ragged: RaggedProducts
    scheduler: Scheduler
    channels: int
    overlap: str
    attention: StackAttention
    recomputation: Recomputation
    selective: Selective
    full: Full
    sequence_parallel: bool
    zero: int
    gradients: Gradients
    context_attention: ContextAttention
    offloads: bool
    host: HostCosts
    notes: str = ""
    sections: Mapping[str, Fact] = field(default_factory=dict, hash=False, repr=False)
    facts: Mapping[str, Fact] = field(default_factory=dict, hash=False, repr=False)
    said: frozenset[str] = field(default=frozenset(), repr=False)
    sources: Mapping[str, Source] = field(default_factory=dict, hash=False, repr=False)

    @classmethod
    def load(cls, name_or_path: str | Path) -> Stack:
        """The stack that comes with meshcast under this name, or in this TOML file.

        Raises:
            UnsupportedError: No such stack.
            InputError: The file cannot be read or does not follow the schema.
        """
        from meshcast.options.stacks.loader import load_stack  # which makes stacks

        return load_stack(name_or_path)

    @property
    def remat(self) -> str:
        """The recomputation of the stack's recipes that do not name one, as a plan's `remat`."""
        words: dict[str, str] = {"selective": self.selective, "full": self.full}
        return words.get(self.recomputation, self.recomputation)

    @property
    def recipe(self) -> dict[str, Any]:
        """The choices of the stack's recipes that a plan has to state, by the plan's keys."""
        return {"sp": self.sequence_parallel, "zero": self.zero, "gradients": self.gradients, "remat": self.remat}

    def summary_rows(self) -> Rows:
        """Rows with the stack's choices."""
        graph = f"{self.host.graph_kernel * 1e6:g} us in a CUDA graph" if self.host.graphs else "no CUDA graphs"
        return [
            ("stack", f"{self.name}: {self.title}"),
            ("fusion", self.fusion),
            ("products", self.products),
            ("attention", f"{self.attention}, by {self.attention_library} where fused"),
            ("layers", self.layers),
            ("scheduler", f"{self.scheduler}, channels {self.channels}, overlap {self.overlap or 'none'}"),
            ("host", f"{self.host.launch * 1e6:g} us a launch, {graph}"),
        ]
