"""Parallel plans: how a model of the zoo is trained on many devices, and the programs that come of it."""

from meshcast.jobs.planned.attending import Attending as Attending
from meshcast.jobs.planned.attending import attention_of as attention_of
from meshcast.jobs.planned.redundancy import Redundancy as Redundancy
from meshcast.jobs.planned.redundancy import redundancy as redundancy
from meshcast.jobs.planned.settings import check_device as check_device
from meshcast.jobs.planned.target import model_of as model_of
from meshcast.jobs.planned.target import no_model as no_model
from meshcast.jobs.planned.target import plan_target as plan_target
from meshcast.jobs.planned.target import planned_model as planned_model
from meshcast.zoo import Plan as Plan
