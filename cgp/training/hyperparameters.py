"""The base class of layers that own hyperparameters and are shared by others: kernels, means.

A class declares the arguments of its constructor as fields, and `declared` writes the constructor.
In notebooks a model shows them as a table in HTML.
"""

import html
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import InitVar, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar, dataclass_transform

import keras
import numpy as np

from cgp.linalg.arguments import ArrayLike
from cgp.training import keras_private, parameters
from cgp.training.layer_arguments import names_told
from cgp.training.parameters import Constraint, Parameter, Parameterized
from cgp.training.sharing import Shareable

InitialValues = dict[str, tuple[ArrayLike | None, Constraint]]
"""Initial values, None if they are left out, and constraints of hyperparameters by name."""

_REQUIRED = inspect.Parameter.empty
# The types of the arguments that every constructor written by `declared` takes.
_ANNOTATIONS = {
    "fixed": str | Iterable[str],
    "priors": Mapping[str, Any] | None,
    "name": str | None,
    "dtype": str,
    "kwargs": Any,
}


def one_number(value: ArrayLike, name: str, or_vector: bool = False) -> ArrayLike:
    """Returns `value`, if it is one number; or, with `or_vector`, one for each dimension of x."""
    if np.asarray(value).dtype.kind not in "iufc":
        raise TypeError(f"{name} must be a number, got {value!r}")
    shape = np.shape(value)
    if len(shape) > int(or_vector) or 0 in shape:
        expected = "one number" + (", or one for each dimension of x" if or_vector else "")
        raise ValueError(f"{name} must be {expected}, got shape {shape}")
    return value


def positive_or_none(value: float | None, name: str) -> float | None:
    """Returns a positive number, or None if it is left out, or raises an error."""
    if value is None:
        return None
    if np.iscomplexobj(one_number(value, name)) or not 0.0 < value < np.inf:
        raise ValueError(f"{name} must be a positive number, got {value!r}")
    return float(value)


@dataclass(frozen=True)
class Hyperparameter:
    """The declaration of a hyperparameter, one number, in the body of a class under `declared`.

    To type checkers it is an attribute that is a `Parameter`, and is made from a number.

    Args:
        constraint: The set of its values.
        default: None for a hyperparameter that starts from the data where it is left out; without a
            default the constructor requires it.
        per_dimension: Whether it may have a value for each dimension of x.
        relative_step: The part of the modulus of the initial value, or of 1 if that is zero, by
            which an optimizer moves it where it would move a weight by 1; None: the weight itself.
        length: A function from the layer, whose settings are attributes by then, to the number of
            elements of a vector; None for one number.
    """

    constraint: Constraint
    default: Any = _REQUIRED
    per_dimension: bool = False
    relative_step: float | None = None
    length: Callable[[Any], int] | None = None
    kw_only = False

    def initial_value(
        self, layer: Any, name: str, value: Any
    ) -> tuple[ArrayLike | None, Constraint]:
        """An argument of the constructor as initial value, None if left out, and its constraint.

        One that may have a value for each of D dimensions is left out by `[None] * D` as well.

        Raises:
            TypeError, ValueError: As for `one_number`; a vector of another length.
        """
        constraint = self.constraint
        if self.length is not None:
            length = self.length(layer)
            if value is not None and np.shape(value) != (length,):
                raise ValueError(f"{name} must have shape [{length}], got {list(np.shape(value))}")
            return value, constraint._replace(placeholder=np.full(length, constraint.placeholder))
        if self.per_dimension:
            constraint = constraint._replace(is_per_dimension=True)
            if isinstance(value, list | tuple) and value and all(v is None for v in value):
                placeholder = np.full(len(value), constraint.placeholder)
                value, constraint = None, constraint._replace(placeholder=placeholder)
        if value is not None:
            value = one_number(value, name, self.per_dimension)
        if self.relative_step is not None:
            size = np.abs(np.asarray(1.0 if value is None else value))
            step = self.relative_step * np.where(size == 0, 1.0, size)
            constraint = parameters.in_steps_of(step, constraint)
        return value, constraint

    if TYPE_CHECKING:

        def __get__(self, layer: object, kind: type | None = None) -> Parameter: ...
        def __set__(self, layer: object, value: ArrayLike | None) -> None: ...


@dataclass(frozen=True)
class Setting:
    """The declaration of an argument that is no hyperparameter, by `setting`."""

    convert: Callable[[Any, str], Any]
    default: Any
    kw_only: bool


def setting(
    convert: Callable[[Any, str], Any], *, default: Any = _REQUIRED, kw_only: bool = False
) -> Any:
    """Declares an argument that is no hyperparameter, such as an order, as `Hyperparameter` does.

    The attribute has its value and cannot be changed, and the config has it.

    Args:
        convert: From the argument and its name to the value of the attribute, or an error.
        default: The default of the argument; without one the constructor requires it.
        kw_only: Whether it is given by its name alone.
    """
    return Setting(convert, default, kw_only)


