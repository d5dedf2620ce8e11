"""Numbers for people, by their unit: the same words in the page's text and, as `static/units.js`, in its pictures."""

from __future__ import annotations

from meshcast.base import format_bytes, format_energy, format_flops, format_rate, format_time
from meshcast.report.tables import TableCell
from meshcast.results import format_count, percent

# Units that are no SI unit with prefixes: what stands behind the number.
_PLAIN = {"W": " W", "FLOP/B": " FLOP/B", "ratio": "×", "1": ""}


def shown(value: TableCell, unit: str = "") -> str:
    """A value in its unit, three digits of it; a dash where there is none."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    match unit:
        case "s":
            return format_time(value)
        case "B":
            return format_bytes(value)
        case "FLOP":
            return format_flops(value)
        case "B/s" | "FLOP/s":
            return format_rate(value, unit)
        case "J":
            return format_energy(value)
        case "share":
            return percent(value)
        case "W":
            return f"{value:,.0f} W" if abs(value) >= 10 else f"{value:.3g} W"
        case _ if unit in _PLAIN:
            return f"{value:.3g}{_PLAIN[unit]}"
        case "count":
            whole = (float(value).is_integer() and abs(value) < 1e15) or 999.5 <= abs(value) < 1e15
            return f"{value:,.0f}" if whole else f"{value:.4g}"
        case "":
            return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
        case _:  # a count of something a second: tokens/s
            return f"{format_count(value)} {unit}"
