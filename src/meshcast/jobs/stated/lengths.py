"""Sequences that are shorter than they are told: texts that are not filled up, or several of which make up one.

An encoder that leaves out what only fills sequences up (`unpad`), or that puts several texts into one sequence (`packed`),
computes as many tokens as texts have. Of the Wikipedia texts that BERT and MLPerf's BERT are trained on half of the tokens of
sequences of 512 are padding (Krell, Kosec, Perez and Fitzgibbon 2021, arXiv 2107.02027, abstract and section 1; MLPerf's packed
submissions have two texts a sequence, `PACKING_FACTOR=2` of config_DGXH100_434x8x2x1_pack_clipafter.sh in
mlcommons/training_results_v3.1).
"""

from __future__ import annotations

from meshcast.jobs.stated.findings import Findings
from meshcast.jobs.stated.run import StatedRun

_UNPADDED = frozenset({"unpad", "unpadded", "unpad_fmha", "packed", "packed_samples"})
_SEQUENCE = 512
_FILLED = 0.5  # of a sequence of 512


def computed_length(run: StatedRun, *, encoder: bool, found: Findings) -> int | None:
    """Tokens that are computed for each sequence of a run, on average; None where its model reads none."""
    seq, mean = run.counts.get("seq"), run.extra.whole("mean_seq")
    if seq is None or not encoder:
        return seq
    if mean:
        found.assumes(f"sequences of {mean} tokens, the mean length, in place of {seq}: what fills them up is left out")
        return min(mean, seq)
    if not _UNPADDED & run.extra.words:
        return seq
    if seq != _SEQUENCE:
        found.assumes(f"sequences of all {seq} tokens: how long texts are is told by mean_seq=N alone")
        return seq
    short = round(seq * _FILLED)
    found.assumes(f"sequences of {short} tokens: half of those of {seq} are padding in Wikipedia's texts, and left out")
    return short
