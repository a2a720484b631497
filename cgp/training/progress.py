"""Where progress bars appear unasked: where somebody sees them move."""

import sys


def where_watched(verbose: int | str) -> int | str:
    """`verbose`, but 0 for "auto" where the output is neither a terminal nor a notebook.

    A bar redraws its line, which a file or a pipe keeps a thousand times over.

    Args:
        verbose: 0, 1, 2 or "auto", an argument of a method of training.

    Raises:
        ValueError: Anything else.

    Example:
        >>> from cgp.training.progress import where_watched
        >>> where_watched(1)
        1
    """
    if verbose not in (0, 1, 2, "auto"):
        raise ValueError(f'verbose must be 0, 1, 2 or "auto", got {verbose!r}')
    return verbose if verbose != "auto" or _is_watched() else 0


def _is_watched() -> bool:
    output = sys.stdout
    in_notebook = type(output).__module__.startswith("ipykernel.")
    return in_notebook or bool(hasattr(output, "isatty") and output.isatty())
