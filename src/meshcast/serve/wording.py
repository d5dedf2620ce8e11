"""Errors in the words of the page: where they name a flag of the command line that the page has a control for, the control."""

from __future__ import annotations

import re
from typing import Any

# Flags of `predict` by the names that their controls have; of those with words of their own, the words.
CONTROLS = {
    "on": "on", "devices": "devices", "plan": "plan", "fidelity": "fidelity", "lowering": "kernels", "network": "network",
    "clocks": "clocks", "stack": "stack",
}  # fmt: skip
_WORDS = {"compiled": "real compiler"}
_VALUE = r"[A-Za-z0-9][A-Za-z0-9=,._+-]*(?<![.,])"
_SETTING = re.compile(rf"--set[ =]({_VALUE})")
_FLAG = re.compile(rf"--({'|'.join(CONTROLS)})\b(?:=({_VALUE}))?")
_CHANGED = re.compile(r"--on [^+ ]+\+(\S+)")
_COMMAND = re.compile(r"(\bmeshcast [a-z]+ (?:[^,;()]|,(?! ))*)")  # up to where the sentence goes on


def on_the_page(error: dict[str, Any]) -> dict[str, Any]:
    """An error as the tool prints it (`{"error": {...}}`), with controls for flags."""
    return {"error": {name: spoken(text) if isinstance(text, str) else text for name, text in error["error"].items()}}


def spoken(text: str) -> str:
    """A text with controls for flags; a whole command stays one."""
    parts = _COMMAND.split(text)  # what is outside of commands, and these
    for place in range(0, len(parts), 2):
        words = _SETTING.sub(r"\1 under Sizes", parts[place]).replace("--set", "Sizes")
        parts[place] = _FLAG.sub(_control, words)
    return "".join(parts)


def _control(found: re.Match[str]) -> str:
    name, value = CONTROLS[found[1]], found[2]
    return f"{name}={_WORDS.get(value, value)}" if value else name


def spoken_flag(flag: str) -> str:
    """A change's flag as the control that makes it; what none makes is other hardware, or for the command line."""
    if changed := _CHANGED.fullmatch(flag):
        return f"other hardware: {changed[1]}"
    words = spoken(flag)
    return f"command line: {flag}" if "--" in words or " --" in flag or "+" in flag else words
