"""OTT-JAX: optimal transport by Sinkhorn's iterations, with bounded numbers of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from ott.geometry import geometry, grid, pointcloud
from ott.problems.linear import linear_problem
from ott.solvers import linear
from ott.solvers.linear import sinkhorn, sinkhorn_lr
from ott.tools import sinkhorn_divergence, soft_sort

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import spec

OTT = Catalogue("ott-jax", "library", "science")
CATALOGUES = [OTT]
CLOUDS = spec(2048, 16), spec(2048, 16)


@OTT.program("ott_sinkhorn_points_step", "step")
def _() -> Call:
    def cost(x: Any, y: Any) -> Any:
        return linear.solve(pointcloud.PointCloud(x, y, epsilon=0.1), max_iterations=50, min_iterations=50).reg_ot_cost

    return cost, CLOUDS


@OTT.program("ott_sinkhorn_gradient_train", "train")
def _() -> Call:
    def cost(x: Any, y: Any) -> Any:
        solver = partial(linear.solve, max_iterations=20, min_iterations=20)
        return solver(pointcloud.PointCloud(x, y, epsilon=0.1)).reg_ot_cost

    return jax.value_and_grad(cost), CLOUDS


@OTT.program("ott_divergence_train", "train")
def _() -> Call:
    def cost(x: Any, y: Any) -> Any:
        options = {"max_iterations": 20, "min_iterations": 20}
        return sinkhorn_divergence.sinkdiv(x, y, epsilon=0.1, solve_kwargs=options)[0]

    return jax.grad(cost), (spec(1024, 32), spec(1024, 32))


@OTT.program("ott_batched_sinkhorn_step", "step")
def _() -> Call:
    solver = sinkhorn.Sinkhorn(max_iterations=30, min_iterations=30, lse_mode=False)

    def one(costs: Any) -> Any:
        return solver(linear_problem.LinearProblem(geometry.Geometry(jnp.abs(costs), epsilon=0.1))).matrix

    return jax.vmap(one), (spec(256, 64, 64),)


@OTT.program("ott_grid_sinkhorn_step", "step")
def _() -> Call:
    def cost(a: Any, b: Any) -> Any:
        geom = grid.Grid(grid_size=(64, 64), epsilon=0.05)
        problem = linear_problem.LinearProblem(geom, jax.nn.softmax(a), jax.nn.softmax(b))
        return sinkhorn.Sinkhorn(max_iterations=20, min_iterations=20)(problem).f

    return cost, (spec(4096), spec(4096))


@OTT.program("ott_low_rank_step", "step")
def _() -> Call:
    def cost(x: Any, y: Any) -> Any:
        solver = sinkhorn_lr.LRSinkhorn(rank=10, max_iterations=10, min_iterations=10)
        return solver(linear_problem.LinearProblem(pointcloud.PointCloud(x, y))).reg_ot_cost

    return cost, CLOUDS


@OTT.program("ott_soft_sort_infer", "infer")
def _() -> Call:
    def ranked(x: Any) -> Any:
        options = {"max_iterations": 20, "min_iterations": 20}
        return soft_sort.sort(x, axis=-1, **options), soft_sort.ranks(x, axis=-1, **options)

    return ranked, (spec(64, 256),)
