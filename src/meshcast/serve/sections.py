"""Sections of a prediction for the page: those of a report, by the same code, templates, styles and scripts.

What is known with the prediction itself comes first, so that a change is answered at once; what has to be drawn (timeline, memory
over time, power) comes with a second question, and what would help with a third, because changes are predicted for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshcast.report import SECTIONS, TITLES, Subject, prediction_data, section_html
from meshcast.serve.wording import spoken, spoken_flag

if TYPE_CHECKING:
    from meshcast.serve.messages import AnswerPart

# The summary, and the sections that its template reads from.
SUMMARY = ("summary", "recorded", "breakdown", "provenance")


def sections_answer(subject: Subject, part: AnswerPart) -> dict[str, Any]:
    """Sections as HTML, with the data that the report's scripts draw from and the prediction that they are of."""
    only = SUMMARY if part == "summary" else tuple(name for name in SECTIONS if name not in SUMMARY)
    data = prediction_data(subject, traces=False, only=only)
    if part == "summary":
        _word(data["sections"])
    return {
        "schema": "meshcast.page-sections/1",
        "prediction": data["prediction"],
        "title": data["title"],
        "data": data["sections"],
        "html": {name: section_html(name, data) for name in data["sections"]},
        "titles": {name: TITLES[name] for name in SECTIONS},
        "glossary": data["glossary"],
    }


def _word(sections: dict[str, Any]) -> None:
    """Says what would help, and what is to be kept in mind, by the page's controls in place of flags."""
    summary, provenance = sections["summary"], sections["provenance"]
    if (helps := summary["helps"]) is not None and helps["columns"][-1]["title"] == "by":
        rows = [[*row[:-1], spoken_flag(str(row[-1] or ""))] for row in helps["rows"]]
        summary["helps"] = {**helps, "rows": rows}
        summary["helps_note"] = (
            "each was really predicted; other hardware, and what is for the command line, has no control here"
        )
    provenance["warnings"] = [spoken(warning) for warning in provenance["warnings"]]
