"""Which launch of a compiled program an op belongs to, from the notes that `capture.hlo_text` leaves on ops."""

from __future__ import annotations

from typing import Any

from meshcast.workload.graph import Launch
from meshcast.workload.rules.attributes import text
from meshcast.workload.rules.backend_config import parse_object


def launch_of(operation: Any) -> Launch | None:
    """The launch that an op of a scheduled module is; None for what launches nothing: views, constants, loops."""
    name = text(operation, "meshcast.name")
    if not name:
        return None
    config = parse_object(text(operation, "meshcast.backend_config") or "{}")
    emitter = config.get("fusion_backend_config", {})
    communication = config.get("collective_backend_config", {})
    started = text(operation, "meshcast.async") == "start" and not communication.get("is_sync")
    return Launch(
        name=name, fusion=text(operation, "meshcast.fusion"), emitter=str(emitter.get("kind", "")), blocking=not started
    )
