"""Perfetto traces through the official package's builder: a process a rank, a thread a stream, counters, arrows.

Names, and the names of what slices say, are written once and referred to (Perfetto's interning); so a slice takes some hundred
bytes. Times are whole nanoseconds from the start of the step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from meshcast.base import UnsupportedError, how_to_install, told_each
from meshcast.traces.levels import use_levels
from meshcast.traces.slices import JobTimeline, Level, RankTimeline, Slice, laned
from meshcast.traces.timelines import rank_name

SEQUENCE = 1  # of packets that share their interned names: all of ours
TRACKS = 1000  # numbers of a rank's tracks: more than it has
NANOSECONDS = 1e9


def load_builder() -> Any:
    """Perfetto's own modules.

    Raises:
        UnsupportedError: The package is not installed.
    """
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
        from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder
    except ImportError as error:
        raise UnsupportedError(
            f"the package perfetto, which writes its traces, cannot be imported: {error}", where="--format perfetto",
            fix=f"{how_to_install('traces')}, or use --format kineto, which ui.perfetto.dev opens too",
        ) from None  # fmt: skip
    return StreamingTraceProtoBuilder, perfetto_trace_pb2


def write_perfetto(
    job: JobTimeline, drawn: list[tuple[int, RankTimeline]], asked: str | None, out: IO[bytes]
) -> dict[str, int]:
    """Writes the ranks of a timeline; how many slices, arrows and values of counters that makes."""
    builder, messages = load_builder()
    written = _Written(builder=builder(out), messages=messages)
    written.begin(job)
    for rank, kind in told_each(drawn, len(drawn), "kinds of rank drawn"):
        written.rank(job, rank, rank_name(rank, kind, asked), kind, {number for number, _ in drawn})
    written.received()
    return {"slices": written.slices, "arrows": written.arrows, "values": written.values}


@dataclass(slots=True, kw_only=True)
class _Written:
    builder: Any
    messages: Any
    slices: int = 0
    arrows: int = 0
    values: int = 0
    _receiving: list[tuple[int, list[Slice], int, set[int]]] = field(default_factory=list)
    _names: dict[str, dict[str, int]] = field(default_factory=dict)  # interned, by what they name

    def begin(self, job: JobTimeline) -> None:
        """The first packet, which starts the sequence, and a slice for the step that says what it is."""
        packet = self.builder.create_packet()
        packet.trusted_packet_sequence_id = SEQUENCE
        packet.sequence_flags = self.messages.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        packet.first_packet_on_sequence = True
        self.builder.write_packet(packet)
        packet = self._packet()
        packet.track_descriptor.uuid = 1
        packet.track_descriptor.name = f"{job.name} on {job.ranks} x {job.facts.get('device', '')}"
        self.builder.write_packet(packet)
        self._begin(1, 0, f"step of {job.name}", dict(job.facts) | {"ranks": job.ranks, "step_s": job.step_s})
        self._end(1, _nanoseconds(job.step_s))

    def rank(self, job: JobTimeline, rank: int, name: str, kind: RankTimeline, drawn: set[int]) -> None:
        """A process with its streams and counters."""
        process = (rank + 1) * TRACKS
        packet = self._packet()
        packet.track_descriptor.uuid = process
        packet.track_descriptor.process.pid = rank + 1  # 0 is the kernel's idle process to Perfetto
        packet.track_descriptor.process.process_name = name
        self.builder.write_packet(packet)
        tracks: dict[str, list[Slice]] = {}
        for each in laned(kind.slices(rank)):
            tracks.setdefault(each.track, []).append(each)
        for number, (track, slices) in enumerate(sorted(tracks.items(), key=lambda item: _first(item[0])), start=1):
            self._thread(process, number, rank, track)
            if slices[0].what.category == "receive":
                self._receiving.append((process + number, slices, rank, drawn))
            else:
                self._track(process + number, slices, rank, drawn)
        everything = (each for slices in tracks.values() for each in slices)
        levels = (*kind.memory(), *use_levels(everything, kind, job.step_s))
        for number, level in enumerate(levels, start=len(tracks) + 1):
            self._counter(process, number, level, job.step_s)

    def received(self) -> None:
        """Messages where they arrive, behind all that are sent.

        A message is drawn at the same time on both sides, and of what has one time Perfetto takes what comes first in the file
        for the beginning of an arrow.
        """
        for each in self._receiving:
            self._track(*each)

    def _thread(self, process: int, number: int, rank: int, track: str) -> None:
        packet = self._packet()
        packet.track_descriptor.uuid = process + number
        packet.track_descriptor.parent_uuid = process
        packet.track_descriptor.thread.pid = rank + 1
        packet.track_descriptor.thread.tid = process + number
        packet.track_descriptor.thread.thread_name = track
        self.builder.write_packet(packet)

    def _track(self, track: int, slices: list[Slice], rank: int, drawn: set[int]) -> None:
        """Slices of one track, which follow each other or lie in each other; those a nanosecond apart follow."""
        open_ends: list[int] = []
        for each in slices:
            start = _nanoseconds(each.start)
            while open_ends and open_ends[-1] <= start + 1:
                self._end(track, min(start, open_ends.pop()))
            facts = dict(each.what.facts)
            if each.turns > 1:
                facts["launches"] = each.turns
            exchange = each.what.exchange
            leads, follows = each.leads_to, each.follows
            if exchange is not None and exchange.group is None and rank + exchange.peer not in drawn:
                leads = follows = ()  # nobody is at the other end
            self._begin(track, start, each.what.name, facts, each.what.category, leads, follows)
            open_ends.append(_nanoseconds(each.end))
        while open_ends:
            self._end(track, open_ends.pop())

    def _begin(
        self, track: int, at: int, name: str, facts: dict[str, Any], category: str = "step",
        leads_to: tuple[int, ...] = (), follows: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        packet = self._packet()
        packet.timestamp = at
        event = packet.track_event
        event.type = self.messages.TrackEvent.TYPE_SLICE_BEGIN
        event.track_uuid = track
        event.name_iid = self._interned(packet, "event_names", name)
        event.category_iids.append(self._interned(packet, "event_categories", category))
        for fact, value in facts.items():
            annotation = event.debug_annotations.add()
            annotation.name_iid = self._interned(packet, "debug_annotation_names", fact)
            if isinstance(value, str):
                annotation.string_value_iid = self._interned(packet, "debug_annotation_string_values", value)
            elif isinstance(value, int) or value.is_integer():
                annotation.int_value = int(value)
            else:
                annotation.double_value = value
        event.flow_ids.extend(leads_to)
        event.terminating_flow_ids.extend(follows)
        self.arrows += len(follows)
        self.slices += 1
        self.builder.write_packet(packet)

    def _end(self, track: int, at: int) -> None:
        packet = self._packet()
        packet.timestamp = at
        packet.track_event.type = self.messages.TrackEvent.TYPE_SLICE_END
        packet.track_event.track_uuid = track
        self.builder.write_packet(packet)

    def _counter(self, process: int, number: int, level: Level, step_s: float) -> None:
        packet = self._packet()
        packet.track_descriptor.uuid = process + number
        packet.track_descriptor.parent_uuid = process
        packet.track_descriptor.name = level.name
        counter = packet.track_descriptor.counter
        if level.unit == "B":
            counter.unit = self.messages.CounterDescriptor.UNIT_SIZE_BYTES
        else:
            counter.unit_name = level.unit
        self.builder.write_packet(packet)
        for at, value in _closed(level, step_s):
            packet = self._packet()
            packet.timestamp = _nanoseconds(at)
            packet.track_event.type = self.messages.TrackEvent.TYPE_COUNTER
            packet.track_event.track_uuid = process + number
            if level.unit == "B":
                packet.track_event.counter_value = round(value)
            else:
                packet.track_event.double_counter_value = value
            self.values += 1
            self.builder.write_packet(packet)

    def _packet(self) -> Any:
        packet = self.builder.create_packet()
        packet.trusted_packet_sequence_id = SEQUENCE
        packet.sequence_flags = self.messages.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        return packet

    def _interned(self, packet: Any, what: str, text: str) -> int:
        """The number of a text, which is written with the first packet that has it."""
        known = self._names.setdefault(what, {})
        if text not in known:
            known[text] = len(known) + 1
            entry = getattr(packet.interned_data, what).add()
            entry.iid = known[text]
            if what == "debug_annotation_string_values":
                entry.str = text.encode()
            else:
                entry.name = text
        return known[text]


def _closed(level: Level, step_s: float) -> Iterator[tuple[float, float]]:
    """The values of a level, with one at the end, so that viewers draw the last one to there."""
    yield from level.steps
    if level.steps and level.steps[-1][0] < step_s:
        yield step_s, level.steps[-1][1]


def _nanoseconds(seconds: float) -> int:
    return round(seconds * NANOSECONDS)


def _first(track: str) -> tuple[int, str]:
    """Tracks in the order in which they are read: what is done, then what runs, then what is sent."""
    order = ("tasks", "loops", "compute", "copies")
    return (order.index(track) if track in order else len(order), track)
