"""Builds the site, or runs the examples whose output it shows.

`python -m docs` builds docs/_build/html; a warning is an error, and so is a link inside the site
that leads nowhere, or a page that loads something from elsewhere.

`python -m docs record [name ...]` runs examples, and keeps what they print and draw: those named,
or all that have changed since they were recorded.
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

    from docs.links import faults

    failed = sphinx(
        ["-W", "--keep-going", "-b", "html", "-j", "auto", *arguments, str(HERE), str(BUILT)]
    )
    found = faults(BUILT)
    print("\n".join(found), end="\n" if found else "")
    return failed or len(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
