from meshcast.recorded.files import LinkedFiles as LinkedFiles
from meshcast.recorded.files import link_traces as link_traces
