"""Pictures for papers and mails: `--plot FILE.svg` or `.png` of the verbs that predict and search, drawn by matplotlib."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
