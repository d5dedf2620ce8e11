"""What axe-core finds wrong with an open page (`tests/vendored/README.md`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

AXE = Path(__file__).parent / "vendored" / "axe.min.js"
SERIOUS = ("serious", "critical")


def barriers(page: Any) -> list[tuple[str, str]]:
    """Serious violations on a page that Playwright has open, each by its rule and the first element that breaks it."""
    if not page.evaluate("typeof axe === 'object'"):
        # By the debugger: the page's own policy would not let it run.
        session = page.context.new_cdp_session(page)
        session.send("Runtime.evaluate", {"expression": AXE.read_text(encoding="utf-8")})
        session.detach()
    found = page.evaluate("axe.run({ resultTypes: ['violations'] })")["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in SERIOUS]
