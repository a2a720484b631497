"""A page for each example: its docstring, its picture, what it prints, and its code."""

import ast
import re
import shutil
from pathlib import Path

from docs import recorded

INDEX = """# Examples

Each example is a page to learn one idea from, with the baselines of its trade in the same run. The
figures and the pictures are those of a run of the code that is shown.

::::{grid} 1 2 3 3
:gutter: 3

"""
CARD = """:::{{grid-item-card}} {title}
:link: {name}
:link-type: doc
{picture}:::

"""


def write_pages(docs: Path) -> None:
    """Writes the pages into `docs/examples`, those that have changed.

    Args:
        docs: The folder of the site.
    """
    folder = docs / "examples"
    folder.mkdir(exist_ok=True)
    index, names = INDEX, recorded.names()
    for name in names:
        source = (recorded.EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
        title, text = _title_and_text(ast.get_docstring(ast.parse(source)) or name)
        drawn = recorded.picture(name)
        if drawn is not None:
            shutil.copy(drawn, folder / f"{name}.png")
        shutil.copy(recorded.EXAMPLES / f"{name}.py", folder / f"{name}.py")
        index += CARD.format(
            title=title, name=name, picture=f":img-bottom: {name}.png\n" if drawn else ""
        )
        _write(folder / f"{name}.md", _page(name, title, text, drawn is not None))
    index += "::::\n\n```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```\n"
    _write(folder / "index.md", index)


def _page(name: str, title: str, text: str, has_picture: bool) -> str:
    blocks = [f"# {title}", f"{{download}}`{name}.py <{name}.py>`", text]
    if has_picture:
        blocks.append(f"![{title}]({name}.png)")
    _, printed = recorded.output(name)
    if printed.strip():
        blocks.append(f"## What it prints\n\n```text\n{printed.rstrip()}\n```")
    blocks.append(f"## The code\n\n```{{literalinclude}} {name}.py\n:language: python\n```")
    return "\n\n".join(blocks) + "\n"


def _title_and_text(docstring: str) -> tuple[str, str]:
    """The first paragraph as a title, and the other ones; indented ones become literal blocks."""
    first, *paragraphs = docstring.split("\n\n")
    text = [
        f"```text\n{_unindented(paragraph)}\n```" if paragraph.startswith("    ") else paragraph
        for paragraph in paragraphs
    ]
    return re.sub(r"\s+", " ", first).rstrip("."), "\n\n".join(text)


def _unindented(paragraph: str) -> str:
    return "\n".join(line[4:] for line in paragraph.splitlines())


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
