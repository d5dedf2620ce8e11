"""What shapes of CUDA code get out of a GPU's memory, relative to code that streams; free of torch.

Measured on one H200 in traces of eager PyTorch 2.11 (torchvision's ResNet-50, MobileNetV3, Swin, RegNet and DenseNet,
transformers' Qwen3 and BERT): rates of one kind of kernel over its bytes, divided by `STREAM`. They are shares of a rate, or
times a block takes, so that they carry over to other GPUs as far as cores grow with bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from meshcast.programs.pytorch.recording.calls import BYTES, View

STREAM = 4.2e12  # bytes a second of a vectorised elementwise kernel, the rate that shares are of
# Seconds an element where each one's place is computed (`elementwise_kernel`, `Loops.cuh`), and more for each operand, the result
# among them, that is cast on the way (`fetch_and_cast`): 20 eager models, 310 to 345 and 190 to 235 G elements a second.
_INDEXED, _CAST_OPERAND = 3.0e-12, 0.55e-12
# Seconds an element where neighbours of what is written are read from places apart: 32 bytes of the cache each, whatever the
# dtype, at 5.4e12 bytes a second (84 copies of SqueezeBERT's layers between channels and tokens, 38 us for 6.3 M elements).
_AGAINST = 6.0e-12
# `gather` along a dimension, an element an index, and `scatter_add` of halves by atomics (DeBERTa-v2's 12.6 M relative scores).
GATHERED, ADDED_HALVES = 3.6e-12, 10.6e-12
_JOINED = 1 / 220e9  # the same of concatenations (`CatArrayBatchedCopy`)
# What moves 16 bytes at a time: the share of the rate where pieces lie in order (`CatArrayBatchedCopy_vectorized`; SqueezeNet,
# Inception, ModernBERT, DenseNet), seconds an element where they are images pixel by pixel (`_alignedK_contig`; SegFormer).
_JOINED_WIDE, _JOINED_PIXELS = 0.85, 1 / 460e9
JOINED_DIMS = 4  # of pieces that one kernel joins; those of more are copied one by one
_WIDE = 16
_FLOATS = frozenset(["float16", "bfloat16", "float32", "float64"])
UNROLLED = 0.55  # operands of several dtypes: four elements a thread, loaded one by one
REGULAR_ROWS = 0.75  # a row's elements stay with the block that reads them
TWICE_READ = 0.5  # rows that are too long to stay, read once more
COLUMNS = 0.7  # sums down columns of norms, once they run
SUMMED_COLUMNS = 0.85  # of other sums, beside what `reduce_shapes` has them wait for
SUM_PLACE = 2.0e-12  # seconds an element of sums over what lies in pieces (biases of SqueezeNet, AlexNet: 2.1 and 1.8)
WINDOWS = 0.16  # other windows over images, an element a thread
ROLLED = 0.6  # of the rate of places worked out, where they are worked out by remainders (`roll_cuda_kernel`)
LISTS = 0.75  # `multi_tensor_apply`, of few tensors
FUSED_LISTS = {"float32": 0.66, "half": 0.51}  # the same where it does a whole update
# Cycles of a block that has a whole chunk of 65,536 elements, whatever the others do: narrow models' updates take 31 us.
CHUNK_CYCLES, FUSED_CHUNK_CYCLES = 30e3, 58e3
TURNED = 0.45  # cuDNN's copies between channels first and last
PLAIN = 0.92  # products in fp32 by plain cores, of the rate that large ones reach (T5)
PLAIN_SHORT = 0.7  # the same of short sums (attention's in BERT, RoBERTa and T5)
# Products in TF32, of the rate of XLA's (whose layouts the compiler mixes), by how many operands have neighbours along the sum.
# Warp groups of Hopper take TF32 from shared memory in that order alone (PTX ISA, `wgmma`: only 16-bit operands can be turned):
# one is turned on the way, and two leave the products to single warps. Steps of recommenders, the half that may be looked at.
TF32 = {2: 1.2, 1: 1.07, 0: 0.57}
BY_VECTOR = 0.55  # a matrix by a vector, at most one operand of which stays
# Convolutions by heuristics instead of timing them all (`torch.backends.cudnn.benchmark` is off), of the rate of XLA's, which
# are timed: in half precision it takes the same kernels (ResNets), in TF32 too for windows (AlexNet), but for single pixels
# (DenseNet, MNASNet, MobileNetV3, PoolFormer) slower ones, most of all where channels lie first.
CUDNN = {"half": 1.03, "windows": 1.0, "pixels": 0.78, "pixels apart": 0.68}
GROUPED = 0.7  # of that, channels in groups (RegNet, ShuffleNet)
UNALIGNED = 0.33  # the same of images channels first whose rows of pixels are no multiple of 16 bytes (`align2`)
NORMALISED = 0.55  # cuDNN's batch norm in inference
TRANSFORMED = 0.31  # ATen's, in half precision
DROPPED = 0.66  # random bits for every element
ATTENTION_DROPPED = 0.72  # the same inside attention
# Seconds that a mask, read for every pair of a query and a key, costs a pair, whatever the head's width (Llama, Qwen3, GPT-NeoX).
MASKED_PAIR = {"forward": 0.47e-12, "backward": 0.9e-12}

# cuDNN's convolutions of single channels that lie last, of small windows: gradients of images take longer than their bytes do
# forward (MobileNetV2, MNASNet, ShuffleNet: 1.25 to 1.34 times), those of weights still more: sums over parts in half precision
# (`wgrad2d_c1_k1_nhwc`, and a kernel that adds them up), another kernel in fp32 (`depthwise_convolution_wgrad_tiling`).
_DEPTHWISE = {"forward": 0.52, "data": 0.4, "weight": 0.28}
_DEPTHWISE_FULL = {**_DEPTHWISE, "weight": 0.2}  # in fp32
_TAPS = {
    "forward": 4.8e12,
    "data": 2.5e12,
    "weight": 6.3e12,
}  # their multiply-adds a second, of large windows (ConvNeXt's)

# ATen's own convolutions of single channels that lie first (`DepthwiseConv2d.cu`), a thread an element: seconds an element, and
# for each tap of the window more; gradients of weights, a block a tap, go by taps alone. In bf16 and fp32 alike (MobileNetV2
# and V3, MNASNet, ShuffleNet, MaxViT: within 12 %).
_ONE_CHANNEL = {"forward": (6.1e-12, 0.43e-12), "data": (15e-12, 0.18e-12), "weight": (0.0, 2.15e-12)}

# Seconds that code takes besides, however little it is given (narrow models): places worked out, functions, rows shared out.
PLACES_START = 1.0e-6  # `elementwise_kernel` with an index for each element, `CatArrayBatchedCopy`
CAST_START = 0.7e-6  # `unrolled_elementwise_kernel`
FUNCTION_START = 0.4e-6  # exponentials and their like
ROWS_START = 1.5e-6  # a norm's rows
ROWS_BACK_START = 0.7e-6
TURN_START = 1.3e-6
CHANNEL_START = 1.7e-6  # a batch norm's channels
PICK_START = 2.5e-6  # an element at every index

SMALL_BLOCK = 0.85e-9  # seconds a block of 128 threads with next to nothing to do (0.77 to 0.96 in DLRM's `index_put`)
# Seconds a row of a norm, where each has a block of its own: 128 threads take 512 elements at a time; rows that are done in one
# go and have half the bytes are shorter (14 models: within 10 %).
_ROW, _SHORT_ROW, _ONE_GO = 1.3e-9, 1.0e-9, 512
ROW_BACK = 0.3e-9  # of its gradient
WARP_ROW, WARP_ELEMENT = (
    0.075e-9,
    0.4e-12,
)  # seconds a row, and an element of it, where a warp does a softmax of one or two rows
# Sums down the columns of a norm's gradient (`GammaBetaBackwardCUDAKernel`): a block goes down 32 columns row by row, which lie
# in the cache or do not; rows are shared out too where there are more than 65,536 of them and few columns.
_DOWN_CACHED, _DOWN, _CACHED, _SHARED_ROWS, _FEW_COLUMNS = 2.9e-9, 4.6e-9, 40e6, 65536, 66 * 32
DOWN_START = 1.5e-6
# Windows over images that lie channels first (`Pooling` kernels of ATen), a thread a result, or in a gradient a thread a pixel of
# the image: seconds each, whatever the dtype, most of it to find its place, and for a tap of the window (ResNets, DenseNet,
# GoogLeNet, SqueezeNet, AlexNet, MaxViT, PoolFormer: within 6 %).
_WINDOW = {"max": (13.5e-12, 0.3e-12), "avg": (12e-12, 0.17e-12)}
_WINDOW_BACK = {"max": 11.15e-12, "avg": 17.7e-12}
RESIZED_PIXELS = 9.4e-12  # of a result of `upsample_bilinear2d_nhwc_out_frame`, seconds each (SegFormer)
PLANE = 2.3e-9  # seconds a block that has one channel of one image (`adaptive_average_pool`)
MOMENTS_BLOCK = 6e9  # bytes a second of one block that has a group norm's moments
_WAVE = 4100.0  # cycles that blocks of 16 rows take which follow others (`reduce_kernel` along rows)
# Batch norms in training where a channel, which lies in one piece, is one block's: seconds an element of it, and the rate of
# all blocks together. Of ATen's five models in bf16 (ResNet-50 and -101, Wide ResNet, MobileNetV2, RegNet: within 7 %), of
# cuDNN's three in fp32 (DenseNet, MNASNet, ShuffleNet: within 8 %).
_CHANNELS = {
    "statistics": (0.77e-9, 2.15e12), "backward": (1.74e-9, 2.34e12),
    "cudnn": (0.40e-9, 2.9e12), "cudnn backward": (1.26e-9, 3.8e12),
}  # fmt: skip
CUDNN_CHANNEL = 7.9e9  # bytes a second of one block of cuDNN's batch norm in training, as XLA calls it
CUDNN_CHANNEL_BACKWARD = 5.4e9
_CLOCK = 1.98e9  # of the H200 that these were measured on
_BLOCKS = 528  # of them that run at once, four on each of 132 SMs


def bytes_of(views: Sequence[View]) -> int:
    """Bytes of tensors, each once."""
    return sum({(view.storage, view.shape, view.offset): view.bytes for view in views}.values())


def moved_bytes(takes: Sequence[View], gives: Sequence[View]) -> int:
    """Bytes that a kernel reads and writes; a tensor that is read and written over counts twice."""
    return bytes_of(takes) + bytes_of(gives)


def row_seconds(rows: int, length: int, dtype: str) -> float:
    """Seconds that a norm's rows take beside their bytes."""
    short = length <= _ONE_GO and BYTES[dtype] < BYTES["float32"]
    return ROWS_START + rows * (_SHORT_ROW if short else _ROW)


