"""SCICO: iterations of imaging solvers: deconvolution, denoising, tomography."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from scico import functional, linop, loss, metric
from scico.optimize import PGM, AcceleratedPGM
from scico.optimize.admm import ADMM, LinearSubproblemSolver

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import spec

SCICO = Catalogue("scico", "library", "science")
CATALOGUES = [SCICO]
IMAGE = (512, 512)


@SCICO.program("scico_total_variation_admm_step", "step")
def _() -> Call:
    def run(y: Any) -> Any:
        gradient = linop.FiniteDifference(IMAGE, append=0)
        solver = ADMM(
            f=loss.SquaredL2Loss(y),
            g_list=[0.1 * functional.L21Norm()],
            C_list=[gradient],
            rho_list=[1.0],
            x0=y,
            maxiter=4,
            subproblem_solver=LinearSubproblemSolver(cg_function="jax", cg_kwargs={"tol": 1e-3, "maxiter": 10}),
        )
        for _ in range(4):
            solver.step()
        return solver.x

    return run, (spec(*IMAGE),)


@SCICO.program("scico_deconvolution_pgm_step", "step")
def _() -> Call:
    def run(y: Any, kernel: Any) -> Any:
        blur = linop.CircularConvolve(kernel, IMAGE)
        solver = AcceleratedPGM(
            f=loss.SquaredL2Loss(y, A=blur), g=0.01 * functional.L1Norm(), L0=10.0, x0=y, maxiter=10
        )
        for _ in range(10):
            solver.step()
        return solver.x

    return run, (spec(*IMAGE), spec(11, 11))


@SCICO.program("scico_convolution_adjoint_infer", "infer")
def _() -> Call:
    def run(x: Any, kernel: Any) -> Any:
        blur = linop.Convolve(kernel, (1024, 1024), mode="same")
        return blur.adj(blur(x))

    return run, (spec(1024, 1024), spec(15, 15))


@SCICO.program("scico_dictionary_pgm_step", "step")
def _() -> Call:
    def run(d: Any, y: Any) -> Any:
        solver = PGM(
            f=loss.SquaredL2Loss(y, A=linop.MatrixOperator(d, input_cols=512)),
            g=functional.L1MinusL2Norm(),
            L0=100.0,
            x0=jnp.zeros((1024, 512)),
        )
        for _ in range(10):
            solver.step()
        return solver.x

    return run, (spec(256, 1024), spec(256, 512))


@SCICO.program("scico_proximal_operators_infer", "infer")
def _() -> Call:
    def run(x: Any) -> Any:
        return (
            functional.L1Norm().prox(x, 0.1),
            functional.L2Norm().prox(x, 0.1),
            functional.HuberNorm().prox(x, 0.1),
            functional.NuclearNorm().prox(x[0], 0.1),
            functional.NonNegativeIndicator().prox(x),
        )

    return run, (spec(64, 256, 256),)


@SCICO.program("scico_metrics_infer", "infer", group="vision")
def _() -> Call:
    return jax.vmap(lambda x, y: (metric.snr(x, y), metric.mse(x, y), metric.isnr(x, y, y))), (
        spec(64, 512, 512),
        spec(64, 512, 512),
    )
