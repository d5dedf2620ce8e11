"""The passes of every backend, in order: what each does, and why it stands there (`docs/lowering.md` has them in one table).

A program is lowered block by block. `PassTable.ops` works on a block's ops until it is decided which of them are one kernel and
which updates need a copy; then the driver (`lowering.py`) makes the steps, and goes into loops and branches; `PassTable.steps`
works on those. `PassTable.program` works on the whole schedule in the end. No pass goes into bodies by itself before that.
"""

from __future__ import annotations

from dataclasses import replace

from meshcast.lower import block_passes as block
from meshcast.lower.control_flow import passes as control_flow
from meshcast.lower.control_flow.dead_state import drop_dead_state, has_loops
from meshcast.lower.control_flow.loop_conditions import (
    has_questions,
    may_have_questions,
    put_questions_back,
    set_questions_apart,
)
from meshcast.lower.control_flow.simple_branches import has_branches, select_of_branches
from meshcast.lower.convolutions import passes as convolutions
from meshcast.lower.copies import passes as copies
from meshcast.lower.draft import BlockDraft, ProgramDraft
from meshcast.lower.frameworks import passes as frameworks
from meshcast.lower.fused_kernels import passes as fused_kernels
from meshcast.lower.fusion import passes as fusion
from meshcast.lower.fusion.rules import EAGER, GPU, IN_PLACE, TPU, Fusion
from meshcast.lower.graph import passes as graph
from meshcast.lower.graph.aliases import GPU_ALIASES, TPU_ALIASES, VIEWS
from meshcast.lower.graph.cut_joins import cut_joins, may_cut_joins
from meshcast.lower.graph.folded_constants import drop_whole_updates, fold_constants, has_updates, may_fold
from meshcast.lower.graph.prefix_sums import has_prefix_sums, split_prefix_sums
from meshcast.lower.graph.spread_sums import may_sum_spread, sum_spread
from meshcast.lower.layouts import passes as layouts
from meshcast.lower.layouts.solver_operands import has_solvers, turn_solver_operands
from meshcast.lower.multi_output import passes as multi_output
from meshcast.lower.passes import LoweringPass, PassTable
from meshcast.lower.products import passes as products
from meshcast.lower.schedule import passes as schedule
from meshcast.workload import OpKind

_Block = LoweringPass[BlockDraft]
_Program = LoweringPass[ProgramDraft]

