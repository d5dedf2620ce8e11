"""`report_page`: a report's data as one HTML document, with styles, scripts and data inside; or with links to them, for a server.

Templates escape everything (Jinja2's autoescape, strict about names that are not there), and the data block has no character that
could end it. A content security policy lets run the page's own scripts alone, by their hashes, and lets nothing be fetched.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from meshcast.report.assets import HERE, STATIC
from meshcast.report.contents import TITLES, ReportData
from meshcast.report.numbers import shown

if TYPE_CHECKING:
    from jinja2 import Environment

STYLES = ("theme.css", "sections.css", "report.css")
# In the order in which they are run; the first is the plots' library (static/vendor/README.md).
SECTION_SCRIPTS = ("units.js", "page.js", "plots.js", "lanes.js", "perfetto.js", "search.js", "sections.js")
SCRIPTS = ("vendor/echarts.min.js", *SECTION_SCRIPTS, "document.js")
_ESCAPED = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


@functools.cache
def environment() -> Environment:
    """The templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    made.filters["shown"] = shown
    made.globals["titles"] = TITLES
    return made


@functools.cache
def asset(name: str) -> str:
    """The text of a style sheet or script."""
    return (STATIC / name).read_text(encoding="utf-8")


def report_page(data: ReportData, *, assets: str | None = None) -> str:
    """The document of a report.

    Args:
        data: What it shows.
        assets: Where a server has the static files (`/static/`); None puts them inside.
    """
    scripts = [] if assets is not None else [asset(name) for name in SCRIPTS]
    return environment().get_template("report.html.j2").render(
        report=data, data_block=data_block(data), styles=[asset(name) for name in STYLES] if assets is None else [],
        scripts=scripts, assets=assets, style_names=STYLES, script_names=SCRIPTS, policy=policy(scripts),
    )  # fmt: skip


def section_html(name: str, data: ReportData) -> str:
    """One section alone, for a page that changes while somebody looks at it."""
    return environment().get_template("section.html.j2").render(report=data, name=name)


def data_block(data: Mapping[str, Any]) -> str:
    """Data as JSON that can stand inside a script element, whatever texts are in it."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).translate(_ESCAPED)


def policy(scripts: list[str]) -> str:
    """The content security policy of a document with these scripts inside."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )
