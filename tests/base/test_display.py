"""Tables as Markdown: by hand."""

from __future__ import annotations

import pytest

from meshcast.base.display import markdown_of, with_article


def test_cells_stay_cells_and_numbers_go_right() -> None:
    table = markdown_of(("name", "size"), [("a|b", "<0.1 %"), ("4.2 ms*", "2")], right=(1,))
    assert table.splitlines() == [
        "| name | size |",
        "| --- | ---: |",
        r"| a\|b | &lt;0.1 % |",
        r"| 4.2 ms\* | 2 |",
    ]


@pytest.mark.parametrize(
    ("article", "names"),
    [
        ("an", ("aimc-28nm", "edge-tpu", "h200", "a100-sxm-80gb", "l40s", "mi300x", "npu", "rtx4090")),
        ("a", ("tpu-v4", "v100-sxm2-32gb", "b200", "gb200", "gaudi3", "trainium2", "gpu", "cpu", "my-gpu")),
    ],
)
def test_articles_go_by_sound(article: str, names: tuple[str, ...]) -> None:
    assert [with_article(name) for name in names] == [f"{article} {name}" for name in names]
