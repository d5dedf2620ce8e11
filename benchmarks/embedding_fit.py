"""Fits the parameters of look-ups and updates on one half of what `embeddings.py` measured, and tells the error on both.

    python benchmarks/embedding_fit.py data/measured/h200-embeddings/measurements.jsonl.gz [--fit]

The half set apart comes first. Without `--fit` the shipped parameters are judged. Regimes: `cache` where all tables lie
within L2's share, `skewed` where indices follow a Zipf law, `memory` for the rest.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from meshcast.hardware import load_device
from meshcast.jobs import BagKernels, BagParameters, Distribution, EmbeddingKernels, LookUps, Traffic, traffic_of
from meshcast.jobs.embedding_tables.traffic import CACHE_SHARE

Floats = np.ndarray[Any, np.dtype[np.float64]]
DEVICE = load_device("h200")
EVENTS_S = 1.2e-6  # that two events around one kernel see more than what it takes among others


class Cases:
    """Every measured case, its tables in one array of all, those that are alike once."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        text = gzip.decompress(content) if path.suffix == ".gz" else content
        rows = [json.loads(line) for line in text.splitlines()]
        self.rows = [row for row in rows if row["what"] == "tables" and "batched" in row]
        found, owner, times, cached = [], [], [], {}
        for number, row in enumerate(self.rows):
            for (height, pooling), count in Counter(zip(row["rows"], row["pooling"], strict=True)).items():
                key = (height, pooling, *(row[name] for name in ("zipf", "dim", "dtype", "batch", "spread")))
                if key not in cached:
                    cached[key] = traffic_of(self.work(row, height, pooling), DEVICE)
                found.append(cached[key])
                owner.append(number)
                times.append(count)
        names = [field.name for field in fields(Traffic)]
        self.traffic = Traffic(**{name: np.array([getattr(each, name) for each in found], float) for name in names})
        self.owner, self.times = np.array(owner), np.array(times, float)
        self.fitted = np.array([row["half"] == "fit" for row in self.rows])
        self.keys = np.array([4.0 if sum(row["rows"]) < 2**31 else 8.0 for row in self.rows])
        self.indices = np.array([row["indices"] for row in self.rows], float)

    @staticmethod
    def work(row: dict[str, Any], height: int, pooling: int) -> LookUps:
        """The look-ups of one table of a case."""
        law = Distribution(kind="zipf", skew=row["zipf"]) if row["zipf"] else Distribution()
        return LookUps(
            picked=law.over(height), dim=row["dim"], element_bytes=4 if row["dtype"] == "float32" else 2,
            look_ups=row["batch"] * pooling, bags=row["batch"], spread=pooling / math.sqrt(3) if row["spread"] else 0.0,
        )  # fmt: skip

    def summed(self, each: Floats) -> Floats:
        """Sums over the tables of every case."""
        return np.bincount(self.owner, weights=self.times * each, minlength=len(self.rows))

    def longest(self, each: Floats) -> Floats:
        """The largest of every case's tables."""
        found = np.zeros(len(self.rows))
        np.maximum.at(found, self.owner, each)
        return found

    def measured(self, phase: str) -> Floats:
        """Seconds of one phase."""
        return np.array([row["batched"][phase] for row in self.rows]) * 1e-3

    def bag_measured(self, phase: str) -> Floats:
        """Seconds of one phase of `embedding_bag`; of nothing where it was not measured."""
        return np.array([row.get("bag", {}).get(phase, np.nan) for row in self.rows]) * 1e-3

    @property
    def with_bags(self) -> Any:
        """Cases in which `embedding_bag` was measured."""
        return ~np.isnan(self.bag_measured("forward"))

    def regime(self) -> list[str]:
        """What every case is bound by, roughly."""
        fits = CACHE_SHARE * DEVICE.cache_bytes
        sizes = [sum(row["rows"]) * row["dim"] * (4 if row["dtype"] == "float32" else 2) for row in self.rows]
        return [
            "cache" if size < fits else "skewed" if row["zipf"] > 0.5 else "memory"
            for size, row in zip(sizes, self.rows, strict=True)
        ]


def forward(cases: Cases, kernels: EmbeddingKernels) -> Floats:
    """Seconds of every case's look-ups."""
    total = cases.summed(kernels.forward(cases.traffic))
    return np.asarray(kernels.forward_call(total, cases.longest(kernels.forward_block(cases.traffic))))


