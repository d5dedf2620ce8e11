"""What a compiler said, in one line."""

from __future__ import annotations

import pytest

from meshcast.lower.compiled.compilation_cache import first_sentence


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("INTERNAL: no tiles\nhlo: ...", "INTERNAL: no tiles"),
        ("UNIMPLEMENTED: \n\n  No integer convolutions.\n%a = s8[4]", "UNIMPLEMENTED: No integer convolutions."),
        ("UNIMPLEMENTED:", "UNIMPLEMENTED:"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_status_alone_is_no_sentence(message: str, said: str) -> None:
    assert first_sentence(message) == said
