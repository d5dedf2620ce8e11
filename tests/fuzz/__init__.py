"""A mutation fuzzer over everything that meshcast reads: `make fuzz`, or `python -m tests.fuzz --help`.

Input N of a seed is always the same bytes and the same command, so that a campaign can be stopped and gone on with, and
any input be asked for again by its number. `docs/fuzzing.md` is its page.
"""
