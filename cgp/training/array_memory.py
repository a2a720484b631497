"""Checks of the memory that arrays need whose sizes come from a config, before it is allocated."""

import contextlib
import contextvars
import os
from collections.abc import Iterator

_bytes_of_file: contextvars.ContextVar[int | None] = contextvars.ContextVar(
    "_bytes_of_file", default=None
)


@contextlib.contextmanager
def arrays_of_file(size: int | None) -> Iterator[None]:
    """A context in which weights are read from a file of this many bytes, if known, unpacked."""
    token = _bytes_of_file.set(size)
    try:
        yield
    finally:
        _bytes_of_file.reset(token)


def check_size(count: int, holder: str, dtype: str, remedy: str) -> None:
    """Raises a ValueError for arrays larger than the memory of the machine, or than their file.

    They hold `count` real numbers, and belong to `holder`, in words. `remedy` says what to do where
    they do not fit into memory.
    """
    needed, stored = count * (8 if dtype == "float64" else 4), _bytes_of_file.get()
    if stored is not None and needed > stored:
        raise ValueError(
            f"{holder} has arrays of {_in_words(needed)}, but the file has {_in_words(stored)}: "
            "the numbers in its config were changed after it was saved"
        )
    if hasattr(os, "sysconf"):  # Windows does not tell
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if needed > memory:
            raise ValueError(
                f"{holder} needs {_in_words(needed)}, but this machine has {_in_words(memory)} of "
                f"memory: {remedy}"
            )


def _in_words(size: int) -> str:
    return f"{size / 1e9:.3g} GB" if size >= 1e8 else f"{size / 1e3:.3g} kB"
