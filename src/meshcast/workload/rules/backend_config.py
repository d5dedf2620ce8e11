"""Backend configurations of custom calls: JSON in a string, or a typed dictionary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jaxlib.mlir import ir

_EMPTY: Mapping[str, Any] = {}


def backend_config(op: Any) -> Mapping[str, Any]:
    """What the call's configuration says, from `mhlo.backend_config` (typed FFI) or `backend_config`."""
    attributes = op.attributes
    for name in ("mhlo.backend_config", "backend_config"):
        if name in attributes:
            found = _value(attributes[name])
            if isinstance(found, str):
                found = parse_object(found)
            if found:
                return dict(found)
    return _EMPTY


def frontend_attributes(op: Any) -> Mapping[str, Any]:
    """What is noted on the op for frontends and for us (`jax.experimental.xla_metadata`); empty where nothing is."""
    attributes = op.attributes
    return dictionary(attributes["mhlo.frontend_attributes"]) if "mhlo.frontend_attributes" in attributes else _EMPTY


def parse_object(text: str) -> Mapping[str, Any]:
    """The JSON object in `text`; empty where it is anything else (kernels keep binaries there, too)."""
    if not text.lstrip().startswith("{"):
        return _EMPTY
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return _EMPTY
    return found if isinstance(found, dict) else _EMPTY


def dictionary(attribute: Any) -> dict[str, Any]:
    """A dictionary attribute as plain values."""
    pairs = ir.DictAttr(attribute)
    return {pairs[i].name: _value(pairs[i].attr) for i in range(len(pairs))}


def dimensions(config: Mapping[str, Any], name: str) -> list[int]:
    """A list of dimensions; protobuf's JSON writes 64-bit integers as strings."""
    return [int(dim) for dim in config.get(name, ())]


def _value(attribute: Any) -> Any:
    """The plain value of a string, number or dictionary attribute; nothing for any other."""
    if isinstance(attribute, ir.DictAttr):
        return dictionary(attribute)
    if isinstance(attribute, ir.StringAttr):
        try:
            return attribute.value
        except (UnicodeDecodeError, RuntimeError):  # a binary: which of the two depends on jaxlib
            return ""
    if isinstance(attribute, ir.IntegerAttr | ir.FloatAttr | ir.BoolAttr):
        return attribute.value
    return None
