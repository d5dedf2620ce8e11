"""Documents in pieces: whatever the size of a chunk, the same values; what is cut off or wrong is refused with its place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from meshcast.base.errors import InputError
from meshcast.traces.recorded import json_stream
from meshcast.traces.recorded.json_stream import stream_json

DOCUMENT = {"a": 12345, "events": [{"x": 'é}]"', "n": [1, 2]}, 17, -3.5, {}], "z": None, "last": 1.25}
EXPECTED = [("a", 12345), *((None, each) for each in DOCUMENT["events"]), ("z", None), ("last", 1.25)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("chunk", [1, 3, 16, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
def test_chunks_make_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, indent: int | None
) -> None:
    monkeypatch.setattr(json_stream, "CHUNK", chunk)
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(json.dumps(DOCUMENT, indent=indent).encode()))
    assert list(stream_json(path, "events")) == EXPECTED
    path.write_text(json.dumps(DOCUMENT["events"], indent=indent))
    assert list(stream_json(path, "events")) == [(None, each) for each in DOCUMENT["events"]]  # type: ignore[attr-defined]


def test_what_is_held_does_not_grow_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "CHUNK", 1 << 12)
    held: list[int] = []
    more = json_stream._JsonReader._more

    def counted(self: json_stream._JsonReader) -> bool:
        answer = more(self)
        held.append(len(self._text))
        return answer

    monkeypatch.setattr(json_stream._JsonReader, "_more", counted)
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"events": [{"name": "x" * 50, "number": each} for each in range(5000)]}))
    assert sum(1 for _ in stream_json(path, "events")) == 5000
    assert path.stat().st_size > 300_000
    assert max(held) <= 2 << 12


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "character 0: it ends in the middle"),
        ("12", "a JSON object or list is expected"),
        ('{"events": [{"a": 1}, {"a"', "character 22: no JSON"),
        ('{"events": [{"a": 1}', "it ends in the middle"),
        ('{"events" 3}', "a colon is expected"),
    ],
)
def test_what_is_no_whole_document_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        list(stream_json(path, "events"))
    with pytest.raises(InputError, match="No such file"):
        list(stream_json(tmp_path / "b.json", "events"))
