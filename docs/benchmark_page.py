"""The page of the benchmarks: that of the repository, without links that lead off the site."""

import re
import shutil
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RESULTS = BENCHMARKS / "results"


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
    (folder / "index.md").write_text(text, encoding="utf-8")
