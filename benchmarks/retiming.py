"""Traces of one device timed again on another, beside predictions of their programs there: the table of `docs/traces.md`.

    python benchmarks/retiming.py [--only llama3-8b]

Every job is exported on eight H100 a node and on TPU v5p, read back, and timed on other devices; three of them without the shapes
of their kernels as well. All are lowered by the model: a trace of the real compiler's program keeps that compiler's order of
collectives, which a prediction for a device that it does not compile for has not. What a prediction from a trace says about
itself (`jobs/traced/bounds.py`) is checked: a step beyond its bound ends this with exit code 1. A cell is empty where the job
does not fit a device.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from meshcast import predict  # noqa: E402
from meshcast.base.errors import InfeasibleError  # noqa: E402
from meshcast.hardware import resolve  # noqa: E402
from meshcast.jobs.traced.bounds import Bound, bound_of  # noqa: E402
from meshcast.options.options import Options  # noqa: E402
from meshcast.traces.formats import TraceRequest, write_trace  # noqa: E402

GPU, TPU = "dgx-h100", "tpu-v5p-pod"
FROM_GPU = ("dgx-h100", "dgx-a100", "dgx-h200", "dgx-b200", "mi300x-node", "tpu-v5p-pod", "tpu-v6e-pod")
FROM_TPU = ("tpu-v5p-pod", "tpu-v4-pod", "tpu-v6e-pod", "dgx-h100")
BARELY = "0.0001%"  # coarse traces list no kernels, and this coarse their sizes are what they were


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model under a plan.

    Attributes:
        model: Its name in the zoo.
        plan: How it is trained.
        settings: Its batch, and its sequences where they are not the usual ones.
        shapeless: Whether it is tried without the shapes of its kernels, too.
    """

    model: str
    plan: str
    settings: dict[str, str]
    shapeless: bool = False


JOBS = (
    Job(model="llama3-8b", plan="fsdp=8", settings={"batch": "16"}, shapeless=True),
    Job(model="llama3-8b", plan="tp=8", settings={"batch": "8"}, shapeless=True),
    Job(model="llama3-8b", plan="pp=4,tp=2", settings={"batch": "16"}, shapeless=True),
    Job(model="llama3.2-1b", plan="pp=2,dp=4,remat=full", settings={"batch": "32", "seq": "2048"}),
    Job(model="llama3.2-1b", plan="pp=4,schedule=zb-h2", settings={"batch": "8", "seq": "256", "layers": "4"}),
    Job(model="gpt3-175b", plan="tp=8,pp=8,dp=2,remat=full", settings={"batch": "32"}),
    Job(model="mixtral-8x7b", plan="ep=8,fsdp=4,remat=full", settings={"batch": "32"}),
    Job(model="qwen3-30b-a3b", plan="ep=8,pp=2,dp=2,remat=full", settings={"batch": "16", "seq": "2048"}),
    Job(model="gpt2-small", plan="dp=8", settings={"batch": "64"}),
    Job(model="resnet50", plan="dp=8", settings={"batch": "512"}),
    Job(model="vit-l16", plan="dp=8", settings={"batch": "256"}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A trace's step on a device: retimed over predicted, less one; None where the job does not fit."""

    on: str
    share: float | None
    bound: Bound

    @property
    def cell(self) -> str:
        """For a table."""
        return "" if self.share is None else f"{round(self.share, 4) + 0.0:+.2%}".replace("%", " %")


def differences(job: Job, recorded: str, places: tuple[str, ...], *, shaped: bool = True) -> Iterator[Difference]:
    """A job's trace of one device, timed on others."""
    with tempfile.TemporaryDirectory(prefix="meshcast-retiming-") as folder:
        prefix = Path(folder) / "job"
        coarse = {} if shaped else {"anonymise": True, "coarsen": BARELY}
        options = Options(on=recorded, plan=job.plan, settings=job.settings, lowering="modelled")
        request = TraceRequest(target=job.model, options=options, out=prefix, dedup=True, memory=False, **coarse)  # type: ignore[arg-type]
        write_trace("chakra", request)
        for on in places:
            bound = bound_of(shaped=shaped, recorded=resolve(recorded).device.kind, device=resolve(on).device.kind)
            try:
                options = Options(on=on, plan=job.plan, settings=job.settings, lowering="modelled")
                native = predict(job.model, options).step_time_s
            except InfeasibleError:
                native = None
            again = predict(prefix, Options(on=on, durations="estimated")).step_time_s if native else None
            yield Difference(on=on, share=again / native - 1 if again and native else None, bound=bound)


def main() -> None:
    """Prints the tables and what each bound was found to be.

    Raises:
        SystemExit: A step is beyond its bound.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="a model's name")
    asked = parser.parse_args()
    found: defaultdict[Bound, list[float]] = defaultdict(list)
    beyond = []
    for recorded, places, shaped in ((GPU, FROM_GPU, True), (TPU, FROM_TPU, True), (GPU, FROM_GPU, False)):
        print(f"\ntraces of {recorded}{'' if shaped else ', without shapes'}, timed again\n")
        print("| model | plan |" + "".join(f" {on} |" for on in places))
        print("|---|---|" + "---:|" * len(places))
        for job in JOBS:
            if asked.only not in (None, job.model) or not (shaped or job.shapeless):
                continue
            row = list(differences(job, recorded, places, shaped=shaped))
            told = ", ".join(f"{key} {value}" for key, value in job.settings.items())
            print(f"| {job.model}, {told} | {job.plan} |" + "".join(f" {each.cell} |" for each in row), flush=True)
            for each in row:
                if each.share is not None:
                    found[each.bound].append(each.share)
                    if not each.bound.holds(each.share):
                        beyond.append(f"{job.model} {job.plan} from {recorded} on {each.on}: {each.cell}")
    print()
    for bound, shares in found.items():
        print(f"{bound.words}: found {min(shares):+.2%} to {max(shares):+.2%} in {len(shares)} steps")
    if beyond:
        raise SystemExit("beyond their bounds:\n" + "\n".join(beyond))


if __name__ == "__main__":
    main()