# Of every backend: what nobody needs goes before anybody looks at readers.
_CLEANED = (
    _Block(
        "dead code",
        "only what leads to a result or has an effect; first, as all others count readers",
        graph.drop_dead_code,
    ),
    _Block(
        "empty arrays",
        "nothing runs for arrays without elements; before layouts and fusion see them",
        graph.drop_nothing,
    ),
)
_INNER = (
    _Block(
        "single turns",
        "bodies of loops of one turn run where the loop stood; first, as no loop is left of them",
        control_flow.inline_single_turns,
        control_flow.has_single_turns,
    ),
    _Block(
        "loop counters",
        "counters of a loop that begin and grow alike are one; before constants are copied into the loop, each for itself",
        control_flow.merge_counters,
        control_flow.has_blocks,
    ),
    _Block(
        "inner constants",
        "what loops and branches read that is computed of constants is made inside; before dead code, as nobody outside reads it",
        control_flow.sink_constants,
        control_flow.has_blocks,
    ),
)
_SHARED = _Block(
    "equal ops",
    "what an op before has computed is another name of its result; once dead code is gone, before readers are counted",
    graph.share_equal_ops,
    graph.has_equal_ops,
)
_GPU_ALIASES = _Block(
    "aliases",
    "views, transposes into library calls and behind attention, reductions of single elements are names of a buffer; before "
    "rewrites, which ask whose bytes an operand shows",
    graph.resolve_aliases(GPU_ALIASES),
    graph.has_aliases(GPU_ALIASES),
)
_MASKED = _Block(
    "masked groups",
    "ragged products are dense ones of masked operands; before all that looks for dense products",
    products.mask_groups,
    lambda draft: draft.program.ragged == "masked" and products.has_groups(draft),
)
_LAYOUTS = (
    _Block(
        "loop layouts",
        "what loops carry lies as their products want it; outer blocks before their bodies",
        layouts.lay_out_loops,
        block.has_any(OpKind.LOOP),
    ),
    _Block(
        "operand layouts",
        "arguments that batched products want in another order; behind loops, whose order is given",
        layouts.lay_out_operands,
        layouts.has_orders,
    ),
)
_STORED = _Block(
    "stored weights",
    "finds what products, those of windows too, widen themselves; before products are merged, as these stay apart",
    products.find_stored_weights,
    block.has_any(OpKind.GEMM, OpKind.CONVOLUTION),
)
_SCATTERS = _Block(
    "scatters",
    "`y + scatter(0, u)` is `scatter(y, u)`; before fusion takes the addition",
    graph.scatter_in_place,
    block.has_any(OpKind.SCATTER),
)
_SINGLE = (
    _Block(
        "single ops",
        "long reductions in two stages, what cuDNN wants around a convolution, products with their operands as they lie; "
        "behind the merger, as it makes products",
        block.rewrite_single_ops,
        block.has_single_ops,
    ),
    _Block("unread ops", "what only rewritten ops read; behind all rewrites", graph.drop_unread, graph.leaves_unread),
)
_BUFFERS = _Block(
    "buffers",
    "operands as the buffers they show; behind all that makes aliases, for fusion and copies",
    block.resolve_operands,
)
_PLANNED = (
    _Block(
        "kept targets",
        "updates whose target is still needed work on a copy; once operands are buffers",
        copies.find_kept_targets,
        block.has_any(*IN_PLACE),
    ),
    _Block(
        "cold slices",
        "what loops step through is in no cache; on the ops that kernels are made of",
        fused_kernels.find_cold_slices,
        lambda draft: draft.looped,
    ),
)
_MEMSETS = _Block(
    "memsets", "large library calls clear a counter first; before the order is chosen", copies.clear_counters
)
_ORDERED = _Block("launch order", "by memory; last, on the kernels that are left", schedule.order_launches)
_LISTED = _Block(
    "list order",
    "by XLA's list scheduler or depth first, where that takes less memory; on the other order, which they are compared with",
    schedule.list_launches,
)
_LIBRARIES = "whose kernels run attention, and whether rows of products are padded; once no kernel is merged any more"
_ORDERS = _Program(
    "both orders",
    "copies of 8-bit operands that products want in the other order; once per program",
    products.copy_narrow_operands,
)
_LAYERS = (
    _Program(
        "separate layers",
        "arrays of their own for every turn of a loop, as frameworks have them; on kernels that slice stacks",
        frameworks.separate_layers,
        lambda draft: draft.layers != "scanned",
    ),
    _Program(
        "layerwise weights",
        "casts and sums of weights in each layer; once layers are separate",
        frameworks.layerwise_weights,
        lambda draft: draft.layers != "scanned",
    ),
)
_RECENCY = _Program(
    "recency", "bytes moved since operands were last touched; last, as every kernel counts", schedule.note_recency
)

