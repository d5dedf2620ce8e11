"""Captures programs of public libraries as StableHLO, without a GPU and without weights: see docs/corpus.md.

    python -m benchmarks.corpus --library keras -o FOLDER

`record` says what a program is and keeps the index, `capture` lowers, `shapes` helps to state arguments; every other module
holds the programs of one library or family, and imports that library.
"""
