"""Checks a built site: its links lead somewhere, and a page loads nothing from elsewhere."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes of what a browser fetches by itself; a link is followed by whoever clicks on it.
LOADED = {"src", "srcset", "imagesrcset", "poster"}
OF_TAGS = {"object": {"data"}, "image": {"href", "xlink:href"}, "use": {"href", "xlink:href"}}
OF_STYLES = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)", re.IGNORECASE)
NOT_FETCHED = {"canonical", "author", "search", "index", "next", "prev"}  # of <link rel=…>


class Page(HTMLParser):
    """What a page loads, where its links lead, and which anchors it has."""

    def __init__(self, path: Path):
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called by the parser for each tag."""
        found = dict(attrs)
        self.anchors |= {found[key] for key in ("id", "name") if found.get(key)}
        for key in (LOADED | OF_TAGS.get(tag, set())) & found.keys():
            # A set of pictures: addresses with a width each, between commas.
            several = key.endswith("srcset")
            entries = (found[key] or "").split(", ") if several else [found[key] or ""]
            self.loaded += [entry.split()[0] for entry in entries if entry.strip()]
        if tag == "link" and found.get("href") and found.get("rel") not in NOT_FETCHED:
            self.loaded.append(found["href"])
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        self.loaded += OF_STYLES.findall(found.get("style") or "")

    def handle_endtag(self, tag: str) -> None:
        """Called by the parser where an element ends: what follows is not of its style sheet."""
        self.lasttag = ""

    def handle_data(self, data: str) -> None:
        """Called by the parser for text; that of a style sheet loads things too."""
        if self.lasttag == "style":
            self.loaded += OF_STYLES.findall(data)


def faults(site: Path) -> list[str]:
    """What is wrong with a site, a line each; none if nothing is.

    Args:
        site: The folder of its pages.
    """
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    found = [] if pages else [f"{site} has no page"]
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
        urls = OF_STYLES.findall(path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(site)} loads {url}" for url in urls]
    return found
