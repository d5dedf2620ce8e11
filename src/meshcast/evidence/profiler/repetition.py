"""A sequence cut into parts that are alike: the steps of a trace, or the layers of a step.

Two ways to cut. By a launch that is seen so many times: before each of its runs. By a shift: where every launch is seen more
often than there are parts, the sequence is shifted against itself by the distances between the rarest launch's runs, and where it
falls on itself, that is a part's length.

Parts are uniform if every one of them launches the same, within `UNIFORM` of its launches. Layers inside of steps are not: what
comes before the first and after the last layer makes one of them longer. So the finest uniform cut is that of the steps, unless
a step is nothing but its own parts over and over (a stack of layers alone, a loop); a prediction of the step, cut likewise,
tells which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

ALIKE = 0.9  # of a part's launches that two parts have in common
UNIFORM = 0.95  # likewise, of every part
MOST_SHIFTS = 200
COPIES = 3  # of a predicted step, one after the other

Cut = tuple[int, int]  # from where to where


def cuts_by_count(tokens: Sequence[Hashable], seen: Counter[Hashable], times: int) -> list[Cut]:
    """The sequence cut before each run of the first token that is seen so many times."""
    anchor = next(token for token in tokens if seen[token] == times)
    places = [place for place, token in enumerate(tokens) if token == anchor]
    return list(zip(places, [*places[1:], len(tokens)], strict=True))


def cuts_by_shift(tokens: Sequence[Hashable], seen: Counter[Hashable]) -> Iterator[list[Cut]]:
    """The sequence cut into equal parts by every shift that it falls on itself with, the shortest first."""
    numbers = {token: number for number, token in enumerate(seen)}
    sequence = np.array([numbers[token] for token in tokens])
    rarest = (
        min((times, numbers[token]) for token, times in seen.items() if times > 1)[1] if len(seen) < len(tokens) else 0
    )
    places = np.flatnonzero(sequence == rarest)
    # From its first launch on, and from one in the middle: the first may be of the warm-up.
    middle = len(places) // 2
    shifts = {int(place - places[0]) for place in places[1 : 1 + MOST_SHIFTS]}
    shifts |= {int(place - places[middle]) for place in places[middle + 1 : middle + 1 + MOST_SHIFTS]}
    for shift in sorted(shifts):
        same = sequence[:-shift] == sequence[shift:]
        begins = np.flatnonzero(same)
        if not len(begins) or same[begins[0] :].mean() < ALIKE:
            continue
        parts = [(at, min(at + shift, len(tokens))) for at in range(int(begins[0]), len(tokens), shift)]
        yield parts if parts[-1][1] - parts[-1][0] >= ALIKE * shift else parts[:-1]


def likeness(part: Counter[Hashable], other: Counter[Hashable]) -> float:
    """The share of launches that two parts have in common."""
    return (part & other).total() / max(part.total(), other.total(), 1)


def middle_part(tokens: Sequence[Hashable], cuts: Sequence[Cut]) -> Counter[Hashable]:
    """The launches of the part whose length is the median."""
    start, end = sorted(cuts, key=lambda cut: cut[1] - cut[0])[len(cuts) // 2]
    return Counter(tokens[start:end])


def uniform(tokens: Sequence[Hashable], cuts: Sequence[Cut]) -> list[Cut]:
    """The cuts, if they are uniform; none otherwise.

    The first may have warm-up in it, beside what the others have, and stays; the last may be the beginning of a part, which the
    trace ends in, and goes. Two at least are alike.
    """
    if len(cuts) < 2:
        return []
    model = middle_part(tokens, cuts)
    parts = [Counter(tokens[start:end]) for start, end in cuts]
    kept = list(cuts)
    if likeness(parts[-1], model) < UNIFORM:
        if parts[-1] - model:  # it has what the others do not have
            return []
        kept, parts = kept[:-1], parts[:-1]
    alike = [likeness(part, model) >= UNIFORM for part in parts]
    warm_up = (parts[0] & model).total() >= UNIFORM * model.total()
    return kept if sum(alike) >= 2 and all(alike[1:]) and (alike[0] or warm_up) else []


def uniform_cuts(tokens: Sequence[Hashable]) -> list[list[Cut]]:
    """Every uniform cut that is found, the one into the most parts first."""
    seen = Counter(tokens)
    options = [cuts_by_count(tokens, seen, times) for times in sorted({n for n in seen.values() if n > 1})]
    options += list(cuts_by_shift(tokens, seen))
    found = [cuts for cuts in (uniform(tokens, option) for option in options) if cuts]
    return sorted(found, key=len, reverse=True)


def repetitions(tokens: Sequence[Hashable]) -> int:
    """The number of equal parts that a step consists of; 1 where nothing repeats."""
    found = uniform_cuts([*tokens] * COPIES)
    return max(1, len(found[0]) // COPIES) if found else 1


def merged(cuts: Sequence[Cut], times: int) -> list[Cut]:
    """Parts joined into larger ones, `times` of them each; a rest at the end is dropped."""
    whole = len(cuts) - len(cuts) % times
    return [(cuts[at][0], cuts[at + times - 1][1]) for at in range(0, whole, times)]
