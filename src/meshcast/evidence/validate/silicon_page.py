"""What `validate silicon` comes to: measures, tables, and the page `docs/accuracy-other-gpus.md`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshcast.evidence.validate.markdown import MEASURES, made_by
from meshcast.evidence.validate.programs import ProgramRow
from meshcast.evidence.validate.silicon import SiliconRow
from meshcast.evidence.validate.summary import SCHEMA, FigureMeasures, compare, farthest
from meshcast.evidence.validate.tables import (
    TextTable,
    extra_grid,
    failed_grid,
    markdown_table,
    print_grid,
    wide_console,
    worst_grid,
)

_ABOUT = """\
Single kernels that others measured, predicted by parameters that were fitted on an H200 alone (its programs, not these
tables) and carried over by what the catalogue knows of each GPU: SMs, clocks, peaks, caches, bandwidths, power. The
tables are those of [aiconfigurator-core](https://github.com/ai-dynamo/aiconfigurator) (Apache-2.0), the extra `silicon`;
`src/meshcast/estimate/measurements/silicon.py` says how they were measured, and which framework's are taken.

A sample: as many rows of each size, at even steps through them. No products of vectors that XLA does not leave to a
library, and no f8 rows of which the quantisation of an operand is more than a share (`--quantisation`). Measured and
predicted are from the start of one call to the start of the next.

## How far to trust these figures

- One thing was taken from these tables: energy per FLOP, such that products from 1 TFLOP, which run at the power cap, have
  no bias: B200's, GB200's and GB300's (B300 has GB300's); Hopper's are this project's own (`data/measured/h200-power`).
- No other parameter was fitted to these tables, but the model's mechanisms (loads in flight, the last wave's stores, the cost of
  splitting K, energies carried by the clock, when the power cap has settled) were chosen with the tables of H200, H100,
  A100, B200 and L40S in view, and so was the point from which the fit on the H200's programs starts. They flatter. GB200
  and GB300 were not looked at before the model was final; their own energies, which came later, took 1 to 4 points off.
- Whose tables matters: against those of `vllm` and `sglang` (`--framework`), or over whole tables instead of samples by
  size, the errors of bf16 products are other ones, by some points.
- The f8 figures depend on the cut, which was tightened from a half to a quarter after the first results were seen. A
  quarter keeps a minority of the rows, next to none of them small. The f8 rows of `vllm` and `sglang` are CUTLASS kernels
  with quantisation of their own, which nothing here predicts.

### By hand, 15 November 2026

Geomean errors of further runs of the command. Unlike the tables below they are not made again with this page.

| products | A100 | H100 | H200 | B200 | L40S |
| --- | ---: | ---: | ---: | ---: | ---: |
| bf16, `--framework vllm` | 17 % | 14 % | - | 22 % | 20 % |
| bf16, `--framework sglang` | 17 % | 12 % | - | 21 % | 30 % |
| bf16, whole tables | 18 % | 10 % | - | 18 % | - |
| f8, `--quantisation 0.5` | - | 16 % | 22 % | 27 % | 57 % |
| f8, `--quantisation 1` | - | 21 % | 21 % | 22 % | 35 % |

f8 of `vllm` and `sglang`: 42 to 120 %. The cut at a quarter keeps 14 to 42 % of the f8 rows.
"""

_NOTES = {
    "gemm": """\
What these tables cannot say: they are products as PyTorch calls cuBLAS, by its heuristics, with weights that are not in
cache; XLA picks the fastest of many candidates, and often one that splits K better where `m` and `n` are small. That is
most of what is left on the H200's own rows. On B200 the smallest products take no longer than an element-wise kernel, as
if each began before the one before it had ended. On L40S cuBLAS leaves K unsplit in many small products, and large ones
run at lower clocks than the H200's energy per FLOP explains.
""",
    "attention": """\
These calls are a serving framework's: besides attention they write keys and values into a cache and read page tables,
some 10 us of every call that no prediction here holds, and small calls are mostly that. Thousands of short sequences cost
some microseconds each on an SM, which the model does not know either; nothing of it was calibrated for generation.
""",
}
_TITLES = {"gemm": "Products", "attention": "Attention"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SiliconSummary:
    """The whole of a validation."""

    rows: tuple[SiliconRow, ...] = field(repr=False)

    def groups(self, op: str | None = None) -> FigureMeasures:
        """By device, op and type; of all ops or one."""
        return compare((row.row for row in self.rows if op in (None, row.op)), lambda row: row.time)

    def sizes(self, op: str | None = None) -> FigureMeasures:
        """By device, op, type and size; of all ops or one."""
        return compare((row.by_size for row in self.rows if op in (None, row.op)), lambda row: row.time)

    @property
    def failed(self) -> list[ProgramRow]:
        """Rows without a prediction."""
        return [row.row for row in self.rows if row.row.time is None]

    def worst(self, op: str, device: str) -> list[ProgramRow]:
        """The rows of an op farthest off."""
        return farthest([row.row for row in self.rows if (row.op, row.device) == (op, device)])

    @property
    def parts(self) -> dict[str, list[str]]:
        """Ops, and the devices they were measured on, in the order they were asked for."""
        found: dict[str, dict[str, None]] = {}
        for row in self.rows:
            found.setdefault(row.op, {})[row.device] = None
        return {op: list(devices) for op, devices in found.items()}

    def to_json(self) -> dict[str, Any]:
        """The contract's last line; `sizes` and what follows are not in the contract."""
        return {
            "schema": SCHEMA,
            "kind": "silicon",
            **self.groups().to_json(),
            "sizes": {name: group.to_json() for name, group in self.sizes().groups.items()},
            "worst": {
                op: {device: [row.id for row in self.worst(op, device)] for device in devices}
                for op, devices in self.parts.items()
            },
            "sources": {row.row.group: row.source for row in self.rows},
        }


def silicon_grids(summary: SiliconSummary) -> list[TextTable]:
    """Everything the validation prints, in order."""
    found = []
    for op, devices in summary.parts.items():
        found += [extra_grid(op, summary.groups(op)), extra_grid(f"{op} by size", summary.sizes(op))]
        found += [worst_grid(f"{op}, worst rows, {device}", summary.worst(op, device)) for device in devices]
    if summary.failed:
        found.append(failed_grid(summary.failed))
    return found


def print_silicon(summary: SiliconSummary) -> None:
    """The tables on the terminal."""
    console = wide_console()
    for grid in silicon_grids(summary):
        print_grid(console, grid)


def silicon_page(summary: SiliconSummary, *, command: str, page: Path) -> str:
    """The page.

    Args:
        summary: The validation.
        command: The command that makes it, without the page.
        page: The file this is written to.
    """
    parts = [
        "# Accuracy on other GPUs\n",
        _ABOUT,
        made_by(command, page),
    ]
    for op, devices in summary.parts.items():
        parts += [f"## {_TITLES[op]}\n", markdown_table(extra_grid("", summary.groups(op))), _NOTES[op]]
        parts += [f"### {_TITLES[op]} by size\n", markdown_table(extra_grid("", summary.sizes(op)))]
        for device in devices:
            worst = markdown_table(worst_grid("", summary.worst(op, device)))
            parts += [f"### {_TITLES[op]}, worst rows, {device}\n", worst]
    if summary.failed:
        parts += ["## Failed\n", markdown_table(failed_grid(summary.failed))]
    sources = dict.fromkeys((row.row.group, row.source) for row in summary.rows)
    parts += [MEASURES, "## Tables\n", "".join(f"- {group}: {source}\n" for group, source in sources)]
    return "\n".join(parts)
