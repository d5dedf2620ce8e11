"""The corpus of public libraries' programs: which part a library belongs to, what the index keeps, what a catalogue refuses."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from benchmarks.corpus.libraries import DISTRIBUTIONS, MODULES
from benchmarks.corpus.record import Catalogue, Index, part_of

ROOT = Path(__file__).parents[2]
PARTS = {
    "keras": "apart",
    "optax": "apart",
    "numpyro": "apart",
    "jraph": "open",
    "keras-hub": "open",
    "jax.lax": "open",
}


def nothing() -> Any:
    raise AssertionError("an index asks no program for its function")


def catalogue() -> Catalogue:
    made = Catalogue("keras", "library", "vision")
    made.add("keras_one_train", nothing, "train", "mixed")
    made.add("keras_two_infer", nothing, "infer", group="audio")
    return made


def test_the_part_depends_on_the_name_alone_and_sets_a_third_apart() -> None:
    # Written out: a rule that changes would move libraries that were looked at into the part that was not.
    assert {name: part_of(name) for name in PARTS} == PARTS
    apart = sum(part_of(f"library{number}") == "apart" for number in range(3000))
    assert 900 < apart < 1100


def test_the_index_holds_a_row_once_its_text_is_there(tmp_path: Path) -> None:
    index = Index(tmp_path)
    one, two = catalogue().programs
    assert list(index.rows()) == []
    index.write(one, gzip.compress(b"module {}"), version="3.0", bytes=29)
    index.write(two, b"", version="3.0", bytes=0)
    index.write(one, gzip.compress(b"module @again {}"), version="3.1", bytes=36)
    assert [(row["id"], row["version"]) for row in index.rows()] == [
        ("keras_one_train", "3.1"),
        ("keras_two_infer", "3.0"),
    ]
    first, second = index.rows()
    assert first["part"] == part_of("keras")
    assert (first["mode"], first["dtype"], first["group"], first["origin"]) == ("train", "mixed", "vision", "library")
    assert second["group"] == "audio"
    assert gzip.decompress(index.file_of("keras_one_train").read_bytes()) == b"module @again {}"


def test_a_text_without_its_row_is_captured_again(tmp_path: Path) -> None:
    index = Index(tmp_path)
    one, two = catalogue().programs
    index.write(one, b"", version="3.0")
    index.file_of(two.id).write_bytes(b"cut off")
    assert index.has(one.id)
    assert not index.has(two.id)


def test_two_programs_of_one_name_and_unknown_words_are_refused() -> None:
    made = catalogue()
    with pytest.raises(ValueError, match="two programs called keras_one_train"):
        made.add("keras_one_train", nothing, "infer")
    with pytest.raises(ValueError, match="mode is 'training'"):
        made.add("keras_three", nothing, "training")


def test_every_library_names_modules_that_are_there_and_a_requirement() -> None:
    folder = ROOT / "benchmarks/corpus"
    lines = [line for file in folder.glob("requirements*.txt") for line in file.read_text().splitlines()]
    required = {line.split("==")[0].lower().replace("_", "-") for line in lines if not line.startswith("#")}
    for library, module in MODULES.items():
        assert (folder / f"{module}.py").exists(), library
        assert DISTRIBUTIONS.get(library, library) in required
