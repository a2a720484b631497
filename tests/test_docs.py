"""The README and the pages of the site: their code runs, page by page, from top to bottom."""

import re
import tokenize
from pathlib import Path

import matplotlib
import pytest

from docs import recorded
from docs.code_blocks import BLOCK
from docs.reference import PACKAGES, public_names

ROOT = Path(__file__).resolve().parents[1]
CODE = re.compile(r"^```\w*\n(.*?)^```|`([^`\n]+)`", re.DOTALL | re.MULTILINE)
OUTPUT = re.compile(r"^```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
FALSE = re.compile(r"\bFalse\b")
# Folders of the site that are made, from benchmarks, examples, docstrings and `pictures.py`.
GENERATED = {"_build", "benchmarks", "drawn", "examples", "reference", "results"}
WRITTEN = (
    ROOT / "README.md",
    *(
        path
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if not GENERATED & set(path.relative_to(ROOT / "docs").parts)
    ),
)
PAGES = {
    path.relative_to(ROOT).as_posix(): blocks
    for path in WRITTEN
    if path.name != "tour.md"  # see `test_tour.py`
    and (blocks := BLOCK.findall(path.read_text(encoding="utf-8")))
}


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
# What Keras says at the end of a dataset whose length it did not know.
@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
def test_does_the_code_of_a_page_run(page, tmp_path, monkeypatch, capsys):
    """And prints no `False` unless a comment or the text says so; trades print what they quote."""
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page}
    for block in PAGES[page]:
        exec(compile(block, page, "exec"), names)
    text = (ROOT / page).read_text(encoding="utf-8")
    comments = re.findall(r"#.*", "\n".join(PAGES[page]))
    said = FALSE.findall("\n".join([BLOCK.sub("", text), *comments]))
    printed = capsys.readouterr().out
    assert len(FALSE.findall(printed)) <= len(said)
    if page.startswith("docs/trades/"):
        expected = "\n".join(OUTPUT.findall(text))
        assert NUMBER.sub("#", printed).split() == NUMBER.sub("#", expected).split()
        # Optimizers stop a little elsewhere on other processors.
        numbers = [[float(n) for n in NUMBER.findall(text)] for text in (printed, expected)]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.015, abs=0.006)


@pytest.mark.parametrize("package", PACKAGES)
def test_is_every_public_name_on_a_page_or_in_an_example(package):
    """In code there: many of the names are words too."""
    code = [a or b for path in WRITTEN for a, b in CODE.findall(path.read_text(encoding="utf-8"))]
    words = set(re.findall(r"\w+", "\n".join(code)))
    for path in (ROOT / "examples").glob("*.py"):
        with tokenize.open(path) as file:
            tokens = tokenize.generate_tokens(file.readline)
            words |= {token.string for token in tokens if token.type == tokenize.NAME}
    assert [name for name in public_names(package) if name not in words] == []


@pytest.mark.parametrize("name", recorded.names())
def test_is_the_record_of_an_example_from_its_present_code(name):
    code, printed = recorded.output(name)
    assert code == recorded.code_of(name), f"python -m docs record {name}"
    assert printed == recorded.without_progress(printed)
    assert printed.strip()
