"""What an argument is to the model, read from the name that the user gave it."""

from __future__ import annotations

import functools
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
_BETWEEN_PARTS = re.compile(r"[\[\].'\"]+")
_FIELD_PATTERNS = (
    (Role.OPTIMIZER_STATE, re.compile(r"opt|opt(imi[sz]er)?_state|optimi[sz]er|mu|nu")),
    (Role.PARAMETER, re.compile(r"params?|parameters|weights")),
    (Role.CACHE, re.compile(r"(kv_?)?cache")),
    (Role.BATCH, re.compile(r"batch|tokens|inputs?|images?|labels?|targets?|(input_)?ids")),
)


def role_of(name: str) -> Role:
    """The role that an argument's name gives away: `params['w']`, `state.opt_state[0].mu`. Shapes say nothing."""
    head, *fields = [part for part in _BETWEEN_PARTS.split(name.lower()) if part] or [""]
    found = _argument_role(head)
    for field in fields if found is Role.UNKNOWN else ():
        found = _field_role(field)
        if found is not Role.UNKNOWN:
            break
    return found


# A program has thousands of arguments, whose names begin with a few words.
@functools.lru_cache(maxsize=1024)
def _argument_role(head: str) -> Role:
    return next((role for role, pattern in _ARGUMENT_PATTERNS if pattern.search(head)), Role.UNKNOWN)


@functools.lru_cache(maxsize=1024)
def _field_role(field: str) -> Role:
    return next((role for role, pattern in _FIELD_PATTERNS if pattern.fullmatch(field)), Role.UNKNOWN)
