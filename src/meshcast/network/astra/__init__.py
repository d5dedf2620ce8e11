"""ASTRA-sim: a preset of its rules for one collective, its files, and the program itself where it is installed."""

from meshcast.hardware.astra import AstraNetwork as AstraNetwork
from meshcast.hardware.astra import Dimension as Dimension
from meshcast.hardware.astra import cluster_network as cluster_network
from meshcast.hardware.astra import network_cluster as network_cluster
from meshcast.hardware.astra import network_text as network_text
from meshcast.hardware.astra import read_network as read_network
from meshcast.network.astra.config import BACKENDS as BACKENDS
from meshcast.network.astra.config import KINDS as KINDS
from meshcast.network.astra.config import AstraSystem as AstraSystem
from meshcast.network.astra.config import Backend as Backend
from meshcast.network.astra.config import Kind as Kind
from meshcast.network.astra.files import RemoteMemory as RemoteMemory
from meshcast.network.astra.files import groups_text as groups_text
from meshcast.network.astra.files import read_groups as read_groups
from meshcast.network.astra.files import read_remote_memory as read_remote_memory
from meshcast.network.astra.files import read_system as read_system
from meshcast.network.astra.files import remote_memory_text as remote_memory_text
from meshcast.network.astra.files import system_text as system_text
from meshcast.network.astra.files import write_inputs as write_inputs
from meshcast.network.astra.model import astra_plan as astra_plan
from meshcast.network.astra.model import finish_ns as finish_ns
from meshcast.network.astra.model import preset_system as preset_system
from meshcast.network.astra.model import without_effect as without_effect
from meshcast.network.astra.outside import AstraRun as AstraRun
from meshcast.network.astra.outside import astra_available as astra_available
from meshcast.network.astra.outside import run_collective as run_collective
