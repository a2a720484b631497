"""Arguments of layers: they stay as the constructor took them, and errors say which there are.

Objects made from an argument, such as a factor, a compiled graph or a layer inside, do not follow
an attribute that is assigned: the model would show one thing and compute another.
"""

import contextlib
import difflib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import keras

_OF_KERAS = {"name", "dtype"}  # as Keras has them


class ReadOnlyArguments:
    """A mixin, before the Keras class, that refuses to assign the arguments of constructors of cgp.

    A class of yours that derives from one of cgp may assign its own.
    """

    read_only: Mapping[str, str] = MappingProxyType({})
    """Names that not even the constructor assigns, with the remedy for each."""
    _arguments: frozenset[str] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.collect_arguments()

    @classmethod
    def collect_arguments(cls) -> None:
        """Collects the arguments of the constructors of the class and its bases."""
        names = set().union(*(getattr(base, "_arguments", ()) for base in cls.__mro__))
        if "__init__" in cls.__dict__ and cls.__module__.split(".")[0] == "cgp":
            code = cls.__init__.__code__
            names |= {*code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]}
        cls._arguments = frozenset(names - _OF_KERAS)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.read_only or (name in self._arguments and name in self.__dict__):
            kind = type(self).__name__
            instead = self.read_only.get(name, f"make a new {kind}")
            raise AttributeError(f"{name} of {kind} cannot be changed: {instead}")
        super().__setattr__(name, value)

    def _set_from_data(self, **values: Any) -> None:
        """Sets arguments that were left out to values that follow from the data."""
        self.__dict__.update(values)


@contextlib.contextmanager
def names_told(kind: type) -> Iterator[None]:
    """A context in which Keras's error about unknown arguments lists the known ones."""
    try:
        yield
    except ValueError as error:
        if "Unrecognized keyword arguments" not in str(error):
            raise
        parameters = inspect.signature(kind).parameters.values()
        accepted = [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        unknown, listed = str(error).partition(": ")[2], ", ".join(accepted)
        names = [word for word in unknown.split("'") if word.isidentifier()]
        hint = _suggestion(names[0], accepted, " ") if names else ""
        text = f"{kind.__name__} has no such arguments, got {unknown}:{hint} It takes {listed}"
        raise TypeError(text) from None


def refuse_arguments_of_fit(model: keras.Model, names: Iterable[str]) -> None:
    """Raises a TypeError for arguments that `fit` of an estimator was given and does not take."""
    of_keras = inspect.signature(keras.Model.fit).parameters
    accepted = set(inspect.signature(model.fit).parameters) - {"others"}
    kind = type(model).__name__
    for name in names:
        if name in of_keras and name != "y":
            raise TypeError(f"{name}: {kind} learns from all of x and z at each step")
        hint = ": the targets are z" if name == "y" else _suggestion(name, accepted, ": ")
        raise TypeError(f"fit of {kind} has no argument {name}{hint}")


def _suggestion(name: str, accepted: Iterable[str], before: str) -> str:
    """A question with the accepted name that is closest, after `before`; empty if none is close."""
    near = difflib.get_close_matches(name, accepted, n=1)
    return f"{before}did you mean {near[0]}?" if near else ""
