"""`python -m meshcast`."""

import os
import sys


def _forget_current_folder() -> None:
    """`-m` puts the current folder first on the search path: what lies there is data, and no `jax.py` of it is ours to run.

    Targets that are Python (`path.py:function`) bring their folder themselves. A folder that we ourselves were found in stays.
    """
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not sys.flags.safe_path and sys.path[0] != ours:
        del sys.path[0]


_forget_current_folder()

from meshcast.cli import main  # noqa: E402 - nothing is imported before

main()
