"""The op graph of one device's program, read from StableHLO: FLOPs, bytes, geometry, loops, collectives."""

from meshcast.workload.graph import Block as Block
from meshcast.workload.graph import Collective as Collective
from meshcast.workload.graph import Cost as Cost
from meshcast.workload.graph import Op as Op
from meshcast.workload.graph import OpKind as OpKind
from meshcast.workload.graph import Tensor as Tensor
from meshcast.workload.reader import ReadOptions as ReadOptions
from meshcast.workload.reader import read_workload as read_workload
from meshcast.workload.workload import Totals as Totals
from meshcast.workload.workload import Workload as Workload
