"""What may be asked of a prediction: options, software stacks, fidelities."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
