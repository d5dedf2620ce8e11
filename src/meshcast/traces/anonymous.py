"""Traces without what they were made from: no name, place or constant of a program is left, and sizes can be coarsened.

What stays is what a performance model needs: the order and dependencies of kernels, their kind, type, work and time.

`coarse(x, p)` puts a number on the grid of powers of `1 + p`, the nearest in ratio, so that it changes by a factor of at most
`sqrt(1 + p)` either way. The length of a step is a maximum of sums of durations, hence is changed by that factor at the most
as well when all durations are on the grid; and so is one that a roofline works out from coarsened work and bytes,
`max(F / P, B / W)`, or a network model that adds latencies to bytes over bandwidth, as parts that stay the same only lower the
share of what changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from meshcast.base import UsageError
from meshcast.chakra import DEVICE_KIND, HOST_BYTES, LEAST, STEPS_OVERLAP, UNTIL, Attribute, NodeType
from meshcast.hardware import device_names
from meshcast.jobs import NANOSECONDS, JobTrace, Piece, RankBody
from meshcast.lower import Kernel
from meshcast.traces.slices import MARKS, Description, JobTimeline, Level, MovedBytes, RankTimeline, Slice, SliceFact

PROGRAM = "program"
KINDS = {
    NodeType.COMPUTE: "kernel",
    NodeType.COLLECTIVE: "collective",
    NodeType.SEND: "send",
    NodeType.RECEIVE: "receive",
}
SIZES = ("num_ops", "tensor_size", "matrix_ops", "comm_size", HOST_BYTES)
HOST_TIMES = (LEAST, UNTIL)
SIZE_FACTS = ("flops", "bytes", "joules")
KEPT_FACTS = frozenset(
    {
        "kind", "dtype", "flops", "bytes", "joules", "bound", "origin", "low_us", "high_us", "recomputed",
        "group_size", "algorithm", "level", "protocol", "turns", "of_turns_around", "microbatch", "position", "peer_stage",
    }
)  # fmt: skip
# Facts about a job that hold no names of its own; those of networks, estimators and schedules can be a plug-in's or a file's.
KEPT_JOB_FACTS = frozenset(
    {"device", DEVICE_KIND, STEPS_OVERLAP, "fidelity", "lowering", "stages", "microbatches", "bubble", "ranks"}
)
LEVEL = "level"
LARGEST_COARSENESS = 1.0


def parse_coarseness(text: str) -> float:
    """A share from `5%` or `0.05`.

    Raises:
        UsageError: It is none, or out of range.
    """
    number, percent, rest = text.strip().partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = math.nan
    if rest or not 0 < share <= LARGEST_COARSENESS:
        raise UsageError(
            f"{text!r} is no coarseness", where="--coarsen", fix="a share above 0 and up to 100%, as in --coarsen 5%"
        )
    return share


def coarse(value: float, share: float) -> float:
    """The nearest power of `1 + share`, in ratio; 0 stays 0."""
    if not share or value <= 0:
        return value
    return (1 + share) ** round(math.log(value, 1 + share))


def coarse_size(value: int, share: float) -> int:
    """A whole number made coarse, which stays whole; small ones are kept, as they have no neighbours on the grid."""
    return round(coarse(value, share)) if value * share > 1 else value


def bound(share: float) -> float:
    """The most by which a step of coarsened durations differs, as a share of it."""
    return math.sqrt(1 + share) - 1


@dataclass(slots=True)
class _Numbered:
    """Names that say what something is and which one of its kind, in the order in which they are first asked for."""

    given: dict[object, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def name(self, key: object, kind: str) -> str:
        if key not in self.given:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self.given[key] = f"{kind} {self.counts[kind]}"
        return self.given[key]


def anonymous_job(job: JobTrace, share: float = 0.0) -> JobTrace:
    """A job's trace without names; sizes and durations coarsened where a share is given."""
    known, pieces = _Numbered(), dict[int, Piece]()
    classes = []
    for each in job.classes:
        body = RankBody(
            pieces=[_anonymous_piece(piece, share, known, pieces) for piece in each.body.pieces],
            data=each.body.data, order=each.body.order,
        )  # fmt: skip
        classes.append(replace(each, body=body))
    return replace(
        job, name=PROGRAM, classes=tuple(classes), metadata=_kept_facts(job.metadata), step_s=coarse(job.step_s, share),
        makespan_s=coarse(job.makespan_s, share),
    )  # fmt: skip


Said = TypeVar("Said")


