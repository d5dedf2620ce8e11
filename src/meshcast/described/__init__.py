"""A prediction's description of itself: what shaped it (`inputs`), and what it gets done (`throughput`)."""

from meshcast.described.asked import Asked as Asked
from meshcast.described.asked import asked_of as asked_of
from meshcast.described.inputs import inputs_of as inputs_of
from meshcast.described.recipes import unsaid_recipes as unsaid_recipes
from meshcast.described.throughput import throughput_of as throughput_of
