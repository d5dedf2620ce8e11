"""Tables as Markdown: by hand."""

from __future__ import annotations

from meshcast.base.display import markdown_of


def test_cells_stay_cells_and_numbers_go_right() -> None:
    table = markdown_of(("name", "size"), [("a|b", "<0.1 %"), ("4.2 ms*", "2")], right=(1,))
    assert table.splitlines() == [
        "| name | size |",
        "| --- | ---: |",
        r"| a\|b | &lt;0.1 % |",
        r"| 4.2 ms\* | 2 |",
    ]
