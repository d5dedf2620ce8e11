"""MuJoCo MJX: steps of batched models, forward and backward, from models written here."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
from mujoco import mjx

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import abstract, spec

MJX = Catalogue("mujoco-mjx", "library", "science")
CATALOGUES = [MJX]
OPTIONS = '<option timestep="0.005" solver="{solver}" iterations="4" ls_iterations="4"/>'


def chain(links: int, solver: str = "CG") -> str:
    """A hanging chain of capsules with hinges and motors."""
    body = ""
    for number in reversed(range(links)):
        capsule = '<geom type="capsule" size="0.03" fromto="0 0 0 0 0 -0.2" contype="0" conaffinity="0"/>'
        joint = f'<joint name="j{number}" type="hinge" axis="{number % 2} {(number + 1) % 2} 0" damping="0.1"/>'
        body = f'<body pos="0 0 {-0.2 if number else 2}">{joint}{capsule}{body}</body>'
    motors = "".join(f'<motor joint="j{number}"/>' for number in range(links))
    return f"<mujoco>{OPTIONS.format(solver=solver)}<worldbody>{body}</worldbody><actuator>{motors}</actuator></mujoco>"


def pile(count: int, shape: str, solver: str) -> str:
    """Free bodies that fall on a plane and on each other."""
    geom = f'<freejoint/><geom type="{shape}" size="0.1 0.1 0.1"/>'
    places = [f"{0.3 * (n % 3)} {0.3 * (n // 3 % 3)} {0.4 + 0.3 * (n // 9)}" for n in range(count)]
    bodies = "".join(f'<body pos="{place}">{geom}</body>' for place in places)
    plane = '<geom type="plane" size="5 5 0.1"/>'
    return f"<mujoco>{OPTIONS.format(solver=solver)}<worldbody>{plane}{bodies}</worldbody></mujoco>"


def loaded(xml: str, count: int) -> tuple[Any, Any]:
    """A model on the device, and the shapes of the data of so many worlds."""
    model = mjx.put_model(mujoco.MjModel.from_xml_string(xml))
    one = abstract(jax.eval_shape(lambda: mjx.make_data(model)))
    return model, jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype), one)


def stepped(xml: str, count: int, turns: int) -> Call:
    """Some steps of many worlds."""
    model, data = loaded(xml, count)

    def run(data: Any) -> Any:
        return jax.lax.fori_loop(0, turns, lambda _, data: jax.vmap(partial(mjx.step, model))(data), data)

    return run, (data,)


MJX.add("mjx_chain_cg_step", partial(stepped, chain(12), 1024, 1), "step")
MJX.add("mjx_chain_newton_step", partial(stepped, chain(6, "Newton"), 2048, 2), "step")
MJX.add("mjx_spheres_newton_step", partial(stepped, pile(9, "sphere", "Newton"), 512, 1), "step")
MJX.add("mjx_capsules_cg_step", partial(stepped, pile(6, "capsule", "CG"), 512, 1), "step")


@MJX.program("mjx_kinematics_gradient", "train")
def _() -> Call:
    model, data = loaded(chain(16), 1024)

    def loss(places: Any, data: Any, targets: Any) -> Any:
        def tip(place: Any, data: Any) -> Any:
            return mjx.kinematics(model, data.replace(qpos=place)).xpos[-1]

        return jnp.square(jax.vmap(tip)(places, data) - targets).sum()

    return jax.grad(loss), (spec(1024, 16), data, spec(1024, 3))


@MJX.program("mjx_mass_matrix_infer", "infer")
def _() -> Call:
    model, data = loaded(chain(16), 2048)

    def matrices(data: Any) -> Any:
        def one(data: Any) -> Any:
            data = mjx.crb(model, mjx.com_pos(model, mjx.kinematics(model, data)))
            return mjx.full_m(model, mjx.factor_m(model, data))

        return jax.vmap(one)(data)

    return matrices, (data,)
