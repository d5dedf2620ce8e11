"""What was calibrated once on an H200 and is carried to other GPUs by their data-sheet ratios: `data/gpu.toml`."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources

from meshcast.estimate import calibration as shared
from meshcast.estimate.calibration import about as _about

GPU_SCHEMA = "meshcast.gpu-parameters/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuParameters:
    """Efficiencies and costs in the machine's own units: shares of a data-sheet peak, cycles, instructions."""

    launch_share: float = _about("smallest kernel, as a share of the device's launch latency", 0.725)
    blocks_per_sm_cycle: float = _about("thread blocks that the hardware starts per SM and cycle", 0.0063)
    hbm_read: float = _about("share of the memory's bandwidth that pure reads reach", 0.945)
    hbm_write_loss: float = _about("what is lost of it, per share of writes in the traffic", 0.09)
    cache_share: float = _about("share of the catalogue's L2 bandwidth that kernels reach", 1.0)
    sector_share: float = _about("share of it that threads reach which fetch a sector each", 0.64)
    cache_full: float = _about("footprint up to which everything stays in L2, as a share of its capacity", 0.55)
    cache_none: float = _about("footprint above which nothing does", 0.85)
    cache_written: float = _about("room that a written byte takes there, in read bytes", 1.5)
    overlap: float = _about("p of the p-norm that joins times that overlap; large: the longest alone counts", 4.0)
    loop_instructions: float = _about("instructions per arithmetic op of a loop fusion", 1.25)
    loop_transcendental: float = _about("instructions of a function that the table of functions lacks", 25.0)
    chain_cycles: float = _about("an instruction that waits for the one before it, in cycles", 2.5)
    wait_cycles: float = _about("a load that a thread of a loop waits for, in a program, in cycles", 550.0)
    step_instructions: float = _about(
        "instructions of one step of a sum in a thread's loop: a load and its address", 10.5
    )
    step_cycles: float = _about("such a step's latency, in cycles", 62.0)
    swap_cycles: float = _about("a swap of two places by a thread that waits for the one before it, in cycles", 180.0)
    swap_lane_cycles: float = _about("and for every other thread of its warp that swaps elsewhere", 28.0)
    row_instructions: float = _about(
        "instructions per op of a fused row normalisation; 7 to 14 by the tile XLA picks", 10.0
    )
    row_start: float = _about("rows' fixed cost in a fused normalisation, as elements", 100.0)
    row_issue: float = _about("instructions per op of a row in Triton's tiles", 2.2)
    row_function: float = _about("instructions of a function there", 9.0)
    row_overlap: float = _about(
        "p of the p-norm that joins arithmetic and memory of programs that hold whole rows", 2.0
    )
    row_exchange_cycles: float = _about("an exchange between the warps of such a program, in cycles", 480.0)
    row_turn_cycles: float = _about(
        "an element that is held in two orders of threads, turned in shared memory, in cycles", 0.13
    )
    row_turned_cycles: float = _about("and every row of them, in cycles", 210.0)
    row_spilled: float = _about("times that a value which registers do not hold is moved through L2", 0.6)
    reduction_instructions: float = _about(
        "instructions per op of a reduction: loads, exchanges and bounds along with it", 3.3
    )
    narrow_row_instructions: float = _about(
        "instructions of a reduction for every row of at most 128 f32 numbers, at the most", 560.0
    )
    reduction_cycles: float = _about("cycles from a reduction's last load to its result", 700.0)
    column_step_cycles: float = _about("one step of a column reduction's loop: a load's latency, in cycles", 150.0)
    column_load_cycles: float = _about(
        "a load of such a step from memory that all SMs ask, over those a warp has under way, in cycles", 220.0
    )
    column_chain_cycles: float = _about(
        "an element of an array that a column reduction keeps, from its loads to its store, in cycles", 104.0
    )
    column_wait_cycles: float = _about(
        "a load of such a step that waits for the stores of the last one, in cycles", 260.0
    )
    column_kept_cycles: float = _about(
        "a step that writes what it reads, for every part of a sector, where all SMs ask memory, in cycles", 450.0
    )
    column_result_cycles: float = _about("a further result's way through shared memory, in cycles", 2000.0)
    few_turn_cycles: float = _about("a turn of a loop over few columns, in cycles", 45.0)
    few_kept_cycles: float = _about(
        "the same where it writes what it reads, and waits for every load, over the elements of a thread, in cycles",
        360.0,
    )
    column_rest_cycles: float = _about(
        "a column reduction's last step where it is not a full one, in cycles; from batch norms", 2000.0
    )
    tile_instructions: float = _about("instructions per op of a fusion in Triton's tiles", 5.0)
    tile_moved: float = _about("instructions per element that changes its place inside a tile", 35.0)
    tiled_issue: float = _about("share of the issue rate of fusions that end with transposes through tiles", 0.5)
    tiled_shifted: float = _about(
        "instructions by which such a result finds its places where sides are powers of two", 6.0
    )
    tiled_found: float = _about("instructions by which such a result finds its places elsewhere", 25.0)
    transpose_loss: float = _about("bandwidth lost by tiles through shared memory", 0.1)
    narrow_transpose_loss: float = _about(
        "the same where a tile's rows are half a line, elements of a byte or less", 0.3
    )
    byte_transpose: float = _about("1-byte elements transposed before a tuned product per SM and cycle", 0.6)
    packed_tile_cycles: float = _about("cycles per element of such a tile, from its loads to its stores", 0.3)
    packed_transpose: float = _about("elements of a byte or less transposed through tiles per SM and cycle", 8.0)
    gather_instructions: float = _about("instructions per gathered element that is summed on the way", 74.0)
    atomics_per_sm_cycle: float = _about("4-byte atomic updates per SM and cycle", 3.1)
    compare_swap_cost: float = _about("an atomic on 2-byte types (compare and swap), in 4-byte atomics", 4.0)
    hot_line_cycles: float = _about("a line's turn in its L2 slice for one warp's atomic updates, in cycles", 5.0)
    line_visit_cycles: float = _about("an update's visit to a line that it shares with others, in cycles", 7.5)
    swap_round_cycles: float = _about(
        "a round of updates that compare and swap one word: a load and a swap, in cycles", 1000.0
    )
    swap_word_cycles: float = _about("more of such a round for every word that a warp has in the line, in cycles", 80.0)
    swap_visit_cycles: float = _about("and for every warp that waits for the line, in cycles", 4.0)
    hot_overlap: float = _about("p of the p-norm that joins the hottest row's updates and all others", 2.5)
    slice_deviations: float = _about("standard deviations by which the busiest L2 slice exceeds the mean", 1.5)
    picked_cache: float = _about("share of L2 that holds rows picked at random", 0.4)
    picked_bandwidth: float = _about("share of the memory's bandwidth that rows picked at random reach", 0.8)
    sort_instructions: float = _about("instructions per element and stage of a bitonic sort", 26.0)
    sort_step_cycles: float = _about("a step of a bitonic sort that a lone block waits for, in cycles", 230.0)
    radix_pass_cycles: float = _about("a pass of a radix sort that its tiles' turns take at least, in cycles", 16000.0)
    radix_share: float = _about("share of the bandwidth that a radix sort's passes reach", 0.55)
    radix_counted: float = _about("keys whose digits are counted per SM and cycle", 0.65)
    segment_sorted: float = _about("keys of rows that a radix sort's pass moves per SM and cycle, a row a block", 0.55)
    top_k_step_cycles: float = _about("a step of top-k, in cycles", 930.0)
    top_k_insert_cycles: float = _about("and for each of the largest that a thread keeps", 121.0)
    top_k_merge_cycles: float = _about(
        "merging what the threads of a block kept, by the square of how many, in cycles", 600.0
    )
    transform_cycles: float = _about("a block's Fourier transform, besides a cycle for each of its numbers", 900.0)
    transform_mixed_cycles: float = _about("the same of lengths that are no power of two, in all", 2600.0)
    transform_mixed: float = _about("share of the bandwidth that their transforms reach", 0.65)
    transform_strided: float = _about("share of the bandwidth where a transform's numbers do not lie side by side", 0.5)
    window_instructions: float = _about("instructions per element of a sliding window", 29.0)
    tensor_share: float = _about("share of the matrix engine's peak inside a tile's main loop", 0.9)
    tile_step_cycles: float = _about("cycles per K-step of a tile that no arithmetic hides", 20.0)
    plain_share: float = _about("share of the plain cores' peak inside a tile's main loop", 0.68)
    tf32_step_cycles: float = _about("cycles that a K-step of TF32 takes beside, through registers", 400.0)
    tf32_row_cycles: float = _about("and for every row and column of its tile", 0.5)
    tf32_odd: float = _about("times as much of both where rows are not aligned, which are loaded number by number", 3.0)
    cut_share: float = _about("share left of the rate where Triton computes on a product's operands first", 0.57)
    load_cycles: float = _about("cycles from a tile's request of operands to their arrival", 800.0)
    prologue_cycles: float = _about("pipeline fill and epilogue of a GEMM's first tile, in cycles", 2000.0)
    tile_cycles: float = _about("cycles between tiles of one SM", 1200.0)
    gemm_stream: float = _about("bandwidth of a GEMM's operands relative to a plain stream", 0.92)
    misaligned: float = _about("share left of the rate when rows are not a multiple of 16 bytes", 0.33)
    misaligned_output: float = _about("the same for the result's rows", 0.65)
    misaligned_moved: float = _about("times that tiles move the bytes of such rows", 1.6)
    unpadded: float = _about(
        "share left where a library runs rows as they are, and they are a multiple of 4 bytes", 0.29
    )
    unpadded_odd: float = _about("the same where rows are a multiple of 2 bytes only", 0.14)
    unpadded_odd_output: float = _about("the same where those are the result's rows alone", 0.1)
    byte_turning_instructions: float = _about(
        "instructions per byte and tile of 64 rows that a product puts along K in registers", 11.0
    )
    unpacking_instructions: float = _about(
        "instructions per packed element and tile of 64 rows that a product widens in registers", 6.0
    )
    conv_share: float = _about("implicit GEMM relative to a GEMM of its size", 0.8)
    convolution_start_cycles: float = _about(
        "what a call of cuDNN's own kernels takes beside its product, in cycles", 6000.0
    )
    conv_few_channels: float = _about("share of peak of convolutions with fewer than 8 input channels", 0.04)
    depthwise_instructions: float = _about("instructions per multiply-add of depthwise convolutions", 5.7)
    general_index: float = _about("instructions per element that kernels for any shape work out indices with", 785.0)
    general_tap: float = _about("instructions per multiply-add of a depthwise kernel for any filter", 146.0)
    gathered_cycles: float = _about("a step of a forward convolution's sum whose filter is an image, in cycles", 600.0)
    gathered_narrow_cycles: float = _about("the same of numbers of 2 bytes", 400.0)
    spectral_rows: float = _about("share of memory's rate of a convolution's transforms along rows", 0.35)
    spectral_products: float = _about("share of the CUDA cores' rate of a convolution's products of frequencies", 0.25)
    flash_share: float = _about("share of peak of fused attention's products", 0.9)
    flash_exp: float = _about("exponentials of fused attention that products do not hide", 1.0)
    flash_fill: float = _about("keys that filling a tile's pipeline and writing its result cost", 60.0)
    flash_tail: float = _about("share of attention's longest tile that SMs wait for at its end", 0.5)
    flash_backward_share: float = _about("share of peak of the products of attention's backward pass", 0.75)
    flash_backward_exp: float = _about("its exponentials that products do not hide", 2.3)
    warp_products: float = _about(
        "share of Hopper's peak that products by single warps (mma.sync) can reach; those of warp groups reach all",
        0.63,
    )
    warp_joules: float = _about("energy of a product by single warps on Hopper, over that of one by warp groups", 1.5)
    flash2_share: float = _about("share of the warps' peak of FlashAttention-2's products", 0.65)
    flash2_backward_share: float = _about("the same of its backward pass", 0.5)
    flash2_exp: float = _about("exponentials of FlashAttention-2 that products do not hide", 1.0)
    flash_backward_passes: float = _about(
        "times attention's backward pass moves one operand besides its products", 13.0
    )
    paired_flash_share: float = _about("share of Blackwell's peak of fused attention's products", 0.918)
    paired_flash_exp: float = _about("its exponentials, beside the products", 0.931)
    paired_flash_passes: float = _about("times it moves one operand besides", 1.5)
    paired_flash_backward_share: float = _about("share of Blackwell's peak of the products of its backward pass", 0.724)
    paired_flash_backward_exp: float = _about("its exponentials that products do not hide", 0.784)
    paired_flash_backward_passes: float = _about("times it moves one operand besides", 7.5)
    narrow_flash_exp: float = _about("exponentials of its backward pass in 8 bits", 1.28)
    narrow_flash_instructions: float = _about("instructions of a score there, which is rounded twice", 17.5)
    burst_power: float = _about("power that short runs draw before the limiter settles, as a share of TDP", 1.1)
    power_window_us: float = _about("period over which a kernel's power is averaged at least", 100.0)
    frequency_power: float = _about("k of `energy per op ~ clock^k`", 0.7)
    active_share: float = _about("least power of a running kernel above idle, as a share of TDP less idle", 0.3)
    vector_picojoules: float = _about("energy of one vector instruction at full clock", 2.0)
    clock_variation: float = _about("standard deviation of the clocks that equal devices settle at, as a share", 0.013)
    normal_dynamic: float = _about(
        "energy of the cores on normally distributed numbers, over that on uniform ones", 1.2
    )
    zeros_dynamic: float = _about("share of the cores' energy that is left where all values are equal", 0.5)
    zeros_static: float = _about("share of the memory's energy that is left where all values are equal", 0.5)
    half_zeros_dynamic: float = _about(
        "share of the cores' energy that is left where half of the values are zero", 0.75
    )
    half_zeros_static: float = _about(
        "share of the memory's energy that is left where half of the values are zero", 0.75
    )


GpuCalibration = shared.Calibration[GpuParameters]


def parse_calibration(text: str, where: str = "gpu.toml") -> GpuCalibration:
    """Reads `gpu.toml`; parameters it leaves out keep their start values.

    Raises:
        InputError: unknown schema, unknown or non-positive parameter.
    """
    return shared.parse(text, GpuParameters, GPU_SCHEMA, where)


@functools.cache
def shipped_gpu_calibration() -> GpuCalibration:
    """The calibration that comes with the package."""
    path = resources.files("meshcast.estimate").joinpath("data/gpu.toml")
    return (
        parse_calibration(path.read_text())
        if path.is_file()
        else GpuCalibration(parameters=GpuParameters(), intervals={})
    )
