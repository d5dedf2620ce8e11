"""Where the files of a report lie: templates, styles, scripts, and the plots' library, which the page on localhost shares."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
STATIC = HERE / "static"
VENDORED = STATIC / "vendor"
