"""Optional parts of the installation, which `pyproject.toml` names, and the line that adds one to the Python that runs.

`pip install 'meshcast[NAME]'` is right where meshcast came from a package index. Inside a clone, or behind a wheel that somebody
mailed, the index has no meshcast, or another one: the line then names the place that this one was installed from, which pip keeps
beside it (`direct_url.json`, the packaging specification "Recording the Direct URL Origin").
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

NAME = "meshcast"


def how_to_install(extra: str) -> str:
    """The command that adds an extra to the Python that runs, wherever meshcast came from; it works in the current folder."""
    return f"{pip_install()} {_what(extra)}"


def pip_install() -> str:
    """The command that installs something into the Python that runs: with pip, or with uv, whose environments have no pip."""
    python = shlex.quote(_near(Path(sys.executable)))
    if importlib.util.find_spec("pip") is None:
        return f"uv pip install --python {python}"
    return f"{python} -m pip install"


def requirements_of(extra: str | None) -> list[str]:
    """What an extra asks for on any system, as the installed package says; None: what meshcast needs itself."""
    try:
        declared = metadata.requires(NAME) or []
    except metadata.PackageNotFoundError:
        return []
    found = []
    for requirement in declared:
        text, _, marker = requirement.partition(";")
        named = re.search(r"""extra == ['"]([^'"]+)""", marker)
        if (named[1] if named else None) == extra:
            rest = re.sub(r"""\s*(and\s+)?extra == ['"][^'"]+['"]\s*""", "", marker).strip()
            found.append(f"{text.strip()}; {rest}" if rest else text.strip())
    return found


def _what(extra: str) -> str:
    """What is asked for: the extra of this meshcast, or its requirements where the place that it came from is gone."""
    origin = _origin()
    if origin is None:
        return _quoted(f"{NAME}[{extra}]")
    url = str(origin["url"])
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        return _quoted(f"{NAME}[{extra}] @ {vcs['vcs']}+{url}@{vcs['commit_id']}")
    place = Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None
    if place is not None and not place.exists():
        return " ".join(map(_quoted, requirements_of(extra)))
    if place is None or "dir_info" not in origin:
        return _quoted(f"{NAME}[{extra}] @ {url}")
    editable = "-e " if origin["dir_info"].get("editable") else ""
    return editable + _quoted(f"{_near(place)}[{extra}]")


def _origin() -> dict[str, Any] | None:
    """Where this meshcast was installed from, as pip has noted it; None: from a package index."""
    try:
        noted = metadata.distribution(NAME).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    return json.loads(noted) if noted else None


def _near(path: Path) -> str:
    """A path as it is shortest to write: from the current folder where it lies below that."""
    here = Path.cwd()
    if not path.is_relative_to(here):
        return str(path)
    below = path.relative_to(here)
    return os.curdir if below == Path() else str(below)


def _quoted(text: str) -> str:
    """A word of a command; brackets and signs are always quoted, as people write them."""
    return f"'{text}'" if "'" not in text else shlex.quote(text)