def backward(cases: Cases, kernels: EmbeddingKernels) -> Floats:
    """Seconds of every case's update."""
    total = cases.summed(kernels.backward(cases.traffic, key_bytes=cases.keys[cases.owner]))
    chain = cases.longest(kernels.backward_chain(cases.traffic))
    return np.asarray(kernels.backward_call(total, chain, cases.indices))


def fitted(
    cases: Cases, kernels: EmbeddingKernels, part: str, model: Callable[..., Floats], phase: str
) -> EmbeddingKernels:
    """The kernels with the parameters of one part fitted: least squares of log ratios, those far off counted less."""
    names, start = zip(*asdict(getattr(kernels, part)).items(), strict=True)
    measured = cases.measured(phase)

    def built(logs: Floats) -> EmbeddingKernels:
        return replace(kernels, **{part: type(getattr(kernels, part))(**dict(zip(names, np.exp(logs), strict=True)))})

    def off(logs: Floats) -> Floats:
        return np.asarray(np.log(model(cases, built(logs)) / measured)[cases.fitted])

    most = [math.log({"memory_share": 0.95, "sort_share": 0.95, "alone": 1.0}.get(name, 1e9)) for name in names]
    least = [math.log({"norm": 1.0, "block_norm": 1.0}.get(name, 1e-12)) for name in names]
    begin = np.clip(np.log(start), np.array(least) + 1e-6, np.array(most) - 1e-6)
    found = least_squares(off, begin, loss="soft_l1", f_scale=0.1, max_nfev=40, bounds=(least, most))
    return built(found.x)


def bag_phase(cases: Cases, bags: BagKernels, phase: str) -> Floats:
    """Seconds of every case's `embedding_bag`, table by table."""
    return EVENTS_S + cases.summed(np.asarray((bags.forward if phase == "forward" else bags.picked)(cases.traffic)))


def fitted_bags(cases: Cases, bags: BagKernels) -> BagKernels:
    """The bags' parameters, fitted to both phases of those cases that have them; atomics are left as they are."""
    names, start = zip(*asdict(bags.parameters).items(), strict=True)
    chosen = cases.fitted & cases.with_bags

    def built(logs: Floats) -> BagKernels:
        return replace(bags, parameters=BagParameters(**dict(zip(names, np.exp(logs), strict=True))))

    def off(logs: Floats) -> Floats:
        each = [
            np.log(bag_phase(cases, built(logs), phase) / cases.bag_measured(phase))
            for phase in ("forward", "backward")
        ]
        return np.concatenate([part[chosen] for part in each])

    found = least_squares(off, np.log(start), loss="soft_l1", f_scale=0.1, max_nfev=40)
    return built(found.x)


def told(name: str, ratio: Floats, cases: Cases, among: Any = True) -> None:
    """Errors of both halves, the one set apart first, by regime."""
    off = np.log(ratio)
    regimes = np.array(cases.regime())
    for half, chosen in (("apart", ~cases.fitted & among), ("fit", cases.fitted & among)):
        for regime in ("all", "cache", "memory", "skewed"):
            rows = off[chosen & ((regimes == regime) | (regime == "all"))]
            error, bias = np.expm1(np.abs(rows).mean()), np.expm1(rows.mean())
            worst = np.expm1(np.percentile(np.abs(rows), 95))
            errors = f"geomean {error:6.1%}  bias {bias:+6.1%}  95% within {worst:6.1%}"
            print(f"{name:9} {half:6} {regime:7} {len(rows):5} rows  {errors}")


def main() -> None:
    """Reads, fits where asked, tells."""
    cases = Cases(Path(sys.argv[1]))
    kernels = EmbeddingKernels(device=DEVICE, by_element=True)
    bags = BagKernels(kernels=kernels)
    if "--fit" in sys.argv:
        kernels = fitted(cases, kernels, "look_up", forward, "forward")
        kernels = fitted(cases, kernels, "updating", backward, "backward")
        bags = fitted_bags(cases, bags)
        for part in (kernels.look_up, kernels.updating, bags.parameters):
            print("\n".join(f"    {name}: float = {value:.4g}" for name, value in asdict(part).items()), "\n")
    told("look-ups", forward(cases, kernels) / cases.measured("forward"), cases)
    told("updates", backward(cases, kernels) / cases.measured("backward"), cases)
    for phase in ("forward", "backward"):
        told(f"bags {phase}", bag_phase(cases, bags, phase) / cases.bag_measured(phase), cases, cases.with_bags)


if __name__ == "__main__":
    main()
