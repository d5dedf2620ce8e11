"""What was calibrated on the TPU compiler's cycles and on published single-chip times: `data/tpu.toml`.

All in the machine's own units (cycles, shares of a data-sheet rate), so that a generation's file alone carries them over.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources

from meshcast.estimate import calibration as shared
from meshcast.estimate.calibration import about

SCHEMA = "meshcast.tpu-parameters/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Costs in cycles and efficiencies as shares; a vector is one register of 32-bit elements (8 x 128)."""

    kernel_cycles: float = about("a kernel's fixed cost: filling and draining its pipeline", 1800.0)
    hbm_share: float = about("share of the memory's bandwidth that kernels reach", 0.76)
    window_bytes: float = about("bytes per core that one step of a kernel's pipeline moves: steps overlap", 6e6)
    vmem_share: float = about("share of VMEM that holds values between kernels; the rest is the kernels' windows", 0.6)
    move_cycles: float = about("loading or storing one vector between VMEM and registers", 1.1)
    op_cycles: float = about("one arithmetic op on one vector, of one ALU", 2.0)
    function_cycles: float = about("one transcendental function on one vector", 1.3)
    shuffle_cycles: float = about("moving one vector's elements across lanes or sublanes: transposes, relayouts", 6.0)
    array_loss: float = about("cycles of the systolic arrays beyond their passes, as a share", 0.07)
    load_rows: float = about("rows that loading one tile of weights takes the place of", 140.0)
    result_cycles: float = about("taking one vector of a product's results out and storing it", 3.0)
    pack_cycles: float = about("gathering one vector of windows where channels are too few to fill sublanes", 5.0)
    depthwise_cycles: float = about("one vector of multiply-adds of a depthwise convolution", 2.3)
    attention_share: float = about("share of the arrays' rate that fused attention's products reach", 0.45)
    gather_cycles: float = about("one picked slice of a gather: its address and the start of its copy", 60.0)
    scatter_cycles: float = about("one updated slice of a scatter, in turn", 120.0)
    sort_cycles: float = about("one vector and one compare-exchange stage of a sort", 6.0)


Calibration = shared.Calibration[Parameters]


def parse_calibration(text: str, where: str = "tpu.toml") -> Calibration:
    """Reads `tpu.toml`; parameters it leaves out keep their start values.

    Raises:
        InputError: unknown schema, unknown or non-positive parameter.
    """
    return shared.parse(text, Parameters, SCHEMA, where)


@functools.cache
def shipped_calibration() -> Calibration:
    """The calibration that comes with the package."""
    path = resources.files("meshcast.estimate").joinpath("data/tpu.toml")
    return parse_calibration(path.read_text())
