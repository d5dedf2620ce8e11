"""A slice of the golden answers, and the parts that keep and compare them.

Headline numbers are compared to 1e-12 and the rest to nine digits, not bit by bit: another processor, or another build of NumPy,
adds up in another order. `make golden` compares all of them so, with `--bits` to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from meshcast.cli import main
from tests.golden.answers import differences, shipped, shipped_made, summary, told
from tests.golden.command import Bench
from tests.golden.grid import expanded, questions, spread
from tests.golden.recording import WRITERS, environment

QUICK_S = 0.3  # as recorded, behind others that had loaded what all of them need
COUNT = 25
CAPTURED = "mlp-tiny"  # the one model of the zoo that is traced in no time
STORED = shipped()


def _quick(question: str) -> bool:
    """Whether a question is about a file, a catalogue, layers or collectives, or about the smallest model."""
    verb, _, target = question.partition(" ")
    of_file = "/" in target.split(" ")[0] and ".py" not in target and ".toml" not in target and "&&" not in target
    named = verb in ("collective", "systolic", "devices", "stacks") or target.startswith(CAPTURED)
    return (of_file or named) and question.endswith("--json") and STORED[question]["seconds"] <= QUICK_S


# What the quick ones have none of.
BESIDES = (
    "predict seeds/convolution.mlir --on tpu-v5p --levers none --json",  # a TPU's convolution
    "predict resnet-tiny --on tpu-v5p --set batch=4 --levers none --json",  # a model of the zoo, with more of them
    "predict vit-tiny --on h200 --set batch=4 --levers none --json",
)
SLICE = list(dict.fromkeys((*spread([each for each in STORED if _quick(each)], COUNT), *BESIDES)))


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    then, here = shipped_made(), environment()
    if other := [name for name in WRITERS if then[name] != here[name]]:
        pytest.skip(f"answers were recorded with {', '.join(f'{name} {then[name]}' for name in other)}")
    found = Bench(main)
    yield found
    found.close()


@pytest.mark.parametrize("question", SLICE)
def test_answers_are_as_before(bench: Bench, question: str) -> None:
    then, now = STORED[question], summary({"question": question, "seconds": 0, "answers": bench.ask(question)})
    assert told(then, now) == []


def test_every_question_has_an_answer_and_every_answer_its_question() -> None:
    asked = questions()
    assert set(asked) == set(STORED)
    assert len(asked) == len(set(asked)) > 900


def test_a_line_stands_for_every_choice() -> None:
    names = {"ON": ["h200", "[a100|b200] --devices 2"], "NONE": ["[]"]}
    found = list(expanded("predict [x|$ON] $NONE", names))
    assert found == ["predict x ", "predict h200 ", "predict a100 --devices 2 ", "predict b200 --devices 2 "]


def _row(*lines: object, code: int = 0) -> dict[str, Any]:
    return {"question": "q", "seconds": 0, "answers": [{"exit": code, "lines": list(lines), "files": {}}]}


def test_differences_are_told_with_their_place() -> None:
    before = _row({"step_time_s": 0.1, "links": [{"level": "nvlink"}], "kernels": 1})
    assert differences(before, before) == []
    now = _row({"step_time_s": math.nextafter(0.1, 1), "links": [{"level": "ici"}, 2], "kernels": 1.0})
    assert differences(before, now) == [
        "[0].lines[0].step_time_s: 0.1 -> 0.10000000000000002",
        '[0].lines[0].links[0].level: "nvlink" -> "ici"',
        "[0].lines[0].links[1]: absent -> 2",
        "[0].lines[0].kernels: 1 -> 1.0",
    ]
    assert differences(_row({"a": 1, "b": 2}), _row({"b": 2, "a": 1})) == [
        '[0].lines[0] (order of keys): ["a", "b"] -> ["b", "a"]'
    ]


def test_digests_see_the_last_bit_and_headlines_say_which_number() -> None:
    before, now = summary(_row({"step_time_s": 0.1})), summary(_row({"step_time_s": math.nextafter(0.1, 1)}))
    assert told(before, before, bits=True) == []
    assert told(before, now, bits=True) == ["numbers[0].step_time_s: 0.1 -> 0.10000000000000002"]
    assert before["shape"] == now["shape"] != summary(_row({"time_s": 0.1}))["shape"]
    other = summary(_row({"step_time_s": 0.1}, "a text", code=0)) | {"shape": before["shape"]}
    for bits in (True, False):
        (said,) = told(before, other, bits=bits)
        assert "the rest is not" in said


def test_other_processors_last_bits_are_no_difference_unless_they_are_asked_for() -> None:
    def answer(headline: float, other: float, text: str = "fast") -> dict[str, Any]:
        return summary(_row({"step_time_s": headline, "kernel": {"name": text, "seconds": other}}))

    before = answer(0.1, 0.3)
    for now in (answer(math.nextafter(0.1, 1), 0.3), answer(0.1, math.nextafter(0.3, 1))):
        assert told(before, now) == []
        assert len(told(before, now, bits=True)) == 1
    assert told(before, answer(0.11, 0.3)) == ["numbers[0].step_time_s: 0.1 -> 0.11"]
    assert len(told(before, answer(0.1 + 1e-12, 0.3))) == 1
    for now in (answer(0.1, 0.3 + 1e-7), answer(0.1, 0.3, "slow")):
        (said,) = told(before, now)
        assert "the rest is not" in said
        # Recorded before there was a digest of rounded numbers: nothing can be said of what is no headline.
        assert told({key: value for key, value in before.items() if key != "rounded"}, now) == []


def test_what_depends_on_time_place_and_release_is_left_out(bench: Bench) -> None:
    (answer,) = bench.ask("predict fixtures/tanh.mlir --on h200 --json")
    (line,) = answer["lines"]
    assert line["tool"] == {}
    assert line["target"]["sha256"]  # of a file
    (answer,) = bench.ask(f"predict {CAPTURED} --on h200 --levers none --json")
    assert "sha256" not in answer["lines"][0]["target"]  # of a program that holds the places of our source
    (answer,) = bench.ask("predict fixtures/tanh.mlir --on h200")
    assert answer["lines"][-1].endswith("; meshcast VERSION")
    (answer,) = bench.ask("--version")
    assert answer["lines"] == ["meshcast VERSION"]