def down_seconds(rows: int, columns: int, moved: float) -> float:
    """Seconds beyond those of its bytes that a norm's gradient takes to go down its columns."""
    if rows > _SHARED_ROWS and columns < _FEW_COLUMNS:
        return DOWN_START
    return DOWN_START + max(0.0, rows * (_DOWN_CACHED if moved < _CACHED else _DOWN) - moved / STREAM)


def window_seconds(name: str, elements: int, taps: int, moved: float) -> float:
    """Seconds beyond those of its bytes that a pooling takes: `elements (a + b taps)` in all.

    Args:
        name: The operator's.
        elements: Of the result; of the image where its gradient is made.
        taps: Pixels of a window.
        moved: Bytes.
    """
    kind = "max" if "max" in name else "avg"
    each, tap = (_WINDOW_BACK[kind], 0.0) if name.endswith("backward") else _WINDOW[kind]
    return max(0.0, elements * (each + tap * taps) - moved / STREAM)


def wave_cycles(blocks: int) -> float:
    """Cycles of blocks that wait until those before them are done."""
    return max(0.0, blocks / _BLOCKS - 1) * _WAVE


def indexed(takes: Sequence[View], gives: Sequence[View], *, each: float | None = None) -> float:
    """The share of a kernel that computes every element's place: `t = max(bytes / STREAM, elements * each)`.

    Args:
        takes: Operands; what is written over is read too.
        gives: Results.
        each: Seconds an element; by default those of elementwise kernels, which cast operands of several dtypes.
    """
    elements = max((view.elements for view in gives), default=1)
    if each is None:
        wide = [*(view for view in takes if view.elements > 1), *gives[:1]]
        cast = len({view.dtype for view in wide} & _FLOATS) > 1
        each = _INDEXED + (_CAST_OPERAND * len(wide) if cast else 0.0)
    moved = moved_bytes(takes, gives) / STREAM
    return min(1.0, moved / (elements * each)) if elements and moved else 1.0


