"""`trace`: how a target will run, written as a file that other tools read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

from meshcast.base import expect
from meshcast.jobs import chosen_options
from meshcast.options import OptionKeywords, Options
from meshcast.traces.format_names import FORMAT_NAMES
from meshcast.traces.formats import write_trace
from meshcast.traces.request import TraceRequest, Written


def trace(
    target: Any,
    out: str | Path,
    options: Options | None = None,
    *,
    format: str,
    ranks: str | None = None,
    unroll: bool | None = None,
    dedup: bool = False,
    schema: str = "current",
    memory: bool = True,
    anonymise: bool = False,
    coarsen: str | None = None,
    **overrides: Unpack[OptionKeywords],
) -> Written:
    """Writes how a target will run: `trace("step.mlir", "step.perfetto-trace", format="perfetto", on="h200")`.

    Args:
        target: Whatever `predict` takes, but traces.
        out: A file, or the prefix of several, one a rank.
        options: All settings of the prediction at once.
        format: `perfetto`, `kineto`, `chakra` or `stablehlo`.
        ranks: Which ranks, as `0-7,16`; None for all, in timelines for one of each kind.
        unroll: Whether every turn of a loop is written out; None as the format does it.
        dedup: Chakra: whether equal ranks have one file.
        schema: Chakra: `current` or `v0.0.4`.
        memory: Chakra: whether nodes name what they read and write.
        anonymise: Whether all names of the program are left out.
        coarsen: How coarse sizes of an anonymous trace are made, as `5%`; None leaves them.
        **overrides: Single settings, by the field names of `Options`; `stack`, a software stack or its name, gives those
            that are left at their defaults.

    Returns:
        The lines that the command line prints, and a summary with the files.

    Raises:
        UsageError: There is no such format, or the format does not heed what is asked for.
    """
    chosen = chosen_options(options, overrides, where="trace")
    expect(out, (str, Path), "a file, or the prefix of several", where="out")
    expect(format, str, "one of " + ", ".join(FORMAT_NAMES), where="format")
    return write_trace(
        format,
        TraceRequest(
            target=target,
            options=chosen,
            out=Path(out),
            ranks=ranks,
            unroll=unroll,
            dedup=dedup,
            schema=schema,
            memory=memory,
            anonymise=anonymise,
            coarsen=coarsen,
        ),
    )