XLA_GPU = PassTable(
    ops=(
        _INNER[0],
        _Block(
            "simple branches",
            "both sides of branches that cost little are computed, and selected from; before what they read is copied into them",
            select_of_branches,
            has_branches,
        ),
        _Block(
            "dead state",
            "what loops carry for nobody goes; before counters are merged, and before dead code, of which more is then",
            drop_dead_state,
            has_loops,
        ),
        *_INNER[1:],
        _Block(
            "loop conditions",
            "conditions of loops that end on data are blocks of their own; behind constants, which a loop begins with",
            set_questions_apart,
            has_questions,
        ),
        *_CLEANED,
        _SHARED,
        _Block(
            "cut joins",
            "slices that lie in one of several joined arrays read that array; before views, which hide what they are of",
            cut_joins,
            may_cut_joins,
        ),
        _Block(
            "sums of spread",
            "reductions over dimensions that a value is repeated along are one of its elements; before views, which hide them",
            sum_spread,
            may_sum_spread,
        ),
        _Block(
            "whole updates",
            "updates as large as their target are names of what is written; before views, as these are resolved with them",
            drop_whole_updates,
            has_updates,
        ),
        _GPU_ALIASES,
        _Block(
            "folded constants",
            "what is computed of constants alone is a constant in memory; on what views show",
            fold_constants,
            may_fold,
        ),
        _MASKED,
        _Block(
            "vector products",
            "products with vectors are reductions; before layouts are wanted by them",
            products.sum_vector_products,
            products.has_vector_products,
        ),
        _Block(
            "swapped products",
            "a transpose of rows for columns behind a product is that of its operands swapped; before others ask for orders",
            products.swap_products,
            products.may_swap_products,
        ),
        _Block(
            "product order",
            "a transpose behind a product names its bytes; before loops are laid out by it",
            layouts.order_products,
            block.has_all(OpKind.GEMM, OpKind.TRANSPOSE, OpKind.REDUCE),
        ),
        *_LAYOUTS,
        _Block(
            "turned operands",
            "values that a library cannot take as they lie are turned before it; behind those whose order is chosen",
            layouts.turn_operands,
            layouts.may_turn_operands,
        ),
        _Block(
            "solver operands",
            "arguments that dense solvers read are turned or copied first; behind products' operands, which may have been turned",
            turn_solver_operands,
            has_solvers,
        ),
        _Block(
            "written masks",
            "broadcasts of arguments that a product's epilogue reads as arrays; behind turned operands, which products keep",
            products.write_masks,
            products.may_write_masks,
        ),
        _Block(
            "kept strides",
            "strides of large draws' counters are rows of their own; before fusion would compute them on the way",
            graph.keep_strides,
            graph.has_counters,
        ),
        _Block(
            "row layouts",
            "what has no order of its own lies as a reduction of it goes along rows; behind those that have one",
            layouts.lay_out_rows,
            layouts.has_row_wishes,
        ),
        _STORED,
        _SCATTERS,
        _Block(
            "simple indices",
            "gathers and scatters of one index are slices and updates; behind scatters into addends, which would not know them",
            graph.slice_simple_indices,
            graph.has_simple_indices,
        ),
        _Block(
            "sorted tops",
            "the largest of rows are cut off a sort where XLA has no kernel for them; anywhere before fusion",
            graph.sort_tops,
            graph.has_sorted_tops,
        ),
        _Block(
            "prefix sums",
            "sums of all elements before each are windows of windows' sums; anywhere before fusion, which may compute them",
            split_prefix_sums,
            has_prefix_sums,
        ),
        _Block(
            "merged products",
            "products that share an operand are one; once operands have their layouts",
            products.merge_dots,
            block.has_any(OpKind.GEMM),
        ),
        _Block(
            "convolution epilogues",
            "cuDNN adds biases and addends and cuts off at zero itself; before padding and layouts, which take the call as it is",
            convolutions.join_convolutions,
            block.has_all(OpKind.CONVOLUTION, OpKind.ELEMENTWISE),
        ),
        *_SINGLE,
        _Block(
            "padded operands",
            "products whose K is split into parts that are not equal read copies with zeros at the end; once products are as "
            "libraries take them, before fusion makes the copies",
            products.pad_operands,
            products.may_pad_operands,
        ),
        _Block(
            "own fills",
            "arithmetic spreads constants itself that updates are done in; behind scatters into addends, which look for zeros",
            graph.fill_anew,
            block.has_any(*IN_PLACE),
        ),
        _BUFFERS,
        _Block(
            "cut operands",
            "ReLUs of what is kept anyway are computed inside the products that read them; on buffers, before fusion",
            products.cut_operands,
            products.may_cut_operands,
        ),
        _Block(
            "computed updates",
            "updates of slices that may be computed inside what reads them are passes over elements; on buffers, before fusion",
            fusion.compute_updates,
            block.has_any(OpKind.UPDATE),
        ),
        _Block(
            "fusion", "XLA:GPU's loop, input and row fusions and epilogues; on the ops that are left", fusion.fuse(GPU)
        ),
        _Block(
            "settled updates",
            "those that stayed kernels of their own are done in place; before their targets are looked at",
            fusion.settle_updates,
            lambda draft: bool(draft.updates),
        ),
        *_PLANNED,
    ),
    steps=(
        _MEMSETS,
        _Block(
            "siblings",
            "multi-output fusion; on kernels, as it joins what fusion left",
            multi_output.merge_several_outputs,
        ),
        _ORDERED,
        _LISTED,
    ),
    program=(
        _Program(
            "answers",
            "kernels of conditions stand where they run; once all kernels are decided, before copies",
            put_questions_back,
            may_have_questions,
        ),
        _Program(
            "updated slices",
            "parts of stacks that a turn updates, multiplies with and hands on are written twice; on kernels, before copies",
            copies.keep_updated_slices,
            copies.may_stack_parts,
        ),
        _Program(
            "donated copies",
            "arguments whose memory an output takes while others may still read them; on the kernels that are left",
            copies.copy_donated,
            lambda draft: draft.layers == "scanned",
        ),
        _Program(
            "returned copies",
            "arguments and constants that are returned are copied; at the program's end alone",
            copies.copy_returned,
        ),
        _Program(
            "loop copies",
            "what loops change and may not overwrite, and what they hand on; on the final order, which says who is read last",
            copies.copy_loop_state,
            copies.has_loops,
        ),
        _Program(
            "fused copies",
            "copies of what a pass over elements has written are results of that pass; once all copies are there",
            copies.fuse_copies,
            copies.copies_something,
        ),
        _ORDERS,
        _Program("libraries", _LIBRARIES, frameworks.choose_libraries(padded=True)),
        *_LAYERS,
        _RECENCY,
    ),
)