def against_order(takes: Sequence[View], gives: Sequence[View]) -> float:
    """Seconds, beside those of its bytes, of a kernel that reads in another order than it writes, without tiles."""
    elements = max((view.elements for view in gives), default=0)
    return max(0.0, elements * _AGAINST - moved_bytes(takes, gives) / STREAM)


def tapped(takes: Sequence[View], gives: Sequence[View], *, taps: int, what: str) -> float:
    """The share of a convolution of single channels: `t = max(bytes / (_DEPTHWISE STREAM), taps / rate)`."""
    moved = bytes_of([*takes, *gives]) / STREAM
    small = (_DEPTHWISE_FULL if BYTES[takes[0].dtype] == BYTES["float32"] else _DEPTHWISE)[what]
    return min(small, moved / (taps / _TAPS[what])) if taps and moved else 1.0


def one_by_one(takes: Sequence[View], gives: Sequence[View], *, elements: int, taps: int, what: str) -> float:
    """Seconds of ATen's convolution of single channels beyond those of its bytes: it takes `elements (a + b taps)` in all.

    Args:
        takes: Its operands.
        gives: Its result.
        elements: Of the result; of the image where its gradient is made.
        taps: Pixels of a window.
        what: `forward`, `data` or `weight`.
    """
    each, tap = _ONE_CHANNEL[what]
    return max(0.0, elements * (each + tap * taps) - bytes_of([*takes, *gives]) / STREAM)


