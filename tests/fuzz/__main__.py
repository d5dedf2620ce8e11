"""`python -m tests.fuzz`: runs a campaign, goes on with one, or tries one input again."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.campaign import Campaign, Tally, made
from tests.fuzz.readers import READERS

SEED = 15
SAVED_EVERY = 100


def main() -> int:
    """The exit code: 0 where every input ended as it should, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000, help="inputs in all (%(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="of the campaign (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="run folder (%(default)s)")
    parser.add_argument(
        "--only", action="append", choices=[each.name for each in READERS], help="this reader alone; may be repeated"
    )
    parser.add_argument("--again", action="store_true", help="from the first input, though the folder has a campaign")
    parser.add_argument("--input", type=int, metavar="N", help="input N alone: its command, and how it ends")
    options = parser.parse_args()
    if options.again:
        shutil.rmtree(options.folder, ignore_errors=True)
    campaign = Campaign(options.folder, seed=options.seed, only=options.only or ())
    if options.input is not None:
        return _one(campaign, options.input)
    started, first = time.monotonic(), campaign.tally.done
    try:
        for one, _, verdict in campaign.run(options.inputs):
            if verdict.found:
                print(f"\r{one.number} {one.reader.name}: {verdict.kind}: {verdict.signature}", flush=True)
            if one.number % SAVED_EVERY == 0:
                campaign.save()
            if sys.stderr.isatty() or one.number % 500 == 0:
                _progress(campaign.tally, options.inputs, started, first)
    except KeyboardInterrupt:
        print(f"\nstopped after {campaign.tally.done:,} inputs; the same command goes on from there", file=sys.stderr)
    print(file=sys.stderr)
    print(summary(campaign.tally))
    if campaign.tally.found:
        print(f"\nfindings, each with its input and command, are in {options.folder / 'findings'}")
    return 1 if campaign.tally.found else 0


def _progress(tally: Tally, inputs: int, started: float, first: int) -> None:
    """One line on stderr, written over itself."""
    rate = (tally.done - first) / (time.monotonic() - started)
    left = (inputs - tally.done) / rate / 60
    said = f"{tally.done:,} of {inputs:,} inputs, {tally.found} found, {rate:.1f} a second, {left:.0f} min left"
    print(f"\r{said}  ", end="", file=sys.stderr, flush=True)


def summary(tally: Tally) -> str:
    """A line a reader, and one a kind of finding."""
    lines = [f"{'reader':18}{'inputs':>8}  ends"]
    total: Counter[str] = Counter()
    for name, ends in sorted(tally.ends.items()):
        total += ends
        lines.append(f"{name:18}{ends.total():8,}  {_said(ends)}")
    lines.append(f"{'all':18}{total.total():8,}  {_said(total)}")
    lines.append(f"slowest: {tally.slowest[0]:.1f} s of CPU, input {tally.slowest[1]}")
    return "\n".join([*lines, *(f"{count:6}  {name}" for name, count in tally.findings.most_common())])


def _said(ends: Counter[str]) -> str:
    return ", ".join(f"{end if not end.isdigit() else 'exit ' + end}: {count:,}" for end, count in sorted(ends.items()))


def _one(campaign: Campaign, number: int) -> int:
    one = made(
        campaign.tally.seed,
        number,
        [each for each in READERS if not campaign.tally.only or each.name in campaign.tally.only],
    )
    answer, verdict = campaign.tried(one)
    campaign.close()
    print(one.command)
    print(answer.out, answer.err, f"exit code {answer.code}; {verdict.kind} {verdict.signature}", sep="\n")
    if one.file:
        kept = campaign.folder / "inputs" / one.file
        kept.write_bytes(one.data)
        print(f"the input is {kept}; the command runs in {kept.parent}")
    return 1 if verdict.found else 0


if __name__ == "__main__":
    sys.exit(main())
