"""jaxlie: rigid transforms: batches of exponentials and logarithms, registration, pose graphs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jaxlie

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import integers, spec

JAXLIE = Catalogue("jaxlie", "library", "science")
CATALOGUES = [JAXLIE]


@JAXLIE.program("jaxlie_exp_log_batched", "infer")
def _() -> Call:
    def both(tangents: Any) -> Any:
        poses = jaxlie.SE3.exp(tangents)
        return (poses @ poses.inverse()).log(), poses.adjoint(), poses.as_matrix()

    return both, (spec(1048576, 6),)


@JAXLIE.program("jaxlie_pose_graph_train", "train")
def _() -> Call:
    def cost(tangents: Any, first: Any, second: Any, between: Any) -> Any:
        poses = jaxlie.SE3.exp(tangents)
        left, right = jaxlie.SE3(poses.wxyz_xyz[first]), jaxlie.SE3(poses.wxyz_xyz[second])
        errors = (jaxlie.SE3.exp(between).inverse() @ left.inverse() @ right).log()
        return jnp.sum(errors**2)

    places = integers(65536, 262144), integers(65536, 262144)
    return jax.value_and_grad(cost), (spec(65536, 6), *places, spec(262144, 6))


@JAXLIE.program("jaxlie_registration_step", "step")
def _() -> Call:
    def aligned(tangent: Any, points: Any, targets: Any) -> Any:
        def residuals(tangent: Any) -> Any:
            return (jax.vmap(jaxlie.SE3.exp(tangent).apply)(points) - targets).ravel()

        def turn(tangent: Any, _: Any) -> Any:
            errors, slopes = residuals(tangent), jax.jacfwd(residuals)(tangent)
            return tangent - jnp.linalg.solve(slopes.T @ slopes + 1e-6 * jnp.eye(6), slopes.T @ errors), None

        return jax.lax.scan(turn, tangent, length=10)[0]

    return aligned, (spec(6), spec(65536, 3), spec(65536, 3))


@JAXLIE.program("jaxlie_so3_kinematics_infer", "infer")
def _() -> Call:
    def chained(tangents: Any) -> Any:
        def turn(pose: Any, tangent: Any) -> Any:
            pose = pose @ jaxlie.SE3.exp(tangent)
            return pose, pose.translation()

        return jax.lax.scan(turn, jaxlie.SE3.identity((tangents.shape[1],)), tangents)[1]

    return chained, (spec(32, 65536, 6),)
