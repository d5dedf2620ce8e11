"""CHANGELOG.md has a dated section for the version that the code has, below one for what comes next."""

from __future__ import annotations

import datetime
import re

import meshcast
from tests.documentation.pages import ROOT

SECTION = re.compile(r"^## (\S+)(?: \((.+)\))?$", re.MULTILINE)


def test_the_version_has_a_dated_section_below_what_is_not_released() -> None:
    first, second, *earlier = SECTION.findall((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert first == ("Unreleased", "")
    assert second[0] == meshcast.__version__
    dates = [datetime.date.fromisoformat(date) for _, date in (second, *earlier)]
    assert dates == sorted(dates, reverse=True)
