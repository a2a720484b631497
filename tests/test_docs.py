"""The README and the pages of the site: their code runs, page by page, from top to bottom."""

import re
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = {
    path.relative_to(ROOT).as_posix(): blocks
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if path.name != "tour.md"  # see `test_tour.py`
    and (blocks := BLOCK.findall(path.read_text(encoding="utf-8")))
}


@pytest.mark.parametrize("page", PAGES)
# What Keras says at the end of a dataset whose length it did not know.
@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
def test_does_the_code_of_a_page_run(page, tmp_path, monkeypatch):
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page}
    for block in PAGES[page]:
        exec(compile(block, page, "exec"), names)
