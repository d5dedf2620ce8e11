"""What is asked of `--overlap`: one table for names, readers, writers and help."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcast.base.errors import UsageError
from meshcast.cli.flags import flag
from meshcast.lower.overlap.choices import OVERLAP_CHOICES, Overlap

overlaps = st.builds(
    Overlap,
    **{
        each.name: st.booleans() if isinstance(each.default, bool) else st.integers(0, 10**9)
        for each in fields(Overlap)
    },
)


def test_every_field_is_a_choice_and_in_the_help() -> None:
    assert sorted(choice.field for choice in OVERLAP_CHOICES) == sorted(each.name for each in fields(Overlap))
    said = flag("overlap").help
    assert all(f"{choice.name}{choice.example} ({choice.help})" in said for choice in OVERLAP_CHOICES)


@given(overlaps)
def test_what_is_written_is_read(overlap: Overlap) -> None:
    assert Overlap.parse(str(overlap)) == overlap
    assert overlap.any == bool(str(overlap))


def test_values() -> None:
    found = Overlap.parse("buckets=25MiB, prefetch=1,gathers=2,async-tp=0")
    assert found == Overlap(bucket_bytes=25 << 20, prefetch=True, gathers=2)
    assert str(found) == "buckets=26214400B,prefetch,gathers=2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bucket=1", "no overlap 'bucket'"), ("buckets", "buckets: "), ("buckets=0B", "buckets of '0B'"),
        ("gathers=0", "not a positive integer"), ("prefetch=2", "it is on or off"), ("offload,offload=0", "given twice"),
    ],
)  # fmt: skip
def test_what_cannot_be_read(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        Overlap.parse(text)
    assert raised.value.where == "--overlap"
    assert raised.value.fix
