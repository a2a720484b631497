"""The page of the benchmarks: that of the repository, with its history in a table."""

import json
import re
import shutil
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RESULTS = BENCHMARKS / "results"
HISTORY = """## History

What each run measured of each bar, at the sizes of the first table, by date and commit: a bar that
a run did not measure has no figure. The machine is one that others use too.

"""


def write_page(docs: Path) -> None:
    """Writes the page into `docs/benchmarks`, with its pictures.

    Args:
        docs: The folder of the site.
    """
    folder = docs / "benchmarks"
    folder.mkdir(exist_ok=True)
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    for picture in re.findall(r"\]\(results/([\w.]+\.png)\)", text):
        shutil.copy(RESULTS / picture, folder / picture)
    text = text.replace("](results/", "](")
    # Scripts and records are in the repository, and not on the site.
    text = re.sub(r"\[(`[^`]+`)\]\((?!\w+\.png)[\w./]+\)", r"\1", text)
    text = re.sub(r"^    (?=python)", "$ ", text, flags=re.MULTILINE)
    text = re.sub(r"((?:^\$ .*\n)+)", r"```console\n\1```\n", text, flags=re.MULTILINE)
    (folder / "index.md").write_text(f"{text.rstrip()}\n\n{HISTORY}{_history()}\n", "utf-8")


def _history() -> str:
    lines = (RESULTS / "history.jsonl").read_text(encoding="utf-8").splitlines()
    runs = [json.loads(line) for line in lines]
    bars = dict.fromkeys(bar for run in runs for bar in run["figures"])
    heads = [f"{run['date']} `{run['git']}`" for run in runs]
    rows = [["what", *heads], ["---", *["---:" for _ in runs]]]
    rows += [[bar, *(_shown(run["figures"].get(bar, {})) for run in runs)] for bar in bars]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _shown(figures: dict[str, float | None]) -> str:
    return ", ".join("–" if value is None else f"{value:.2g}" for value in figures.values())
