"""A slice of the campaign of `make fuzz`, and what makes it worth anything: inputs by number, seeds that work, and findings."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.__main__ import SEED, summary
from tests.fuzz.campaign import Campaign, Input, made
from tests.fuzz.process import Answer, Worker
from tests.fuzz.readers import READERS, Reader, named
from tests.fuzz.verdict import cpu_limit, judge
from tests.fuzz.worker import beginning

# Those whose inputs take a second and more: they capture models, or call programs of the user's own.
SLOW = {"huggingface", "pipeline", "words-plan", "runs-csv", "exported"}
INPUTS = 100


def test_a_slice_of_the_campaign(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, seed=SEED, only=[each.name for each in READERS if each.name not in SLOW])
    found = [f"{one.command}: {verdict}" for one, _, verdict in campaign.run(INPUTS) if verdict.found]
    assert not found
    ends: Counter[str] = sum(campaign.tally.ends.values(), Counter())
    assert ends.total() == INPUTS
    assert min(ends["0"], ends["2"]) > INPUTS / 10  # mutations neither break everything nor change nothing


def test_a_campaign_is_gone_on_with(tmp_path: Path) -> None:
    names = ["systolic-config", "layers"]
    for until in (3, 6):
        campaign = Campaign(tmp_path, seed=1, only=names)
        numbers = [one.number for one, _, _ in campaign.run(until)]
        assert numbers == list(range(until - 3, until))
    assert campaign.tally.done == 6
    assert "all" in summary(campaign.tally)
    with pytest.raises(SystemExit, match="seed 1"):
        Campaign(tmp_path, seed=2, only=names)


def test_inputs_are_their_numbers() -> None:
    readers = [named("stablehlo"), named("words-collective"), named("cluster")]
    again = [(one.data, one.arguments) for one in (made(7, number, readers) for number in range(20))]
    assert again == [(one.data, one.arguments) for one in (made(7, number, readers) for number in range(20))]
    assert len({data for data, _ in again}) == 20


@pytest.mark.parametrize("reader", [each for each in READERS if each.name not in SLOW], ids=lambda each: each.name)
def test_a_seed_of_every_reader_is_answered(campaign: Campaign, reader: Reader) -> None:
    """Without one that works, mutations would only try how a reader refuses."""
    codes = set()
    for number, data in enumerate(reader.seeds()[:2]):
        file = f"{reader.name}-seed{number}{reader.suffix}" if reader.suffix else ""
        for at in range(len(reader.commands)):
            arguments = tuple(reader.arguments(data, file, _Choosing(at)))
            one = Input(number=0, reader=reader, data=data, file=file, arguments=arguments)
            codes.add(campaign.tried(one)[0].code)
            if 0 in codes:
                return
    pytest.fail(f"exit codes {codes}")


class _Choosing(Random):
    """Always the same one of several."""

    def __init__(self, at: int) -> None:
        super().__init__(0)
        self._at = at

    def choice(self, seq):  # type: ignore[no-untyped-def]
        return seq[self._at % len(seq)]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    one = Campaign(tmp_path_factory.mktemp("seeds"), seed=1)
    yield one
    one.close()


def test_ends_that_are_findings() -> None:
    trace = 'Traceback (most recent call last):\n  File "/x/src/meshcast/a.py", line 3, in f\nZeroDivisionError: no\n'
    dumped = 'Fatal\nCurrent thread (most recent call first):\n  File "/x/src/meshcast/b.py", line 7 in g\n'

    def kind(code: int, out: str = "{}\n", err: str = "", *, waited: bool = False) -> tuple[str, str]:
        verdict = judge(Answer(code=code, out=out, err=err, waited=waited))
        return verdict.kind, verdict.signature

    assert kind(0) == kind(2) == kind(3) == kind(4) == ("ok", "")
    assert kind(1, err=trace) == ("exit 1", "ZeroDivisionError meshcast/a.py:3")
    assert kind(-signal.SIGABRT, err=dumped) == ("crash", "SIGABRT meshcast/b.py:7")
    assert kind(-signal.SIGPROF, err=dumped) == ("hang", "meshcast/b.py:7")
    assert kind(-9, waited=True)[0] == "hang"
    assert kind(2, out="")[0] == "no JSON"
    assert kind(0, out='{"a": NaN}\n')[0] == "bad JSON"
    assert kind(0, out='{"step_time_s": -1.0}\n')[0] == "nonsense"
    assert kind(2, err=trace)[0] == "traceback"


def test_a_worker_that_dies_or_hangs_is_told_from_one_that_answers(tmp_path: Path) -> None:
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / "dying.py").write_text(
        "import os\ndef end(path): os.abort()\ndef spin(path):\n  while True: pass\n"
    )
    worker = Worker(tmp_path)
    try:
        assert worker.ask(["call", "dying:end", "x"], cpu_s=5.0).code == -signal.SIGABRT
        assert worker.ask(["call", "dying:spin", "x"], cpu_s=0.2).code == -signal.SIGPROF
        assert worker.ask(["systolic", "--json"], cpu_s=5.0).code == 2
    finally:
        worker.close()


def test_of_a_long_answer_the_lines_that_are_whole_are_judged() -> None:
    assert beginning(b"{}\n{}\n", most=6) == b"{}\n{}\n"
    assert beginning(b'{}\n{"a": 1}\n', most=6) == b"{}\n"


def test_limits_grow_with_inputs() -> None:
    assert cpu_limit(1 << 20) > cpu_limit(0) > 0


def test_a_finding_is_kept_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(self: Worker, arguments: list[str], *, cpu_s: float) -> Answer:
        return Answer(code=-signal.SIGSEGV, out="", err="")

    monkeypatch.setattr(Worker, "ask", dies)
    campaign = Campaign(tmp_path, seed=1, only=["layers"])
    ((one, _, verdict),) = campaign.run(1)
    assert (verdict.kind, campaign.tally.found) == ("crash", 1)
    kept = tmp_path / "findings" / "0-layers"
    assert (kept / "command").read_text() == one.command + "\n"
    assert (kept / one.file).read_bytes() == one.data
    # The number alone makes it again.
    again = made(1, 0, [named("layers")])
    assert (again.command, again.data) == (one.command, one.data)
