"""Layers and optimizers whose arguments stay as the constructor took them.

What is made of an argument, such as a factor, a compiled graph or a layer inside, does not follow
an attribute that is assigned: the model would show one thing and compute another.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_OF_KERAS = {"name", "dtype"}  # as Keras has them


class SettledArguments:
    """A mixin, before the Keras class, that refuses to assign the arguments of constructors of cgp.

    A class of yours that derives from one of cgp may assign its own.
    """

    settled: Mapping[str, str] = MappingProxyType({})
    """Names that not even the constructor assigns, and what to do instead."""
    _arguments: frozenset[str] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.settle_arguments()

    @classmethod
    def settle_arguments(cls) -> None:
        """Collects the arguments of the constructors of the class and its bases."""
        names = set().union(*(getattr(base, "_arguments", ()) for base in cls.__mro__))
        if "__init__" in cls.__dict__ and cls.__module__.split(".")[0] == "cgp":
            code = cls.__init__.__code__
            names |= {*code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]}
        cls._arguments = frozenset(names - _OF_KERAS)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.settled or (name in self._arguments and name in self.__dict__):
            kind = type(self).__name__
            instead = self.settled.get(name, f"make a new {kind}")
            raise AttributeError(f"{name} of {kind} cannot be changed: {instead}")
        super().__setattr__(name, value)

    def _settle(self, **values: Any) -> None:
        """Sets arguments that were left out to what data have shown."""
        self.__dict__.update(values)
