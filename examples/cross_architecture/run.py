"""Compares the example's programs over devices and fidelities, and writes the page about it.

    python examples/cross_architecture/run.py

Answers are kept in the run folder, cell by cell: interrupted or run again, it works out only what is missing, a fidelity that
was installed since, say. All but `compiled` takes a minute of CPU time; there nearly all goes to real compilers, once for every
program and device: what they made is kept by content, whatever else changes, and `--compile-limit` says how long one may take.
What libtpu made of the training steps is in `compiled/`, and is put into the user's cache first.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kept import COMPILE_LIMIT_S, keep_compiled
from programs import FOLDER, PROGRAMS

from meshcast import Comparison, compare
from meshcast.cli.patience import patience
from meshcast.evidence.comparison.agreement import Agreement
from meshcast.evidence.comparison.markdown import comparison_page
from meshcast.results.printer import percent

ROOT = Path(__file__).resolve().parents[2]
DEVICES = ("tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "h200", "h100-sxm", "a100-sxm-80gb", "b200")
PUBLISHED = "cross-architecture-published.md"  # of published.py, whose last section has the tool's own errors
BESIDE = "## Beside the tool's own predictions"
INTRODUCTION = """\
# The same programs across architectures and fidelities

Does the order of designs survive a change of fidelity? Six programs, one StableHLO file each
(`examples/cross_architecture/programs/`), on {devices} devices, in every fidelity that was installed when this page was made
by `make cross-architecture`:

| program | what it is |
|---|---|
| `gemm-1-chip` | a bf16 product of 8192 x 8192 matrices on one chip |
| `gemm-8-all-reduce` | 16384 x 16384 over 8 chips, the summed dimension split: partial sums are added up over all chips |
| `gemm-8-all-gather` | 16384 x 16384 over 8 chips, rows and weights split: weights are gathered before they are used |
| `resnet50-train-8` | a training step of ResNet-50, 512 images, data-parallel over 8 chips |
| `gpt2-train-8` | a training step of GPT-2 124M, 64 sequences of 1024, data-parallel over 8 chips |
| `llama3-8b-train-8` | a training step of Llama 3 8B, 8 sequences of 4096, FSDP over 8 chips, recomputing activations |

