"""Time on the wire: how groups spread over a cluster, and collectives in closed form."""

from meshcast.network.collective import CollectiveTime as CollectiveTime
from meshcast.network.collective import collective_time as collective_time
from meshcast.network.spread import members_per_level as members_per_level
