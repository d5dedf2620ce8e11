from meshcast.recorded.files import LinkedFiles as LinkedFiles
from meshcast.recorded.files import link_traces as link_traces
from meshcast.recorded.telling import understanding_json as understanding_json
from meshcast.recorded.telling import understanding_sections as understanding_sections
from meshcast.recorded.understanding import RankTimes as RankTimes
from meshcast.recorded.understanding import Understanding as Understanding
from meshcast.recorded.understanding import understood as understood
