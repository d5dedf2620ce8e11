"""`LoweringOptions`: whose kernels run, and what is rewritten of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from meshcast.base import UsageError, checked
from meshcast.lower import OVERLAP_CHOICES, Overlap
from meshcast.options.declared import option, take_values
from meshcast.options.program_options import BY_STACKS
from meshcast.options.words import InWords, read_overlap

if TYPE_CHECKING:
    from meshcast.lower import Fusion, Layers, RaggedProducts
    from meshcast.workload import AttentionLibrary


def _fusions() -> tuple[str, ...]:
    from meshcast.lower import Fusion

    return get_args(Fusion)


def _libraries() -> tuple[str, ...]:
    from meshcast.workload import AttentionLibrary

    return get_args(AttentionLibrary)


def _layers() -> tuple[str, ...]:
    from meshcast.lower import Layers

    return get_args(Layers)


def _ragged() -> tuple[str, ...]:
    from meshcast.lower import RaggedProducts

    return get_args(RaggedProducts)


def _seconds(name: str, value: Any) -> float:
    found = float(checked(name, value, (int, float)))
    if not 0 <= found < math.inf:
        raise UsageError(
            f"a limit of {found:g} s", where="--compile-limit", fix="a number of seconds; 0: as long as is usual"
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweringOptions:
    """Whose kernels run, and what is rewritten of them.

    Attributes:
        kernels: Modelled, compiled, or `auto` (flat: `lowering`).
        compile_limit: Seconds that compiling may take; 0: as long as is usual.
        overlap: What is rewritten so that communication overlaps, beside the words of it.
        fusion: Who fuses modelled kernels on GPUs: a compiler, or an eager framework.
        attention_library: Whose fused attention modelled kernels on GPUs are.
        layers: Whether values that a loop's turns keep are copied into stacked arrays, in modelled kernels on GPUs.
        ragged: How ragged products run, in modelled kernels on GPUs.
    """

    kernels: str = option(
        "auto",
        name="lowering",
        flag="--lowering",
        help="Kernels modelled by rules, compiled by the real XLA:GPU compiler (doctor --install gpu-compiler), or auto.",
    )
    compile_limit: float = option(
        0.0,
        flag="--compile-limit",
        metavar="SECONDS",
        help="How long the real compiler may take; 0: 300 s for a GPU, 7200 s for a TPU. auto then models the kernels.",
        read=_seconds,
        untold="whose kernels it came to is told",
        takes="float",
        example=lambda: 60.0,
    )
    overlap: InWords[Overlap] = option(
        InWords("", Overlap()),
        flag="--overlap",
        metavar="LIST",
        help="Rewrites that hide communication: "
        + ", ".join(f"{each.name}{each.example} ({each.help})" for each in OVERLAP_CHOICES)
        + ".",
        read=read_overlap,
        kinds=(str,),
        unset="",
        takes="str | Overlap",
        example=lambda: "prefetch",
    )
    fusion: Fusion = option("compiler", no_flag=BY_STACKS, one_of=_fusions, wrong="no fusion {}")
    attention_library: AttentionLibrary = option(
        "cudnn", no_flag=BY_STACKS, one_of=_libraries, wrong="no attention library {}"
    )
    layers: Layers = option(
        "scanned", no_flag=BY_STACKS, one_of=_layers, wrong="no arrays of layers {}", told="layer_arrays"
    )  # models have layers too, a number
    ragged: RaggedProducts = option(
        "masked", no_flag=BY_STACKS, one_of=_ragged, wrong="no kind of ragged products {}", told="ragged_products"
    )

    def __post_init__(self) -> None:
        take_values(self)

    @property
    def rewrites(self) -> Overlap:
        """The rewrites that `overlap` asks for."""
        return self.overlap.value

    @property
    def other_kernels(self) -> dict[str, str]:
        """What is said of kernels on GPUs that XLA does not do, by name; nothing where all are as XLA makes them."""
        own = {
            "fusion": self.fusion, "attention_library": self.attention_library, "layers": self.layers, "ragged": self.ragged,
        }  # fmt: skip
        default = LoweringOptions()
        return {name: value for name, value in own.items() if value != getattr(default, name)}
