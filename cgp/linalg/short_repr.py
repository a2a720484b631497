"""Short texts of results: shapes and dtypes of arrays in place of thousands of numbers."""

import dataclasses
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

_WIDTH = 96
_Class = TypeVar("_Class", bound=type)


def short_repr(cls: _Class) -> _Class:
    """A decorator of named tuples and dataclasses whose text has dtypes and shapes of arrays.

    It is `Name(field=dtype[shape], …)`. Numbers are shown as they are, and results inside by their
    own text; each field has its own line where one line is too short for all. Empty fields, `()`,
    are left out. Arrays that series or steps share are shown as they are stored, with
    an axis of 1 or of fewer steps. A dataclass derived from a
    decorated one is made with `repr=False`.

    Example:
        >>> import numpy as np
        >>> from cgp.distributions import Marginals
        >>> Marginals(np.zeros(3, complex), np.ones(3), np.zeros(3, complex))
        Marginals(mean=complex128[3], variance=float64[3], pseudo_variance=complex128[3])
        >>> Marginals(np.array(1 + 2j), np.array(0.5), np.array(0j))
        Marginals(mean=1+2j, variance=0.5, pseudo_variance=0+0j)
    """
    cls.__repr__ = _text_of_result  # type: ignore[method-assign, assignment]
    return cls


def _text_of_result(result: Any) -> str:
    # The instance's own dictionary, since a field of a result may be computed when it is read.
    fields = vars(result) if dataclasses.is_dataclass(result) else result._asdict()
    present = {name: a for name, a in fields.items() if not (isinstance(a, tuple) and not a)}
    items = [f"{name}={_text_of_field(field)}" for name, field in present.items()]
    name = type(result).__name__
    line = f"{name}({', '.join(items)})"
    if len(line) <= _WIDTH:
        return line
    rows = ("    " + item.replace("\n", "\n    ") + ",\n" for item in items)
    return f"{name}(\n{''.join(rows)})"


def _text_of_field(field: Any) -> str:
    if callable(field):  # of what is computed when it is read
        return _text_of_field(field())
    if not (isinstance(field, np.ndarray | np.generic) or tf.is_tensor(field)):
        return repr(field)
    shape = tf.TensorShape(field.shape)
    if shape.rank == 0 and not tf.is_symbolic_tensor(field):
        number: Any = np.asarray(field)[()]
        return f"{number:.6g}" if isinstance(number, np.inexact) else str(number)
    sizes = "..." if shape.rank is None else ", ".join(map(str, shape))
    return f"{field.dtype.name}[{sizes}]"
