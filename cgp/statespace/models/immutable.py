"""Models that stay as they were made, because results and compiled graphs rely on it."""

from collections.abc import Callable
from typing import Any, Self


class Settled:
    """A model whose attributes are set in construction alone, by `_settle`."""

    def _settle(self, **values: Any) -> None:
        self.__dict__.update(values)  # bypasses __setattr__

    def _with(self, **values: Any) -> Self:
        """A copy with some attributes replaced, unchecked."""
        copy = type(self).__new__(type(self))
        copy._settle(**{**self.__dict__, **values})
        return copy

    def __setattr__(self, name: str, value: object) -> None:
        name_of_class = type(self).__name__
        instead = f"make a new {name_of_class}"
        if hasattr(self, "replace"):
            instead = f"model.replace({name}=...) returns a new one"
        raise AttributeError(f"{name} of a {name_of_class} cannot be changed: {instead}")

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)


class KeepsGraphs(Settled):
    """A model that keeps the graphs of its functions; copies with the same functions share them."""

    _kept: dict[Any, Any]  # settled in construction, empty

    def kept(self, key: Any, make: Callable[[], Any]) -> Any:
        """An object made of the functions alone, such as a graph; once for each key."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]
