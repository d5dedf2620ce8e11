"""Software stacks: what runs a program, as far as a prediction depends on it; one small TOML file each (docs/stacks.md)."""

from meshcast.stacks.choices import Choice as Choice
from meshcast.stacks.choices import UsedBy as UsedBy
from meshcast.stacks.choices import choices_of as choices_of
from meshcast.stacks.loader import load_stack as load_stack
from meshcast.stacks.loader import stack_names as stack_names
from meshcast.stacks.stack import Attention as Attention
from meshcast.stacks.stack import Recomputation as Recomputation
from meshcast.stacks.stack import Stack as Stack
