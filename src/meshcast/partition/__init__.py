"""A sharded program becomes the program of one device, with explicit collectives, for any mesh size."""

from meshcast.partition.route import partition as partition
