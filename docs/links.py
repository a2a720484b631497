"""Checks a built site: its links lead somewhere, and a page loads nothing from elsewhere."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser fetches by itself; a link is followed by whoever clicks on it.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
NOT_FETCHED = {"canonical", "author", "search", "index", "next", "prev"}  # of <link rel=…>


class Page(HTMLParser):
    """What a page loads, where its links lead, and which anchors it has."""

    def __init__(self, path: Path):
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called by the parser for each tag."""
        found = dict(attrs)
        self.anchors |= {found[key] for key in ("id", "name") if found.get(key)}
        target = found.get(LOADED.get(tag, ""))
        if target and not (tag == "link" and found.get("rel") in NOT_FETCHED):
            self.loaded.append(target)
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])


def faults(site: Path) -> list[str]:
    """What is wrong with a site, a line each; none if nothing is.

    Args:
        site: The folder of its pages.
    """
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        found += [f"{name} loads {url}" for url in page.loaded if urlsplit(url).netloc]
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors if target in pages else None
            if not target.is_file():
                found.append(f"{name} links to {link}, which is no file")
            elif parts.fragment and anchors is not None and unquote(parts.fragment) not in anchors:
                found.append(f"{name} links to {link}, where there is no such anchor")
    for path in site.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        urls = re.findall(r"(?:url\(|@import\s)\s*['\"]?((?:https?:)?//[^'\")\s]+)", text)
        found += [f"{path.relative_to(site)} loads {url}" for url in urls]
    return found
