"""A prediction's description of itself: what shaped it (`inputs`), and what it gets done (`throughput`)."""

from meshcast.jobs.described.asked import Asked as Asked
from meshcast.jobs.described.asked import asked_of as asked_of
from meshcast.jobs.described.inputs import inputs_of as inputs_of
from meshcast.jobs.described.memory_words import with_memory_words as with_memory_words
from meshcast.jobs.described.recipes import unsaid_recipes as unsaid_recipes
from meshcast.jobs.described.throughput import throughput_of as throughput_of
