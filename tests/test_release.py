"""What a release says of itself in several places is the same everywhere."""

import re
import tomllib
from pathlib import Path

import cgp

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_is_the_same_everywhere():
    version = PROJECT["project"]["version"]
    assert cgp.__version__ == version
    cited = dict(re.findall(r'^([\w-]+): "?([\w.-]+)"?$', read("CITATION.cff"), re.MULTILINE))
    latest, date = re.search(r"^## \[(\d[\w.]*)\] - (\S+)$", read("CHANGELOG.md"), re.M).groups()
    assert cited["version"] == latest
    assert cited["date-released"] == date
    # Between releases, the version is the next one's, under development.
    assert version == latest or ".dev" in version


def test_the_changelog_has_a_place_for_what_is_not_released():
    assert "## [Unreleased]\n" in read("CHANGELOG.md")


def test_links_to_the_repository_are_to_one():
    urls = PROJECT["project"]["urls"]
    assert all(url.startswith(urls["Source"]) for url in urls.values())
    assert f"repository-code: {urls['Source']}\n" in read("CITATION.cff")
    assert urls["Source"] in read("CHANGELOG.md")


def test_does_the_sdist_take_all_folders_and_papers_and_no_page_that_is_made():
    manifest = read("MANIFEST.in")
    made = re.findall(r"^(docs/\S+)/$", read(".gitignore"), re.MULTILINE)
    assert made
    assert re.findall(r"^prune (\S+)$", manifest, re.MULTILINE) == made
    for path in [*sorted(ROOT.glob("*.md")), ROOT / "CITATION.cff", ROOT / "noxfile.py"]:
        if path.name != "README.md":  # setuptools takes it
            assert re.search(rf"^include .*\b{re.escape(path.name)}", manifest, re.MULTILINE), path
    for folder in ("benchmarks", "cgp/native/source", "docs", "examples", "tests"):
        assert f"graft {folder}\n" in manifest
