"""Builds the site, or runs the examples whose output it shows.

`python -m docs` builds docs/_build/html; a warning is an error. `python -m docs record [name ...]`
runs examples, and keeps what they print and draw: those named, or all that have changed since they
were recorded.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
BUILT = HERE / "_build" / "html"


def main(arguments: list[str]) -> int:
    """Returns the exit status."""
    if arguments[:1] == ["record"]:
        from docs import recorded

        return recorded.record(arguments[1:])
    from sphinx.cmd.build import main as sphinx

    return sphinx(
        ["-W", "--keep-going", "-b", "html", "-j", "auto", *arguments, str(HERE), str(BUILT)]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
