"""Figures of README.md and docs/ are what the commands beside them make today (`make docs-figures`)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documentation.command_line import exit_code
from tests.documentation.pages import PAGES, ROOT
from tests.documentation.regions import FigureError, Region, filled, generated_pages, regions, rewritten

REGIONS = [region for page in PAGES for region in regions(page)]
RUN = [region for region in REGIONS if not region.is_fill and not region.slow]
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
BAR = re.compile(r"\s*█*$")
# Releases of jax lower a model somewhat differently, so figures are compared with a margin and not by the letter.
MARGIN = 0.03


def test_the_front_page_and_the_overview_of_accuracy_are_written_by_commands() -> None:
    pages = {region.page.name for region in REGIONS}
    assert {"README.md", "accuracy-overview.md", "models.md", "explaining.md", "measured.md"} <= pages
    assert {"accuracy.md", "accuracy-zoo.md", "accuracy-tpu.md"} <= {page.name for page in generated_pages()}


@pytest.mark.parametrize("region", [region for region in REGIONS if region.is_fill], ids=str)
def test_a_quoted_figure_is_that_of_its_page(region: Region) -> None:
    assert region.text == filled(region), "make docs-figures writes it again"


@pytest.mark.parametrize("region", RUN, ids=str)
def test_a_page_shows_what_its_command_prints(
    region: Region, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert exit_code(region.command) == 0
    printed = region.shown(capfd.readouterr().out)
    for left, right in zip(region.text.splitlines(), printed.splitlines(), strict=True):
        left, right = BAR.sub("", left), BAR.sub("", right)
        assert " ".join(NUMBER.sub("#", left).split()) == " ".join(NUMBER.sub("#", right).split())
        for old, new in zip(NUMBER.findall(left), NUMBER.findall(right), strict=True):
            was, now = (float(text.replace(",", "")) for text in (old, new))
            assert now == pytest.approx(was, rel=MARGIN, abs=0.3), f"{left!r} is now {right!r}"


PAGE = """Before.
<!-- figures: meshcast devices | lines 2-3 -->
old
<!-- end of figures -->
<!-- slow figures: fill accuracy.md > Time
| {gemm > rows} | {accuracy-zoo.md > Time > vision > failed} |
-->
| 80 | 0 |
<!-- end of figures -->
After.
"""


def test_regions_are_found_and_written_again(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    first, second = regions(tmp_path / "page.md")
    assert (first.command, first.slow, first.text) == (["meshcast", "devices"], False, "old\n")
    assert first.shown("1\n2 \n3\n4\n") == "```\n2\n3\n```\n"
    assert (second.is_fill, second.slow, filled(second)) == (True, True, "| 81 | 0 |\n")
    text = rewritten(tmp_path / "page.md", lambda region: filled(region) if region.is_fill else None)
    assert text == PAGE.replace("| 80 |", "| 81 |")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<!-- figures: meshcast devices -->\nx\n", "has no end"),
        ("<!-- end of figures -->\n", "1 ends of figures, 0 beginnings"),
        ("<!-- figures: rm -rf x -->\n<!-- end of figures -->\n", "neither a command nor a template"),
        ("<!-- figures: fill\n{accuracy.md > Times > gemm > rows}\n-->\n<!-- end of figures -->\n", "no section 'Times'"),
        ("<!-- figures: fill\n{accuracy.md > Time > gems > rows}\n-->\n<!-- end of figures -->\n", "no row 'gems'"),
        ("<!-- figures: fill\n{accuracy.md > Time > gemm > row}\n-->\n<!-- end of figures -->\n", "no column 'row'"),
        ("<!-- figures: fill\n{gemm > rows}\n-->\n<!-- end of figures -->\n", "is not {page > section > row > column}"),
        ("<!-- figures: fill\n{accurate.md > Time > gemm > rows}\n-->\n<!-- end of figures -->\n", "no page"),
    ],
)  # fmt: skip
def test_wrong_markers_are_named(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(text)
    with pytest.raises(FigureError, match=said):
        [filled(region) for region in regions(tmp_path / "page.md")]
