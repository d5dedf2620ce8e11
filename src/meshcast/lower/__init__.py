"""What the backend compiler makes of the graph: fusions, library calls, collectives; kernels in launch order."""

from meshcast.lower.fusion import Fusion as Fusion
from meshcast.lower.kernel import BranchStep as BranchStep
from meshcast.lower.kernel import CompiledMemory as CompiledMemory
from meshcast.lower.kernel import CostKey as CostKey
from meshcast.lower.kernel import Kernel as Kernel
from meshcast.lower.kernel import KernelKind as KernelKind
from meshcast.lower.kernel import LoopStep as LoopStep
from meshcast.lower.kernel import LoweredProgram as LoweredProgram
from meshcast.lower.kernel import Lowering as Lowering
from meshcast.lower.kernel import Schedule as Schedule
from meshcast.lower.lowering import lower as lower
from meshcast.lower.scheduled import lower_hlo as lower_hlo
