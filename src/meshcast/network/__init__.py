"""Time on the wire: how groups spread over a cluster, and collectives in closed form."""

from meshcast.network.collective import plan_collective as plan_collective
from meshcast.network.plan import CollectivePlan as CollectivePlan
from meshcast.network.plan import Stage as Stage
from meshcast.network.spread import LevelSpread as LevelSpread
from meshcast.network.spread import spread_over_levels as spread_over_levels