Class = TypeVar("Class", bound=type)


@dataclass_transform(field_specifiers=(Hyperparameter, setting))
def declared(kind: Class) -> Class:
    """Writes the constructor of a kernel or a mean from its fields, as `dataclass` does.

    It takes the fields in their order, those of base classes first, and by name `fixed`, `priors`,
    `name` and `dtype`. Hyperparameters become attributes that are `Parameter`s; the config is
    written too. Initial values that depend on several arguments are given by the method
    `initial_values`, and attributes that follow from them are set by `set_derived_attributes`. A
    constructor in the body of the class stays as it is.

    Args:
        kind: A subclass of `cgp.kernels.Kernel` or of `cgp.means.Mean`.

    Returns:
        The class.

    Raises:
        TypeError: A field without a default after one with a default.

    Example:
        The covariance of a polynomial without a constant, `variance · (x1 x2)^degree`.

        >>> import tensorflow as tf
        >>> from cgp.kernels import Kernel
        >>> from cgp.training import POSITIVE, Hyperparameter, declared, setting
        >>> @declared
        ... class Power(Kernel):
        ...     is_real = True
        ...     variance: Hyperparameter = Hyperparameter(POSITIVE, default=1.0)
        ...     degree: int = setting(lambda degree, name: int(degree), default=1)
        ...
        ...     def moments(self, x1, x2):
        ...         product = tf.reduce_sum(x1 * x2, axis=-1)
        ...         return self.variance.value * product**self.degree, None
        >>> kernel = Power(2.0, degree=3, fixed="variance")
        >>> kernel, kernel.degree, kernel.covariance([2.0]).numpy()
        (Power(variance=2. (fixed)), 3, array([[128.+0.j]]))
    """
    fields = dict(getattr(kind, "declared_fields", {}))
    for name, field in list(vars(kind).items()):
        if isinstance(field, Hyperparameter | Setting):
            fields[name] = field
            delattr(kind, name)  # each layer has its own
    kind.declared_fields = fields  # type: ignore[attr-defined]
    if "__init__" not in vars(kind):
        kind.__init__ = _constructor(kind, fields)  # type: ignore[misc]
        kind.collect_arguments()  # type: ignore[attr-defined]
    return kind


def _constructor(kind: type, fields: Mapping[str, Any]) -> Callable[..., None]:
    """The function `__init__` of a class of declared fields."""
    inits = (vars(base).get("__init__") for base in kind.__mro__)
    init_of_base = next(init for init in inits if init and not hasattr(init, "declared_fields"))

    def construct(layer: Any, arguments: dict, learning: tuple, **keywords: Any) -> None:
        init_of_base(layer, **keywords)
        for name, field in fields.items():
            if isinstance(field, Setting):
                setattr(layer, name, field.convert(arguments[name], name))
        layer.declare_parameters(layer.initial_values(arguments), *learning)
        layer.set_derived_attributes()

    is_learned = any(isinstance(field, Hyperparameter) for field in fields.values())
    learning = {"fixed": (), "priors": None} if is_learned else {}
    by_place = {name: field.default for name, field in fields.items() if not field.kw_only}
    are_required = [default is _REQUIRED for default in by_place.values()]
    if are_required != sorted(are_required, reverse=True):
        order = "without a default must precede those with one"
        raise TypeError(f"fields of {kind.__name__} {order}, got {', '.join(by_place)}")
    by_name = {name: field.default for name, field in fields.items() if field.kw_only}
    by_name |= learning | {"name": None, "dtype": "float64"}
    namespace: dict[str, Any] = {"construct": construct}
    exec(
        f"def __init__({', '.join(['self', *by_place])}, *, {', '.join(by_name)}, **kwargs):\n"
        f"    arguments = dict({', '.join(f'{name}={name}' for name in fields)})\n"
        f"    learning = ({''.join(f'{name}, ' for name in learning)})\n"
        "    construct(self, arguments, learning, name=name, dtype=dtype, **kwargs)",
        namespace,
    )
    init = namespace["__init__"]
    init.__defaults__ = tuple(d for d in by_place.values() if d is not _REQUIRED)
    init.__kwdefaults__ = by_name
    init.__module__, init.__qualname__ = kind.__module__, f"{kind.__qualname__}.__init__"
    types: dict[str, Any] = dict.fromkeys(fields, Any) | _ANNOTATIONS
    for base in reversed(kind.__mro__):
        types |= inspect.get_annotations(base)
    for name, field in fields.items():
        if isinstance(field, Hyperparameter):
            types[name] = ArrayLike if field.default is _REQUIRED else ArrayLike | None
    init.__annotations__ = {name: types[name] for name in (*by_place, *by_name, "kwargs")}
    init.declared_fields = fields
    return init


