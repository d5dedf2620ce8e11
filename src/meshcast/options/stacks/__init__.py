"""Software stacks: what runs a program, as far as a prediction depends on it; one small TOML file each (docs/stacks.md)."""

from meshcast.options.stacks.choices import StackChoice as StackChoice
from meshcast.options.stacks.choices import UsedBy as UsedBy
from meshcast.options.stacks.choices import choices_of as choices_of
from meshcast.options.stacks.loader import load_stack as load_stack
from meshcast.options.stacks.loader import stack_names as stack_names
from meshcast.options.stacks.stack import Recomputation as Recomputation
from meshcast.options.stacks.stack import Stack as Stack
from meshcast.options.stacks.stack import StackAttention as StackAttention