# A framework on GPUs that runs op by op: no compiler merges its products, and it returns the very tensor.
EAGER_GPU = PassTable(
    ops=(
        *_CLEANED,
        _GPU_ALIASES,
        _Block(
            "whole functions",
            "functions that partitioning wrote out are one op again, as a framework has them; behind aliases, before fusion",
            frameworks.join_functions,
            frameworks.has_written_out,
        ),
        _MASKED,
        *_LAYOUTS,
        _STORED,
        _SCATTERS,
        *_SINGLE,
        _BUFFERS,
        _Block("fusion", "what a framework has one kernel for; on the ops that are left", fusion.fuse(EAGER)),
        *_PLANNED,
    ),
    steps=(
        _MEMSETS,
        _Block(
            "siblings",
            "ops with several results; on kernels",
            multi_output.merge_siblings_as(into_products=False, passing_on=False),
        ),
        _ORDERED,
    ),
    program=(
        _ORDERS,
        _Program("libraries", _LIBRARIES, frameworks.choose_libraries(padded=False)),
        *_LAYERS,
        _RECENCY,
    ),
)

_IMAGES = _Program(
    "laid-out images",
    "convolutions' images enter and leave the program in its own layout; on its last kernels, before recency",
    convolutions.lay_out_images,
    convolutions.has_images,
)

# Layouts and single ops are XLA:TPU's own business: its products take what leads to them in.
XLA_TPU = PassTable(
    ops=(
        *_CLEANED,
        _SHARED,
        _Block(
            "aliases",
            "views, transposes into products, reductions of single elements name a buffer; before fusion counts bytes",
            graph.resolve_aliases(TPU_ALIASES),
            graph.has_aliases(TPU_ALIASES),
        ),
        _BUFFERS,
        _Block("fusion", "XLA:TPU's: around products, and to reductions", fusion.fuse(TPU)),
        *_PLANNED,
        _Block(
            "spread inputs",
            "finds broadcasts that loops carry unchanged; before their bodies are lowered",
            control_flow.find_spread_inputs,
        ),
    ),
    steps=(
        _Block(
            "sunk reads",
            "bodies read what such broadcasts are made of; first, by kernels as fused",
            control_flow.sink_reads,
            lambda draft: bool(draft.program.spread),
        ),
        _Block(
            "allocations",
            "zeros that loops start from are not written; before siblings take them in",
            control_flow.drop_allocations,
        ),
        _Block(
            "siblings",
            "multi-output fusion, into products as well",
            multi_output.merge_siblings_as(into_products=True, passing_on=True, gathers_alone=True),
        ),
        _ORDERED,
    ),
    program=(
        _Program(
            "returned copies",
            "arguments and constants that are returned are copied; at the program's end alone",
            copies.copy_returned,
            lambda draft: draft.fusion == "compiler",
        ),
        _IMAGES,
        _Program(
            "recency",
            "the same of a memory that the compiler fills; on kernels in their order",
            schedule.note_placed_recency,
        ),
        _Program("reuse", "what stays on chip from turn to turn; by recency", schedule.note_reuse),
        _Program(
            "halves",
            "which bytes are f16; on kernels as they are at last",
            fused_kernels.note_halves,
            fused_kernels.some_are_halves,
        ),
    ),
)

# Arrays of cells and edge accelerators: fused as TPUs' programs are, but images have no vectors of sublanes and lanes to lie in.
NPU = replace(XLA_TPU, program=tuple(each for each in XLA_TPU.program if each is not _IMAGES))

# No compiler: every op is a kernel.
UNFUSED = PassTable(
    ops=(
        *_CLEANED,
        _Block("aliases", "views are names of a buffer", graph.resolve_aliases(VIEWS), graph.has_aliases(VIEWS)),
        _BUFFERS,
        _Block("fusion", "none: each op alone", fusion.leave_apart),
        *_PLANNED,
    ),
    steps=(),
    program=(_RECENCY,),
)

# By backend, then by who fuses. Nothing but GPUs has a framework that runs op by op.
TABLES: dict[str, dict[Fusion, PassTable]] = {
    "xla-gpu": {"compiler": XLA_GPU, "eager": EAGER_GPU},
    "xla-tpu": {"compiler": XLA_TPU, "eager": XLA_TPU},
    "npu": {"compiler": NPU, "eager": NPU},
    "none": {"compiler": UNFUSED, "eager": UNFUSED},
}
