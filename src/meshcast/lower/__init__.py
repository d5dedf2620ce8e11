"""What the backend compiler makes of the graph: fusions, library calls, collectives; kernels in launch order.

`lowering` takes a program block by block through the passes that `pass_tables` names for its backend. The passes of a room are in
its `passes`, those of several rooms in `block_passes`; all of them change a `draft`. What comes out is a `kernel.LoweredProgram`.
The rooms, in the order in which a block meets them: `control_flow`, `graph`, `layouts`, `products`, `convolutions`, `fusion`,
`fused_kernels`, `multi_output`, `copies`, `schedule`; then what frameworks do otherwise (`frameworks`, `overlap`), and kernels as
the real compilers made them (`compiled`).
"""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
