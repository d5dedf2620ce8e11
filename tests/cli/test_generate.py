"""`meshcast generate` and `validate generated`: from a name to traces that replay."""

from __future__ import annotations

from tests.cli.conftest import Meshcast


def test_traces_like_a_model_replay(meshcast: Meshcast) -> None:
    answer = meshcast("generate", "--like", "llama3-70b", "--nodes", "120", "--seed", "7", "-o", "out/like", "--json")
    assert answer.code == 0
    (said,) = answer.lines
    assert (said["schema"], said["nodes"]) == ("meshcast.generated-trace/1", 120)
    replayed = meshcast("predict", "out/like", "--on", "dgx-h100", "--json", "--levers", "none")
    assert replayed.code == 0
    assert replayed.lines[0]["step_time_s"] > 0


def test_what_cannot_be_asked_for(meshcast: Meshcast) -> None:
    assert meshcast("generate", "--like", "llama3-70b").code == 2
    answer = meshcast("generate", "--like", "llama-70b", "-o", "out/like")
    assert (answer.code, "nothing like" in answer.err) == (2, True)
    assert meshcast("generate", "-o", "out/like").code == 2
