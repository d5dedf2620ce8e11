"""Parallel plans: how a model of the zoo is trained on many devices, and the programs that come of it."""

from meshcast.plans.attending import Attending as Attending
from meshcast.plans.attending import attention_of as attention_of
from meshcast.plans.plan import Plan as Plan
from meshcast.plans.redundancy import Redundancy as Redundancy
from meshcast.plans.redundancy import redundancy as redundancy
from meshcast.plans.settings import check_device as check_device
from meshcast.plans.target import model_of as model_of
from meshcast.plans.target import plan_target as plan_target
