"""What an argument is to the model, read from the name that the user gave it."""

from __future__ import annotations

import re
from enum import StrEnum


class Role(StrEnum):
    """What an argument of the program is, where it is known."""

    PARAMETER = "parameter"
    OPTIMIZER_STATE = "optimizer_state"
    BATCH = "batch"
    CACHE = "cache"
    UNKNOWN = "unknown"


# What the function calls its argument, and, less freely, what fields of a train state are called.
_ARGUMENT_PATTERNS = (
    (Role.OPTIMIZER_STATE, re.compile(r"\bopt|_opt|adam|moment|\b(mu|nu)\b")),
    (Role.PARAMETER, re.compile(r"param|weight|variables|buffers")),
    (Role.CACHE, re.compile(r"cache|\bkv\b")),
    (Role.BATCH, re.compile(r"batch|token|input|image|label|target|\bids\b")),
)
_FIELD_PATTERNS = (
    (Role.OPTIMIZER_STATE, re.compile(r"opt|opt(imi[sz]er)?_state|optimi[sz]er|mu|nu")),
    (Role.PARAMETER, re.compile(r"params?|parameters|weights")),
    (Role.CACHE, re.compile(r"(kv_?)?cache")),
    (Role.BATCH, re.compile(r"batch|tokens|inputs?|images?|labels?|targets?|(input_)?ids")),
)


def role_of(name: str) -> Role:
    """The role that an argument's name gives away: `params['w']`, `state.opt_state[0].mu`. Shapes say nothing."""
    head, *fields = [part for part in re.split(r"[\[\].'\"]+", name.lower()) if part] or [""]
    for role, pattern in _ARGUMENT_PATTERNS:
        if pattern.search(head):
            return role
    for field in fields:
        for role, pattern in _FIELD_PATTERNS:
            if pattern.fullmatch(field):
                return role
    return Role.UNKNOWN