def joined(takes: Sequence[View], gives: Sequence[View], *, dim: int) -> float:
    """The share of a concatenation along `dim`; 16 bytes move at a time where every piece lies so (`Shape.cu`)."""
    pieces = [view for view in takes if view.elements]
    runs = [prod(view.shape[dim % len(view.shape) :]) * BYTES[view.dtype] for view in pieces if view.shape]
    if all(view.contiguous for view in pieces) and not any(run % _WIDE for run in runs):
        return _JOINED_WIDE
    pixels = dim == 1 and all(view.dense_order == (0, 2, 3, 1) for view in (*pieces, *gives))
    if pixels and not any(view.shape[1] * BYTES[view.dtype] % _WIDE for view in pieces):
        return indexed(takes, gives, each=_JOINED_PIXELS)
    return indexed(takes, gives, each=_JOINED)


def by_channel(view: View, what: str) -> tuple[float, float]:
    """The share of a batch norm's kernel with a block a channel, and its seconds besides.

    `t = n a max(1, C / _BLOCKS) + bytes / r`

    Args:
        view: Images that lie channel by channel, `n` elements in each of `C`.
        what: `statistics` or `backward` of ATen's, `cudnn` or `cudnn backward`.
    """
    channels = view.shape[1] if len(view.shape) > 1 else 1
    each, rate = _CHANNELS[what]
    return rate / STREAM, view.elements // max(1, channels) * each * max(1.0, channels / _BLOCKS)


def channel_cycles(moved: float, channels: int, *, backward: bool) -> float:
    """Clock cycles of cuDNN's batch norm in training where a channel is a block's: it waits for its loads, not for memory's rate.

    Args:
        moved: Bytes of all channels together.
        channels: How many there are; more than run at once follow each other.
        backward: Whether it makes gradients.
    """
    rate = CUDNN_CHANNEL_BACKWARD if backward else CUDNN_CHANNEL
    return moved / min(channels, _BLOCKS) / (rate / _CLOCK)