By hand, and with a run folder of your own:

    meshcast compare examples/cross_architecture/programs/*.mlir.gz --fidelity all -o RUN \\
      --on {on}

`simulated` plays thread blocks on a GPU's SMs ([gpu-simulator.md](gpu-simulator.md)) and folds on a TPU's arrays
([systolic.md](systolic.md)); `profiled` stands on measurements, which there are of an H200's kernels and of single ops of
TPU v4 and v6e ([tpu.md](tpu.md)); on other devices they are carried over from the nearest of these
([calibration.md](calibration.md)).

Ratios and orders are within one fidelity. A time with a star is mostly another fidelity's that stood in, and has no part in
orders and correlations. Of a device whose compiler is not installed, or of whose maker nothing was measured, finer fidelities
say nothing: their absence is listed at the end, and no other fidelity is put in their place. `compiled` on GPUs times the
compiler's kernels by the best there is for each device: by measured kernels on the H200, by the model on the others; devices
that are nearly equal may change places by that alone.

## What it shows

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fidelity", default="all", help="fidelities with commas between them")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "cross-architecture", help="the run folder")
    parser.add_argument(
        "--compile-limit", type=float, default=COMPILE_LIMIT_S, help="seconds that compiling one program may take"
    )
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where the page and its plot go")
    asked = parser.parse_args()
    asked.docs.mkdir(parents=True, exist_ok=True)  # before the work, which takes long
    keep_compiled()
    programs = [FOLDER / f"{name}.mlir.gz" for name in PROGRAMS]
    comparison = compare(
        programs, on=DEVICES, fidelities=asked.fidelity, folder=asked.folder, told=patience,
        compile_limit=asked.compile_limit,
    )  # fmt: skip
    plot = "cross-architecture.svg"
    (asked.docs / plot).write_bytes((asked.folder / "plot.svg").read_bytes())
    intro = INTRODUCTION.format(devices=len(DEVICES), on=",".join(DEVICES))
    findings = "".join(f"- {sentence}\n" for sentence in findings_of(comparison))
    published = next(each for folder in (asked.docs, ROOT / "docs") if (each := folder / PUBLISHED).exists())
    page = intro + findings + "\n" + comparison_page(comparison, plot=plot) + beside_published(published)
    (asked.docs / "cross-architecture.md").write_text(page, encoding="utf-8")
    print(
        f"{comparison}\n\nwrote {asked.docs / 'cross-architecture.md'} and {asked.docs / plot}; run folder {asked.folder}"
    )


def beside_published(page: Path) -> str:
    """What the other page has of published steps: errors of each fidelity, and the tool's own errors beside ours."""
    text = page.read_text(encoding="utf-8")
    ours = text[text.index("| fidelity | runs | geomean error |") : text.index(BESIDE)]
    said = (
        "\n## Beside published training steps\n\n"
        "Nobody has measured the six programs above on all of these devices. Of training steps that were measured, on GPUs and\n"
        f"TPUs, this is how far each fidelity is off ([run by run]({PUBLISHED})):\n\n"
    )
    return said + ours + text[text.index(BESIDE) :]


def findings_of(comparison: Comparison) -> list[str]:
    """What the tables say, in sentences."""
    pairs = [pair for pair in comparison.agreements if pair.cells > 1]
    return [*_winners(comparison), *map(_agreement, pairs), *_communication(comparison), *_infeasible(comparison)]


def _winners(comparison: Comparison) -> list[str]:
    """Whether the fastest device is the same in all fidelities that have several to choose from."""
    orders = {
        target: {f: order for f in comparison.fidelities if len(order := comparison.order(target, f)) > 1}
        for target in comparison.targets
    }
    fastest = {target: {order[0][0] for order in found.values()} for target, found in orders.items()}
    same = [target for target, devices in fastest.items() if len(devices) == 1]
    said = [f"The fastest device is the same in every fidelity for {len(same)} of {len(fastest)} programs."]
    for target, devices in fastest.items():
        if len(devices) > 1:
            names = ", ".join(f"{order[0][0]} in {fidelity}" for fidelity, order in orders[target].items())
            said.append(f"For `{target}` it is {names}.")
    return said


def _agreement(pair: Agreement) -> str:
    """One pair of fidelities: level, order, and the plainest swap."""
    first, second = pair.fidelities
    said = (
        f"`{first}` and `{second}` over {pair.cells} cells: {first}'s times are {pair.ratio:.2f} of {second}'s, single "
        f"ratios off by {pair.spread:.2f}x"
    )
    if pair.spearman is not None:
        said += f"; Spearman {pair.spearman:.3f}, Kendall {pair.kendall:.3f}"
    if pair.within is not None:
        said += f", {pair.within:.3f} within programs"
    if not pair.device_pairs:
        return said + ". They have no two devices in common."
    said += f"; {pair.device_pairs - len(pair.swaps)} of {pair.device_pairs} pairs of devices keep their order."
    if pair.swaps:
        swap = pair.swaps[0]
        said += (
            f" The plainest swap: on `{swap.target}` {swap.first} leads {swap.second} by {percent(swap.leads[0] - 1)} in "
            f"{first} and trails by {percent(swap.leads[1] - 1)} in {second}."
        )
    return said


def _communication(comparison: Comparison) -> list[str]:
    """How much of the distributed products is communication that nothing hides, by the finest answers."""
    said = []
    for target in comparison.targets:
        shares = {}
        for on in comparison.on:
            finest = comparison.finest(target, on)
            if finest is not None and finest.prediction is not None and finest.step_time_s:
                exposed = finest.prediction["breakdown_s"]["exposed_communication"]
                shares[on] = exposed / finest.step_time_s
        if shares and max(shares.values()) > 0.05:
            least, most = min(shares, key=lambda on: shares[on]), max(shares, key=lambda on: shares[on])
            said.append(
                f"Exposed communication takes {shares[least]:.0%} of `{target}` on {least} and {shares[most]:.0%} on {most}, "
                "by the finest fidelity that answers on each."
            )
    return said


def _infeasible(comparison: Comparison) -> list[str]:
    found = {}
    for cell in comparison.cells:
        if cell.status == "infeasible":
            found.setdefault((cell.ask.target, cell.ask.on, cell.reason), []).append(cell.ask.fidelity)
    return [
        f"`{target}` does not run on {on} ({', '.join(fidelities)}): {reason}."
        for (target, on, reason), fidelities in found.items()
    ]


if __name__ == "__main__":
    main()
