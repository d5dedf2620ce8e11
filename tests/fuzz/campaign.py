"""A campaign: inputs by number, verdicts counted in a folder that can be gone on with, findings kept with their commands."""

from __future__ import annotations

import json
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.fuzz.process import Answer, Worker
from tests.fuzz.readers import READERS, Reader
from tests.fuzz.seeds import BESIDE
from tests.fuzz.verdict import Verdict, cpu_limit, judge

STATE = "state.json"
KEPT_OF_A_SIGNATURE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An input of a campaign: a function of the campaign's seed and its own number."""

    number: int
    reader: Reader
    data: bytes
    file: str
    arguments: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command to type."""
        return "meshcast " + shlex.join(self.arguments)


def made(seed: int, number: int, readers: Sequence[Reader] = READERS) -> Input:
    """Input `number` of the campaign with that seed."""
    rng = Random(f"{seed}:{number}")
    reader = rng.choices(readers, [each.weight for each in readers])[0]
    data = reader.mutated(rng)
    file = f"{reader.name}-{number}{reader.suffix}" if reader.suffix else ""
    return Input(number=number, reader=reader, data=data, file=file, arguments=tuple(reader.arguments(data, file, rng)))


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a campaign has seen so far; `to_json` and `from_json` are its file.

    Attributes:
        seed: The campaign's seed.
        only: The readers it is confined to, or none.
        done: The number of the next input.
        ends: Inputs by reader and by exit code or kind of finding.
        findings: Inputs by kind and signature.
        slowest: The most seconds of CPU that an input took, and its number.
    """

    seed: int
    only: tuple[str, ...] = ()
    done: int = 0
    ends: dict[str, Counter[str]] = field(default_factory=dict)
    findings: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, int] = (0.0, 0)

    def add(self, one: Input, answer: Answer, verdict: Verdict) -> None:
        """Counts an input."""
        end = verdict.kind if verdict.found else str(answer.code)
        self.ends.setdefault(one.reader.name, Counter())[end] += 1
        if verdict.found:
            self.findings[f"{one.reader.name}: {verdict.kind}: {verdict.signature}"] += 1
        self.slowest = max(self.slowest, (round(answer.cpu_s, 3), one.number))
        self.done = one.number + 1

    @property
    def found(self) -> int:
        """How many inputs ended as none must."""
        return self.findings.total()

    def to_json(self) -> str:
        """The tally as its file has it."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Tally:
        """What `to_json` wrote."""
        value = json.loads(text)
        return cls(
            seed=value["seed"],
            only=tuple(value["only"]),
            done=value["done"],
            ends={name: Counter(counts) for name, counts in value["ends"].items()},
            findings=Counter(value["findings"]),
            slowest=tuple(value["slowest"]),
        )


class Campaign:
    """Inputs of one seed, run in a worker, in a folder."""

    def __init__(self, folder: Path, *, seed: int, only: Sequence[str] = ()) -> None:
        self.folder = folder
        (folder / "inputs").mkdir(parents=True, exist_ok=True)
        (folder / "seeds").mkdir(exist_ok=True)
        for path in BESIDE:
            shutil.copy(path, folder / "seeds")
        self.tally = self._earlier() or Tally(seed=seed, only=tuple(only))
        if (self.tally.seed, self.tally.only) != (seed, tuple(only)):
            raise SystemExit(
                f"{folder} is of seed {self.tally.seed}, only {self.tally.only}: choose another folder, or --again"
            )
        self._readers = [reader for reader in READERS if not only or reader.name in only]
        self._worker = Worker(folder)

    def run(self, until: int) -> Iterator[tuple[Input, Answer, Verdict]]:
        """Every input from where the folder stands to number `until`, with its end."""
        try:
            while self.tally.done < until:
                one = made(self.tally.seed, self.tally.done, self._readers)
                answer, verdict = self.tried(one)
                self.tally.add(one, answer, verdict)
                if (
                    verdict.found
                    and self.tally.findings[f"{one.reader.name}: {verdict.kind}: {verdict.signature}"]
                    <= KEPT_OF_A_SIGNATURE
                ):
                    self._keep(one, answer, verdict)
                yield one, answer, verdict
        finally:
            self.save()
            self._worker.close()

    def tried(self, one: Input) -> tuple[Answer, Verdict]:
        """How one input ends."""
        path = self.folder / "inputs" / one.file
        if one.file:
            path.write_bytes(one.data)
        try:
            answer = self._worker.ask(one.arguments, cpu_s=one.reader.patience * cpu_limit(len(one.data)))
        finally:
            if one.file:
                path.unlink(missing_ok=True)
        return answer, judge(answer)

    def close(self) -> None:
        """Ends the worker."""
        self._worker.close()

    def save(self) -> None:
        """Writes the tally beside its place and renames it."""
        new = self.folder / f"{STATE}.new"
        new.write_text(self.tally.to_json())
        new.replace(self.folder / STATE)

    def _earlier(self) -> Tally | None:
        path = self.folder / STATE
        return Tally.from_json(path.read_text()) if path.exists() else None

    def _keep(self, one: Input, answer: Answer, verdict: Verdict) -> None:
        """Keeps a finding: its input, the command, and what the command said."""
        kept = self.folder / "findings" / f"{one.number}-{one.reader.name}"
        kept.mkdir(parents=True, exist_ok=True)
        if one.file:
            (kept / one.file).write_bytes(one.data)
        (kept / "command").write_text(one.command + "\n", errors="backslashreplace")
        said = f"{verdict.kind}: {verdict.signature}\nexit code {answer.code}\n\n{answer.out[:4000]}\n{answer.err[-8000:]}\n"
        (kept / "said").write_text(said, errors="backslashreplace")
