"""Formats that traces are written in, by name with what they are: what `traces.formats` writes and the command line lists."""

from __future__ import annotations

from collections.abc import Mapping

ANOTHER_PLACE = "choose another place with -o"  # what helps where a trace cannot be written

FORMAT_NAMES: Mapping[str, str] = {
    "chakra": "an execution trace a rank, PREFIX.RANK.et",
    "perfetto": "a timeline for ui.perfetto.dev, FILE.pftrace or FILE.pftrace.gz",
    "kineto": "JSON as PyTorch's profiler writes it, FILE.json or FILE.json.gz, a file a rank",
    "stablehlo": "the program itself, FILE.mlir or FILE.mlir.gz, for --anonymise",
}