@declared
class HyperparameterLayer(Shareable, Parameterized, keras.layers.Layer):
    """A layer that owns hyperparameters, is built when it is constructed, and can be shared.

    Args:
        name: The prefix of its parameters in `gp.parameters()`; by default the name of the class.
        dtype: "float64" (complex128 values) or "float32" (complex64).

    Raises:
        ValueError: Another dtype.
    """

    declared_fields: ClassVar[Mapping[str, Hyperparameter | Setting]] = MappingProxyType({})
    """The arguments of the constructor by name, where `declared` has written it."""

    if TYPE_CHECKING:  # the arguments of every constructor written by `declared`
        fixed: InitVar[str | Iterable[str]] = setting(str, default=(), kw_only=True)
        priors: InitVar[Mapping[str, Any] | None] = setting(str, default=None, kw_only=True)
        name: InitVar[str | None] = setting(str, default=None, kw_only=True)
        dtype: InitVar[str] = setting(str, default="float64", kw_only=True)

    def __init__(self, *, name: str | None = None, dtype: str = "float64", **kwargs: Any) -> None:
        with names_told(type(self)):
            super().__init__(name=name, dtype=dtype or "float64", **kwargs)
        if self.variable_dtype not in ("float32", "float64"):
            expected = "float32 or float64 (complex values follow)"
            raise ValueError(f"dtype must be {expected}, got {dtype!r}")
        self.chosen_name = name  # None for a name that is made from the class
        self.built = True  # subclasses make their weights in the constructor

    def initial_values(self, arguments: Mapping[str, Any]) -> InitialValues:
        """Initial values and constraints of the declared hyperparameters, by name.

        `arguments` are the arguments of the constructor. Settings are attributes by then.
        """
        return {
            name: field.initial_value(self, name, arguments[name])
            for name, field in self.declared_fields.items()
            if isinstance(field, Hyperparameter)
        }

    def set_derived_attributes(self) -> None:
        """Sets attributes that follow from the arguments; by default none."""

    @property
    def prefix(self) -> str:
        """The prefix of its parameters in `parameters`."""
        return self.chosen_name or type(self).__name__.lower()

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, complex numbers as [re, im]."""
        return {
            **super().get_config(),
            "name": self.chosen_name,
            "dtype": self.variable_dtype,
            **self.parameters_config(),
            **{n: getattr(self, n) for n, f in self.declared_fields.items() if type(f) is Setting},
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes the layer of a config."""
        config = dict(config)
        for name in config.pop("complex", ()):
            config[name] = parameters.complex_from_config(config[name])
        return super().from_config(config)

    def load_own_variables(self, store: Any) -> None:
        """Loads the weights; a hyperparameter left out may have one for each dimension of x."""
        for number, variable in enumerate(keras_private.saved_variables(self)):
            for parameter in self.own_parameters:
                is_free = parameter.constraint.is_per_dimension and parameter.initial is None
                if parameter.variable is variable and is_free and str(number) in store:
                    shape = np.shape(store[str(number)])
                    if len(shape) == 1 and shape != tuple(variable.shape):
                        parameter.spread(shape[0])
        super().load_own_variables(store)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.own_parameters))})"


class Row(NamedTuple):
    """A row of a table."""

    name: str
    value: str
    note: str = ""


def notebook_table(title: str, rows: Iterable[Row]) -> str:
    """A table in HTML, for `_repr_html_`, in the colours of the notebook.

    Example:
        >>> from cgp.training.hyperparameters import Row, notebook_table
        >>> notebook_table("Model", [Row("size", "< 3")]).count("&lt; 3")
        1
    """
    lines = [f"<table><thead><tr>{_cell('th', title, columns=3)}</tr></thead><tbody>"]
    for row in rows:
        cells = _cell("th", row.name), _cell("td", row.value), _cell("td", row.note)
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</tbody></table>"])


def parameter_rows(layers: Iterable[tuple[str, Parameterized]]) -> list[Row]:
    """The hyperparameters of layers, as `named_parameters` names them, with their values.

    A layer that is listed several times is shared.
    """
    layers = list(layers)
    uses = Counter(id(p) for _, layer in layers for p in layer.own_parameters)
    rows = []
    for name, parameter in parameters.named_parameters(layers).items():
        count = uses[id(parameter)]
        notes = ["fixed"] * parameter.fixed + ["starts from the data"] * parameter.is_left_out
        note = ", ".join([*notes, *([f"shared by {count} parts"] if count > 1 else [])])
        value = str(parameter) if parameter.is_left_out else array_text(parameter.numpy())
        rows.append(Row(name, value, note))
    return rows


def array_text(values: np.ndarray) -> str:
    """The values of an array as text, abbreviated if there are many."""
    return np.array2string(values, precision=4, separator=", ", threshold=20)


def _cell(tag: str, text: str, columns: int = 1) -> str:
    span = f' colspan="{columns}"' if columns > 1 else ""
    return f'<{tag}{span} style="text-align: left">{html.escape(text)}</{tag}>'
