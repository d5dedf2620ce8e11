"""What would help: changes that a user can make with a flag, each predicted, so that the promise is what the flag gives."""

from meshcast.jobs.levers.candidate import Candidate as Candidate
from meshcast.jobs.levers.candidate import Question as Question
from meshcast.jobs.levers.trying import TRIED as TRIED
from meshcast.jobs.levers.trying import comparable as comparable
from meshcast.jobs.levers.trying import how_many as how_many
from meshcast.jobs.levers.trying import with_levers as with_levers
