"""What the pages of a built site load from other hosts: nothing, so that they work offline."""

import re
from html.parser import HTMLParser
from pathlib import Path

ADDRESS = re.compile(r"(?:https?:)?//[^'\"),\s]+")
IN_STYLES = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)", re.IGNORECASE)
NOT_FETCHED = {"canonical", "author", "search", "index", "next", "prev"}  # of <link rel=…>


class Page(HTMLParser):
    """The addresses on other hosts that a browser fetches by itself, without a click."""

    def __init__(self, path: Path):
        super().__init__()
        self.requests: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called by the parser for each tag."""
        if tag in ("a", "meta") or (tag == "link" and dict(attrs).get("rel") in NOT_FETCHED):
            return
        for name, text in attrs:
            if not name.startswith("xmlns"):
                self.requests += ADDRESS.findall(text or "")

    def handle_data(self, data: str) -> None:
        """Called by the parser for text, of which style sheets load something too."""
        if self.cdata_elem == "style":
            self.requests += IN_STYLES.findall(data)


def external_requests(site: Path) -> list[str]:
    """A line for each request to another host by a page or a style sheet in the folder `site`."""
    requests = {path: Page(path).requests for path in site.rglob("*.html")}
    requests |= {path: IN_STYLES.findall(path.read_text("utf-8")) for path in site.rglob("*.css")}
    return [f"{path.relative_to(site)} loads {url}" for path in requests for url in requests[path]]
