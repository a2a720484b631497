"""What an argument was meant to be that a layer does not have."""

import contextlib
import difflib
import inspect
from collections.abc import Iterable, Iterator

import keras


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
        accepted = [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        unknown = str(error).partition(": ")[2]
        names = [word for word in unknown.split("'") if word.isidentifier()]
        hint = _suggestion(names[0], accepted, " ") if names else ""
        raise TypeError(
            f"{kind.__name__} has no such arguments, got {unknown}:{hint} It takes "
            f"{', '.join(accepted)}"
        ) from None


def refuse_arguments_of_fit(model: keras.Model, names: Iterable[str]) -> None:
    """Raises a TypeError for arguments that `fit` does not take, Keras's or misspelt.

    Args:
        model: An estimator that learns from all data at each step.
        names: The arguments that its `fit` was given and does not take.
    """
    of_keras = inspect.signature(keras.Model.fit).parameters
    accepted = set(inspect.signature(model.fit).parameters) - {"others"}
    kind = type(model).__name__
    for name in names:
        if name in of_keras and name != "y":
            raise TypeError(f"{name}: {kind} learns from all of x and z at each step")
        hint = ": the targets are z" if name == "y" else _suggestion(name, accepted, ": ")
        raise TypeError(f"fit of {kind} has no argument {name}{hint}")


def _suggestion(name: str, accepted: Iterable[str], before: str) -> str:
    """The question which accepted name was meant, after `before`; empty where none is alike."""
    near = difflib.get_close_matches(name, accepted, n=1)
    return f"{before}did you mean {near[0]}?" if near else ""
