"""What was calibrated on the TPU compiler's cycles and on published single-chip times: `data/tpu.toml`.

All in the machine's own units (cycles, shares of a data-sheet rate), so that a generation's file alone carries them over.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources

from meshcast.estimate import calibration as shared
from meshcast.estimate.calibration import about

TPU_SCHEMA = "meshcast.tpu-parameters/1"
TPU_COMPILER = "compiled"  # among the intervals by kernel kind, that of the compiler's own times

# Where parameters that no fit moves come from; the others are fitted to the compiler's cycles (`evidence.fits.tpu`).
SWEEPS = "cocossim's v6e sweeps"
VALIDATION = "SCALE-Sim-validation on v4"
MICROBENCHMARKS = "AI-Hypercomputer's microbenchmarks of TPU7x"
XLA = "scoped VMEM of products that libtpu 0.0.42.1 compiled for v6e"
# Cycles a vector beyond the memory's at its nominal rate: 0.8 (v6e) to 2.6 (v5p) in f32; in bf16 5.7 (v5p) to 8.8 (v3) more.
SCORES = "attention's scores, 14 x 4096 x 4096 x 128 in f32 and bf16, that libtpu 0.0.42.1 compiled for v3 to v6e"
SPLASH = "bundles of splash attention that libtpu 0.0.42.1 compiled for v6e"
UNCALIBRATED = "start value, not calibrated"
UNRECORDED = "no published time behind it"


@dataclass(frozen=True, slots=True, kw_only=True)
class TpuParameters:
    """Costs in cycles and efficiencies as shares; a vector is one register of 32-bit elements (8 x 128).

    Each with its meaning, its start value and, where it is set by hand, its source.
    """

    kernel_cycles: float = about("a kernel's fixed cost where everything lies in VMEM", 16.0, SWEEPS)
    counter_cycles: float = about("a turn's counter, flag or index on the scalar core", 4.0, SWEEPS)
    copy_ns: float = about(
        "nanoseconds, the memory's own: a kernel's first copy from its start to its arrival; likewise its last one out",
        430.0,
        f"{SWEEPS} (368), single ops of {VALIDATION} (430)",
    )
    fill_cycles: float = about("a product's first tiles in and last results out", 300.0, SWEEPS)
    scalar_cycles: float = about(
        "a sum's way across lanes and sublanes to a single element, and on to the scalar core", 3000.0, SWEEPS
    )
    lane_cycles: float = about(
        "summing one vector across its lanes: of the rows of a reduction, one in each sublane", 12.0, VALIDATION
    )
    hbm_share: float = about("share of the memory's bandwidth that copies reach", 0.76, SWEEPS)
    copy_share: float = about(
        "the same where a kernel does nothing but copy from memory to memory", 0.85, MICROBENCHMARKS
    )
    megacore_share: float = about(
        "what is left of it where two cores share a memory and a kernel (v4, v5p)", 0.8, UNRECORDED
    )
    vmem_share: float = about(
        "share of VMEM that holds values between kernels; the rest is the kernels' windows", 0.6, UNCALIBRATED
    )
    block_bytes: float = about(
        "VMEM that one product's blocks may take: its compiled products take up to 24 MiB", 25165824.0, XLA
    )
    window_bytes: float = about(
        "bytes per core that one step of a product's pipeline moves: steps overlap", 2.5e6, SWEEPS
    )
    window_vectors: float = about(
        "vectors per core that one step of a loop's pipeline takes: steps overlap", 1024.0, SWEEPS
    )
    pipelined_vectors: float = about(
        "the same of a loop that is longer than one such step and finds all of its elements in VMEM", 64.0, SWEEPS
    )
    move_cycles: float = about(
        "loading or storing one vector of 32-bit elements between VMEM and registers", 1.2, SWEEPS
    )
    op_cycles: float = about("one arithmetic op on one vector, of one ALU", 1.3, SWEEPS)
    function_cycles: float = about("one transcendental function on one vector", 1.3, SWEEPS)
    half_in_cycles: float = about("turning one vector of f16, which no unit computes in, into f32", 3.8, VALIDATION)
    half_out_cycles: float = about("turning one vector of f32 back into f16", 11.5, VALIDATION)
    half_side: float = about(
        "rows or columns of a product's result that share one such turn of its operands", 512.0, VALIDATION
    )
    shuffle_cycles: float = about(
        "moving one vector's elements across lanes or sublanes: transposes, relayouts", 6.0, UNCALIBRATED
    )
    array_loss: float = about("cycles of the systolic arrays beyond their passes, as a share", 0.03)
    weight_bytes: float = about("bytes of weights that a core's arrays load in a cycle", 3500.0, SWEEPS)
    result_cycles: float = about("taking one vector of a product's results out and storing it", 1.8, SCORES)
    narrow_cycles: float = about("packing one vector of a product's results into a narrower type", 2.8)
    widening_cycles: float = about("the same where vector units have no bf16: v5p and before", 7.6, SCORES)
    fused_cycles: float = about("one arithmetic op that is fused into a product, on one vector, of one ALU", 1.1)
    pack_cycles: float = about(
        "gathering one vector of windows where channels are too few to fill sublanes; half where the batch fills lanes",
        3.0,
        UNRECORDED,
    )
    depthwise_cycles: float = about("one vector of multiply-adds of a depthwise convolution", 2.3)
    call_share: float = about("share of the arrays that a hand-written kernel's products fill", 0.45, SWEEPS)
    softmax_share: float = about(
        "share of fused attention's softmax on the vector units that its products do not hide", 0.45, SPLASH
    )
    step_cycles: float = about("one step of fused attention's grid of blocks, computed or skipped", 350.0, SWEEPS)
    page_cycles: float = about("one page of a paged cache: its address and the start of its copy", 38.0, SWEEPS)
    gather_cycles: float = about(
        "one picked slice of a gather: its address and the start of its copy", 60.0, UNCALIBRATED
    )
    scatter_cycles: float = about("one updated slice of a scatter, in turn", 120.0, UNCALIBRATED)
    sort_cycles: float = about("one vector and one compare-exchange stage of a sort", 6.0, UNCALIBRATED)


TpuCalibration = shared.Calibration[TpuParameters]


def parse_calibration(text: str, where: str = "tpu.toml") -> TpuCalibration:
    """Reads `tpu.toml`; parameters it leaves out keep their start values.

    Raises:
        InputError: unknown schema, unknown or non-positive parameter.
    """
    return shared.parse(text, TpuParameters, TPU_SCHEMA, where)


@functools.cache
def shipped_tpu_calibration() -> TpuCalibration:
    """The calibration that comes with the package."""
    path = resources.files("meshcast.estimate").joinpath("data/tpu.toml")
    return parse_calibration(path.read_text())
