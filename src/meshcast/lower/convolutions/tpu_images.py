"""Images as XLA:TPU's convolutions want them: laid out anew where they enter or leave the program, split where a batch is small.

An array lies in tiles of 8 sublanes by 128 lanes. A program's arguments and results lie so that the fewest tiles are needed, in
their own order where that is as good. A convolution's image has its batch in the lanes and its channels in the sublanes where
there are few channels or a whole vector of images, its result its channels in the lanes and its batch in the sublanes (or the
other way round). What lies otherwise goes through a copy, which shuffles each tile that it reads or writes, whichever are more.

With fewer images than sublanes the last spatial dimension is cut in eight, and the pieces are images (XLA's
`SpaceToBatchConverter`: eight splits); a piece reads what its window needs of the next one, which its own kernel joins to it.
The image is laid out twice then, the result twice, and the rest of the last piece is cut off between.

After libtpu 0.0.42.1's programs for v4 and v6e; SCALE-Sim-validation publishes the device times of each of these kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import permutations

from meshcast.lower.convolutions.cudnn_convolutions import is_filter_gradient_call
from meshcast.lower.copies.memsets_and_copies import copy_kernel
from meshcast.lower.kernel import Kernel, KernelKind, Schedule, Step
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import Convolution, Tensor, element_bytes

SUBLANES, LANES = 8, 128
SPLITS = 8  # pieces of the last spatial dimension
MANY_CHANNELS = LANES // 2  # from so many on libtpu 0.0.42.1's convolutions read an image as it lies outside
HALOED = "haloed"  # the flag of a convolution whose images are such pieces
RELAYOUT, CUT = "image:relayout", "image:cut"


def has_convolutions(schedule: Schedule) -> bool:
    """Whether any kernel of the outermost block is a convolution."""
    return any(isinstance(step, Kernel) and isinstance(step.geometry, Convolution) for step in schedule.steps)


def with_laid_out_images(schedule: Schedule, values: ValueTypes) -> Schedule:
    """The schedule with copies between layouts around convolutions that read arguments or write results of the program."""
    return replace(schedule, steps=tuple(_ImageLayouts(schedule, values).steps()))


class ImageDimension(StrEnum):
    """Dimensions of an image that are not spatial, as `Convolution.layout` writes them; spatial ones are digits."""

    BATCH = "b"
    CHANNELS = "f"


@dataclass(frozen=True, slots=True, kw_only=True)
class TiledArray:
    """An image or a result in tiles.

    Attributes:
        tiles: How many there are.
        elements: How many elements they have, those included that nothing fills.
        lanes: The dimension that fills the lanes, as `Convolution.layout` writes it.
        sublanes: The one that fills the sublanes.
    """

    tiles: int
    elements: int
    lanes: str
    sublanes: str


class _ImageLayouts:
    """The copies around one schedule's convolutions; an argument that several of them read is laid out once."""

    def __init__(self, schedule: Schedule, values: ValueTypes) -> None:
        self._schedule = schedule
        self._values = values
        self._laid: dict[tuple[int, bool], int] = {}  # an argument, whether it is split -> the same, laid out

    def steps(self) -> Iterable[Step]:
        """The schedule's steps, with copies."""
        for step in self._schedule.steps:
            shape = step.geometry if isinstance(step, Kernel) else None
            if isinstance(step, Kernel) and isinstance(shape, Convolution) and _is_plain(shape):
                yield from self._with_copies(step, shape)
            else:
                yield step

    def _with_copies(self, call: Kernel, shape: Convolution) -> Iterable[Kernel]:
        """A convolution between the copies of its image and of its result."""
        image = shape.layout.partition(",")[0]
        made = shape.layout.partition("->")[2]
        enters = self._place_of(
            call.reads, self._schedule.inputs, _sizes(image, shape, shape.in_channels, shape.in_spatial)
        )
        leaves = self._place_of(
            call.writes, self._schedule.outputs, _sizes(made, shape, shape.out_channels, shape.out_spatial)
        )
        split = (
            shape.batch < SUBLANES and shape.out_spatial[-1] >= SPLITS and (enters is not None or leaves is not None)
        )
        if split:
            pieces = -(-shape.out_spatial[-1] // SPLITS)
            width = (pieces - 1) * shape.strides[-1] + (shape.kernel[-1] - 1) * shape.rhs_dilation[-1] + 1
            whole = shape
            shape = replace(
                shape,
                batch=shape.batch * SPLITS,
                in_spatial=(*shape.in_spatial[:-1], width),
                out_spatial=(*shape.out_spatial[:-1], pieces),
                padding=(*shape.padding[:-1], (0, 0)),
                macs=round(shape.macs * pieces * SPLITS / shape.out_spatial[-1]),
            )
            call = replace(call, geometry=shape, flags=call.flags | {HALOED})
            if call.stored_bits and call.stored_bits[0] < 8 * element_bytes(shape.lhs_dtype):  # edges are widened twice
                more = _image_elements(shape) - _image_elements(whole)
                call = replace(call, vector_flops=call.vector_flops + more)
        after: list[Kernel] = []
        if enters is not None:
            copies, call = self._entering(call, enters, shape, image, split)
            yield from copies
        if leaves is not None:
            call, after = self._leaving(call, leaves, shape, made, split)
        yield call
        yield from after

    def _place_of(self, values: tuple[int, ...], program: tuple[int, ...], sizes: tuple[int, ...]) -> int | None:
        """The place of the first of a kernel's values that is the program's own too, and has such sizes."""
        shapes = ((place, self._values.tensors[value].shape) for place, value in enumerate(values) if value in program)
        return next((place for place, shape in shapes if shape == sizes), None)

    def _entering(
        self, call: Kernel, at: int, shape: Convolution, image: str, split: bool
    ) -> tuple[list[Kernel], Kernel]:
        """The copies that lay an image out, and the convolution that reads what they make."""
        source = call.reads[at]
        kind = self._values.tensors[source]
        wanted = wanted_image(shape)
        outside = as_outside(kind, image)
        as_read = {outside.lanes, outside.sublanes} == {ImageDimension.BATCH, ImageDimension.CHANNELS}
        if not split and (as_read or shape.in_channels >= MANY_CHANNELS):
            return [], call
        copies = []
        if (source, split) not in self._laid:
            target = self._new(wanted, kind.dtype)
            self._laid[source, split] = target
            first = source
            if split:
                first = self._new(outside, kind.dtype)
                copies.append(self._copy(source, first, outside, outside, call))
            copies.append(self._copy(first, target, outside, wanted, call))
        target = self._laid[source, split]
        size = self._values.tensors[target].bytes
        sizes = (*call.operand_bytes[:at], size, *call.operand_bytes[at + 1 :])
        reads = (*call.reads[:at], target, *call.reads[at + 1 :])
        return copies, replace(
            call, reads=reads, operand_bytes=sizes, read_bytes=call.read_bytes + size - call.operand_bytes[at]
        )

    def _leaving(
        self, call: Kernel, at: int, shape: Convolution, made: str, split: bool
    ) -> tuple[Kernel, list[Kernel]]:
        """The convolution that writes its own layout, and the copies that lay the program's result out of it."""
        target = call.writes[at]
        kind = self._values.tensors[target]
        inside, outside = wanted_result(shape), as_outside(kind, made)
        if not split and (outside.lanes, outside.sublanes) == (inside.lanes, inside.sublanes):
            return call, []
        source = self._new(inside, kind.dtype)
        written = call.written_bytes + self._values.tensors[source].bytes - kind.bytes
        writes = (*call.writes[:at], source, *call.writes[at + 1 :])
        call = replace(call, writes=writes, written_bytes=max(0, written))
        if not split:
            return call, [self._copy(source, target, inside, outside, call)]
        whole, cut = self._new(outside, kind.dtype), self._new(outside, kind.dtype)
        return call, [
            self._copy(source, whole, inside, outside, call),
            self._cut(whole, cut, outside, call),
            self._copy(cut, target, outside, outside, call),
        ]

    def _new(self, laid: TiledArray, dtype: str) -> int:
        return self._values.new((laid.elements,), dtype)

    def _copy(self, source: int, target: int, before: TiledArray, after: TiledArray, call: Kernel) -> Kernel:
        """A copy that shuffles every tile which it reads or writes, whichever are more."""
        tensors = self._values.tensors
        return replace(
            copy_kernel(source, target, tensors[target], call.location),
            name=RELAYOUT,
            kind=KernelKind.TRANSPOSE,
            ops=(RELAYOUT,),
            flags=frozenset({"transpose", "turned"}),
            read_bytes=tensors[source].bytes,
            operand_bytes=(tensors[source].bytes,),
            elements=max(before.tiles, after.tiles) * SUBLANES * LANES,
        )

    def _cut(self, source: int, target: int, laid: TiledArray, call: Kernel) -> Kernel:
        """A pass that leaves out what the last piece has beyond the end."""
        copy = self._copy(source, target, laid, laid, call)
        return replace(copy, name=CUT, kind=KernelKind.LOOP_FUSION, ops=(CUT,), flags=frozenset())


def _is_plain(shape: Convolution) -> bool:
    dilated = any(step > 1 for step in shape.lhs_dilation)
    if not shape.macs or not shape.out_spatial:
        return False
    return max(shape.feature_groups, shape.batch_groups) == 1 and not dilated and not is_filter_gradient_call(shape)


def _sizes(order: str, shape: Convolution, channels: int, spatial: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of an image or a result, in its own order (`b01f`)."""
    named = {"b": shape.batch, "f": channels} | {str(place): size for place, size in enumerate(spatial)}
    return tuple(named[each] for each in order)


def _tiles(pixels: int, *, lanes: int, sublanes: int) -> tuple[int, int]:
    """Tiles, and the elements that they take: fewer sublanes where there are too few to fill them."""
    height = SUBLANES if sublanes > SUBLANES // 2 else 1 << (sublanes - 1).bit_length() if sublanes > 1 else 1
    tiles = pixels * -(-lanes // LANES) * -(-sublanes // SUBLANES)
    return tiles, tiles * height * LANES


def wanted_image(shape: Convolution) -> TiledArray:
    """An image as its convolution reads it: batch in lanes, channels in sublanes."""
    tiles, elements = _tiles(math.prod(shape.in_spatial), lanes=shape.batch, sublanes=shape.in_channels)
    return TiledArray(tiles=tiles, elements=elements, lanes=ImageDimension.BATCH, sublanes=ImageDimension.CHANNELS)


def wanted_result(shape: Convolution) -> TiledArray:
    """A result as its convolution writes it: channels in lanes and batch in sublanes, or the other way round for fewer tiles."""
    pixels = math.prod(shape.out_spatial)
    tiles, elements = _tiles(pixels, lanes=shape.out_channels, sublanes=shape.batch)
    by_channel = TiledArray(
        tiles=tiles, elements=elements, lanes=ImageDimension.CHANNELS, sublanes=ImageDimension.BATCH
    )
    tiles, elements = _tiles(pixels, lanes=shape.batch, sublanes=shape.out_channels)
    by_image = TiledArray(tiles=tiles, elements=elements, lanes=ImageDimension.BATCH, sublanes=ImageDimension.CHANNELS)
    return by_image if by_image.tiles < by_channel.tiles else by_channel


def as_outside(tensor: Tensor, order: str) -> TiledArray:
    """An argument or a result of the program: in the fewest tiles, over its innermost dimensions where others are no better.

    Args:
        tensor: Its type.
        order: Its dimensions as `Convolution.layout` writes them (`b01f`).
    """
    sizes = dict(zip(order, tensor.shape, strict=True))

    def laid(lanes: str, sublanes: str) -> TiledArray:
        rest = tensor.elements // max(1, sizes[lanes] * sizes[sublanes])
        tiles, elements = _tiles(rest, lanes=sizes[lanes], sublanes=sizes[sublanes])
        return TiledArray(tiles=tiles, elements=elements, lanes=lanes, sublanes=sublanes)

    return min((laid(*pair) for pair in permutations(reversed(order), 2)), key=lambda each: each.elements)


def _image_elements(shape: Convolution) -> int:
    return shape.batch * shape.in_channels * math.prod(shape.in_spatial)