def _kept_facts(facts: Mapping[str, Said]) -> dict[str, Said]:
    """What may be said about a job; the name of a device only if it is one of the catalogue's."""
    known = set(device_names())
    return {
        name: value for name, value in facts.items() if name in KEPT_JOB_FACTS and (name != "device" or value in known)
    }


def _anonymous_piece(piece: Piece, share: float, known: _Numbered, done: dict[int, Piece]) -> Piece:
    if id(piece) not in done:
        seconds = coarse(piece.seconds, share)
        said: dict[str, Attribute] = dict(piece.attributes)
        if share:
            said |= {name: coarse_size(value, share) for name in SIZES if isinstance(value := said.get(name), int)}
            said |= {name: _coarse_values(said[name], share) for name in ("inputs", "outputs") if name in said}
            said |= {name: coarse(value, share) for name in HOST_TIMES if isinstance(value := said.get(name), float)}
            if "duration_ns" in said:
                said["duration_ns"] = seconds * NANOSECONDS
        kind = said.get("op_type")
        label = known.name(piece.label, kind if isinstance(kind, str) else KINDS.get(piece.kind, "node"))
        # Shapes would tell what was coarsened.
        kernel = None if share or piece.kernel is None else anonymous_kernel(piece.kernel)
        done[id(piece)] = replace(piece, label=label, seconds=seconds, attributes=said, kernel=kernel)
    return done[id(piece)]


def anonymous_kernel(kernel: Kernel) -> Kernel:
    """A kernel without names: of custom calls, the op's own (`custom_call:NAME`) among them."""
    return replace(kernel, name="", location="", ops=tuple(op.partition(":")[0] for op in kernel.ops))


def _coarse_values(listed: Attribute, share: float) -> Attribute:
    """Names and bytes in turn, the bytes coarsened."""
    if not isinstance(listed, tuple):
        return listed
    return tuple(
        str(coarse_size(int(text), share)) if position % 2 else text for position, text in enumerate(map(str, listed))
    )


def anonymous_timeline(job: JobTimeline, share: float = 0.0) -> JobTimeline:
    """A timeline without names; work and bytes coarsened where a share is given. Times stay."""
    known = _Described(share=share)
    kinds = tuple(_anonymous_kind(kind, known) for kind in job.kinds)
    return replace(job, name=PROGRAM, kinds=kinds, facts=_kept_facts(job.facts))


def _anonymous_kind(kind: RankTimeline, known: _Described) -> RankTimeline:
    def slices(rank: int) -> Iterator[Slice]:
        for each in kind.slices(rank):
            yield replace(each, what=known.described(each.what))

    def memory() -> tuple[Level, ...]:
        return tuple(
            replace(level, steps=tuple((at, coarse(value, known.share)) for at, value in level.steps))
            for level in kind.memory()
        )

    return replace(kind, slices=slices, memory=memory)


@dataclass(slots=True, kw_only=True)
class _Described:
    share: float
    _numbered: _Numbered = field(default_factory=_Numbered)
    # The originals are kept beside, so that no other takes their identity.
    _done: dict[int, tuple[Description, Description]] = field(default_factory=dict)

    def described(self, what: Description) -> Description:
        if id(what) not in self._done:
            self._done[id(what)] = what, self._anonymous(what)
        return self._done[id(what)][1]

    def _anonymous(self, what: Description) -> Description:
        kind = what.category if what.category in MARKS else str(what.facts.get("kind", what.category))
        facts: Mapping[str, SliceFact] = {
            name: coarse(float(value), self.share)
            if self.share and name in SIZE_FACTS and not isinstance(value, str)
            else value
            for name, value in what.facts.items()
            if name in KEPT_FACTS
        }
        if LEVEL in what.facts:  # of the network: a cluster's own file names it
            facts = {**facts, LEVEL: self._numbered.name((LEVEL, what.facts[LEVEL]), LEVEL)}
        return replace(
            what, name=self._numbered.name((what.category, what.name), kind), facts=facts,
            joules=coarse(what.joules, self.share), exchange=self._coarse_exchange(what.exchange),
            sent={self._numbered.name((LEVEL, name), LEVEL): coarse(size, self.share) for name, size in what.sent.items()},
        )  # fmt: skip

    def _coarse_exchange(self, exchange: MovedBytes | None) -> MovedBytes | None:
        if exchange is None:
            return None
        return replace(
            exchange, input_bytes=coarse_size(exchange.input_bytes, self.share),
            output_bytes=coarse_size(exchange.output_bytes, self.share),
            group=None if exchange.group is None else replace(exchange.group, axes=()),
        )  # fmt: skip
