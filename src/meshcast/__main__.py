"""`python -m meshcast`."""

from meshcast.cli import main

main()
