"""What an argument was meant to be that a layer does not have."""

import contextlib
import difflib
import inspect
from collections.abc import Iterator


@contextlib.contextmanager
def names_told(kind: type) -> Iterator[None]:
    """Has the error of Keras about unknown arguments of a constructor say which there are.

    Args:
        kind: The class that is constructed.

    Raises:
        TypeError: In place of Keras's ValueError.
    """
    try:
        yield
    except ValueError as error:
        if "Unrecognized keyword arguments" not in str(error):
            raise
        parameters = inspect.signature(kind).parameters.values()
        known = [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        given = str(error).partition(": ")[2]
        names = [word for word in given.split("'") if word.isidentifier()]
        near = difflib.get_close_matches(names[0], known, n=1) if names else []
        hint = f"did you mean {near[0]}? " if near else ""
        raise TypeError(
            f"{kind.__name__} has no such arguments, got {given}: {hint}It takes {', '.join(known)}"
        ) from None
