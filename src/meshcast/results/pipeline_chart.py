"""A pipeline's step as a chart of characters: a line for each stage, time from left to right."""

from __future__ import annotations

from bisect import bisect_right

from meshcast.base import format_time
from meshcast.results.sections import Section, columns
from meshcast.simulate import PipelineRun

CELLS, ROWS = 96, 32
IDLE, UPDATE, REDUCE = ".", "U", "R"


def chart_section(run: PipelineRun, *, limit: int = ROWS) -> Section:
    """The chart of a step; of many stages the first ones."""
    rows = [(f"stage {stage}", line) for stage, line in enumerate(chart(run)[:limit])]
    more = f"; {len(run.stages) - limit} more stages" if len(run.stages) > limit else ""
    ends = max(stage.end for stage in run.stages)
    return Section(
        title=f"{run.schedule.name}: {len(run.stages)} stages, {run.schedule.microbatches} microbatches",
        columns=columns("", ""),
        rows=rows,
        note=f"F forward, B backward, W weights' gradient, R gradient reduction, U update, . waiting; one character is "
        f"{format_time(ends / CELLS)}{more}",
    )


def chart(run: PipelineRun, cells: int = CELLS) -> list[str]:
    """A line for each stage: what it does in the middle of each of so many equal pieces of time."""
    ends = max(stage.end for stage in run.stages) or 1.0
    lines = []
    for stage, order in zip(run.stages, run.schedule.orders, strict=True):
        line = []
        last = stage.ends[-1] if stage.ends else 0.0
        for cell in range(cells):
            now = (cell + 0.5) * ends / cells
            index = bisect_right(stage.starts, now) - 1
            if index >= 0 and now < stage.ends[index]:
                line.append(order[index].work.value)
            elif last <= now < stage.end:
                line.append(REDUCE if now < last + stage.reducing else UPDATE)
            else:
                line.append(IDLE)
        lines.append("".join(line))
    return lines
