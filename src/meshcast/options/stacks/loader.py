"""Stacks from their files: `meshcast.stack/1`. Every key is checked, and mistakes are told with file and line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast, get_args

from meshcast.base import Dimension, UnsupportedError, UsageError, nearest
from meshcast.hardware import Reader, loader
from meshcast.lower import Fusion, Layers, Overlap, RaggedProducts
from meshcast.options.options import Options
from meshcast.options.stacks.choices import HOST, ChoiceReader
from meshcast.options.stacks.stack import ContextAttention, Full, Recomputation, Selective, Stack, StackAttention
from meshcast.simulate import HostCosts, Scheduler, Scheduling
from meshcast.workload import AttentionLibrary
from meshcast.zoo import Gradients

SCHEMA = "meshcast.stack/1"
_DATA = Path(__file__).parent / "data"
_ZERO_STAGES = ("0", "1", "2", "3")
_OPEN = Options()  # what kernels are where neither a stack's file nor anyone else says: XLA's


def stack_names() -> tuple[str, ...]:
    """The stacks that come with meshcast."""
    return tuple(sorted(path.stem for path in _DATA.glob("*.toml")))


def load_stack(name_or_path: str | Path) -> Stack:
    """The stack of this name, or in this file.

    Raises:
        UnsupportedError: No such stack.
        InputError: The file cannot be read or does not follow the schema.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith(".toml") or os.sep in text:
        return _read(Path(name_or_path))
    if text not in stack_names():
        raise UnsupportedError(f"no stack {text!r}", where="--stack", fix=nearest(text, stack_names()))
    return _read(_DATA / f"{text}.toml")


def _beside(name: str, user: Path) -> Path:
    """The file of a base: of a stack's name, or relative to the file that names it."""
    return _DATA / f"{name}.toml" if name in stack_names() else user.parent / name


def _read(path: Path) -> Stack:
    reader = ChoiceReader(loader.read(path, _beside, schema=SCHEMA))
    reader.text("base", default="")
    reader.choice("schema", among=(SCHEMA,))
    scheduler = reader.choice("overlap", "scheduler", among=get_args(Scheduler))
    channels = reader.whole("overlap", "channels", least=0)
    rewrites = reader.text("overlap", "rewrites", default="")
    _check_overlap(reader, scheduler, channels, rewrites)
    host = {name: reader.optional("host", name, of=Dimension.TIME, may_be_zero=True) for name in HOST}
    graphs = reader.flag("host", "graphs", default=True)
    for name in ("graph", "graph_kernel", "relaunch"):
        if not graphs and host[name] is not None:
            reader.reject(("host", name), f"host.{name} has no effect: host.graphs says that there are no CUDA graphs")
    stack = Stack(
        name=reader.text("name"),
        title=reader.text("title"),
        framework=reader.text("framework", default=""),
        fusion=cast(Fusion, reader.choice("kernels", "fusion", among=get_args(Fusion))),
        products=reader.text("kernels", "products"),
        attention_library=cast(
            AttentionLibrary,
            reader.choice(
                "kernels",
                "attention_library",
                among=get_args(AttentionLibrary),
                default=_OPEN.lowering.attention_library,
            ),
        ),
        attention=cast(StackAttention, reader.choice("kernels", "attention", among=get_args(StackAttention))),
        layers=cast(Layers, reader.choice("kernels", "layers", among=get_args(Layers), default=_OPEN.lowering.layers)),
        ragged=cast(
            RaggedProducts,
            reader.choice("kernels", "ragged", among=get_args(RaggedProducts), default=_OPEN.lowering.ragged),
        ),
        scheduler=cast(Scheduler, scheduler),
        channels=channels,
        overlap=rewrites,
        recomputation=cast(
            Recomputation, reader.choice("defaults", "recomputation", among=get_args(Recomputation), default="none")
        ),
        selective=cast(
            Selective, reader.choice("defaults", "selective", among=get_args(Selective), default="selective")
        ),
        full=cast(Full, reader.choice("defaults", "full", among=get_args(Full), default="full")),
        sequence_parallel=reader.flag("defaults", "sequence_parallel"),
        zero=int(reader.choice("defaults", "zero", among=_ZERO_STAGES, default="0")),
        gradients=cast(Gradients, reader.choice("defaults", "gradients", among=get_args(Gradients), default="fp32")),
        context_attention=cast(
            ContextAttention,
            reader.choice(
                "defaults",
                "context_attention",
                among=get_args(ContextAttention),
                default=_OPEN.program.context_attention,
            ),
        ),
        offloads=reader.flag("defaults", "offloads"),
        host=HostCosts(
            graphs=graphs,
            each_expert=reader.flag("host", "each_expert"),
            expert_calls=reader.ratio("host", "expert_calls", default=1.0),
            unfused=reader.ratio("host", "unfused", default=1.0),
            **{name: seconds for name, seconds in host.items() if seconds is not None},
        ),
        notes=reader.text("notes", default=""),
        sections=reader.section_sources(),
        facts=reader.facts,
        said=frozenset(reader.said),
        sources=reader.sources(),
    )
    reader.finish()
    return stack


def _check_overlap(reader: Reader, scheduler: str, channels: int, rewrites: str) -> None:
    """What the options would refuse is refused here, with the file's place."""
    try:
        parsed = Overlap.parse(rewrites)
        if scheduler in get_args(Scheduler):
            Scheduling(scheduler=cast(Scheduler, scheduler), channels=channels, gathers=parsed.gathers)
    except UsageError as error:
        reader.reject(("overlap", "rewrites"), f"overlap.rewrites: {error.message}")
