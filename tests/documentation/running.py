"""Commands of pages and of help, as tests run them: which are run over less, and which are not run here, with the reason."""

from __future__ import annotations

import glob
import re
import shlex

# What would take minutes is run with these words added: the same command, over fewer rows.
BOUNDS = {
    r"calibrate --profile(?!.*--families)": "--families gemm",
    r"calibrate --profile": "--limit 2 --minutes 0.2",
    r"predict (?!.*--levers)": "--levers none",  # tests/jobs/levers runs them
    r"report (?!designs)(?!.*--levers)": "--levers none",
    r"compare out/llama": "--fidelity roofline",
    r"validate runs": "--limit 1",
    r"validate programs data/measured/h200-(zoo|corpus-steps|later-|exam-|more-models|vector-products)": "--limit 1",
    r"validate ops (?!.*--limit)": "--limit 30",
    r"generate --suite (?!.*--count)": "--count 1",
}
# Not run here, with the reason. Their files and flags are still checked.
NOT_RUN = {
    r"^make (?!demo)": "the target's recipe is checked by `make -n`",
    r"doctor --install": "fetches packages; tests/estimate/outside runs what it installs",
    r"^meshcast (plan|explore) ": "minutes of searching; tests/explore/test_recipes.py runs them, made smaller",
    r"^meshcast serve": "serves until it is ended; tests/serve/test_browser.py starts it",
    r"^python benchmarks/": "minutes of measuring",
    r"calibrate --torch-host": "needs torch and a GPU; tests/programs/test_host_pace.py has what it does",
    r"^meshcast validate sets": "minutes of predictions; tests/evidence/validate judges small sets",
    r"^meshcast validate generated": "minutes of predictions; tests/traces/synthetic evaluates small graphs",
    r"^python -m benchmarks\.": "needs the libraries whose programs it captures",
    r"^python -m venv ": "an environment that nothing here uses",
    r"^python -m meshcast\.": "minutes of fitting; tests/evidence fits small tables",
}


def not_run(text: str) -> str:
    """Why a command is not run here; empty where it is."""
    return next((reason for pattern, reason in NOT_RUN.items() if re.search(pattern, text)), "")


def words_of(text: str) -> list[str]:
    """The words of a command as a shell would hand them over, with those that bound it."""
    for pattern, bound in BOUNDS.items():
        if re.search(pattern, text):
            text += " " + bound
    words = []
    for word in shlex.split(text):
        words += (sorted(glob.glob(word)) or [word]) if "*" in word else [word]
    return words


def lacks_an_extra(said: str) -> bool:
    """Whether a command that is unsupported here names the extra that it needs, with the command that brings it."""
    return "pip install " in said or "meshcast doctor --install" in said
