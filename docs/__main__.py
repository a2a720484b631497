"""Builds the site, or runs the examples whose output it shows.

`python -m docs` builds docs/_build/html. A warning is an error: a link inside the site that leads
nowhere, or a name `cgp.…` that has no page. So is a page that loads something from another host.

`python -m docs linkcheck` follows the links to other sites too.

`python -m docs record [name ...]` runs examples, and keeps what they print and draw: those named,
or all that have changed since they were recorded.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    """Returns the exit status."""
    if arguments[:1] == ["record"]:
        from docs import recorded

        return recorded.record(arguments[1:])
    from sphinx.cmd.build import main as sphinx

    from docs.external_requests import external_requests

    builder = "linkcheck" if arguments[:1] == ["linkcheck"] else "html"
    options = arguments[1:] if builder == "linkcheck" else arguments
    built = HERE / "_build" / builder
    strict = ["-W", "--keep-going", "-b", builder, "-j", "auto"]
    failed = sphinx([*strict, *options, str(HERE), str(built)])
    requests = external_requests(built)
    print("\n".join(requests), end="\n" if requests else "")
    return failed or len(requests)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
