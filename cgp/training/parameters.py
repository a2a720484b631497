"""Hyperparameters: real weights behind constrained values, with a prior or without.

A weight in Keras is real and unconstrained. A hyperparameter may be positive, complex, or in the
unit disk. A `Parameter` maps the one to the other, and belongs to the layer that declares it.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from cgp.linalg.arguments import ArrayLike
from cgp.training import keras_private
from cgp.training.layer_arguments import ReadOnlyArguments


class Constraint(NamedTuple):
    """A set of admissible values, and a bijector between it and unconstrained real numbers."""

    description: str  # the set in words, for error messages
    contains: Callable[[np.ndarray], bool]
    forward: Callable[[tf.Tensor], tf.Tensor]
    """From an unconstrained tensor to the value; a complex value loses the last axis of size 2."""
    inverse: Callable[[np.ndarray], np.ndarray]
    is_complex: bool = False
    step: np.ndarray | float | None = None
    """The unit of the weight, in unconstrained numbers; see `in_steps_of`."""
    placeholder: np.ndarray | float = 0.0
    """The value of a hyperparameter that was left out, until a fit initialises it."""
    is_per_dimension: bool = False
    """Whether there is one number, or one for each dimension of x; if left out, one for each."""
    unit_of_outputs: Callable[[np.ndarray], np.ndarray] | None = None
    """The unit of the weight from the sizes of the data of outputs, `[P]`; None for another."""
    log_jacobian: Callable[[tf.Tensor], tf.Tensor] | None = None
    """The log of the Jacobian determinant of `forward`, for densities; None if it is not known."""
    is_bounded: bool = False
    """Whether the set is bounded, so that a density that is flat over it is proper."""
    ends: tuple[float, float] | None = None
    """The ends of an interval; None for another set."""


def _disk_from_plane(raw: tf.Tensor) -> tf.Tensor:
    # c = sin|w| w/|w| covers the closed disk: an optimum on the unit circle is a stationary point
    # in w, where a map onto the open disk would send w to infinity.
    re, im = tf.unstack(raw, axis=-1)
    square = re * re + im * im
    small = square < 1e-8  # sin r / r has no derivative by r² that TensorFlow can take at 0
    r = tf.sqrt(tf.where(small, tf.ones_like(square), square))
    ratio = tf.where(small, 1.0 - square / 6.0, tf.sin(r) / r)
    return tf.complex(ratio * re, ratio * im)


def _log_area_of_disk(raw: tf.Tensor) -> tf.Tensor:
    # In polar coordinates the area is cos(r) sin(r)/r times the area of the plane. Beyond r = π/2
    # the plane covers the disk once more, and that is no other value: its density is zero.
    square = tf.reduce_sum(tf.square(raw), axis=-1)
    small = square < 1e-8
    r = tf.sqrt(tf.where(small, tf.ones_like(square), square))
    inside = r < 0.5 * math.pi
    r = tf.where(inside, r, tf.ones_like(r))
    log_area = tf.math.log(tf.cos(r) * tf.sin(r) / r)
    log_area = tf.where(small, -2.0 / 3.0 * square, log_area)
    return tf.where(inside, log_area, tf.constant(-np.inf, raw.dtype))


def _plane_from_disk(point: np.ndarray) -> np.ndarray:
    modulus = np.minimum(np.abs(point), 1.0)
    ratio = np.divide(np.arcsin(modulus), modulus, out=np.ones_like(modulus), where=modulus > 0)
    return split(point * ratio)


def split(z: np.ndarray) -> np.ndarray:
    """Splits complex numbers into [re, im] on a new last axis."""
    return np.stack([z.real, z.imag], axis=-1)


REAL = Constraint(
    "real", lambda v: True, tf.identity, np.asarray, placeholder=1.0, log_jacobian=tf.zeros_like
)
POSITIVE = Constraint(
    "positive",
    # TensorFlow's exponential has no subnormal numbers: they would come back as zero.
    lambda v: bool(np.all(v > np.finfo(v.dtype).tiny)),
    tf.exp,
    np.log,
    placeholder=1.0,
    log_jacobian=tf.identity,
)
COMPLEX = Constraint(
    "complex",
    lambda v: True,
    lambda raw: tf.complex(*tf.unstack(raw, axis=-1)),
    split,
    is_complex=True,
    log_jacobian=lambda raw: tf.zeros_like(raw[..., 0]),
)
UNIT_DISK = Constraint(
    "complex of modulus at most 1",
    # A value read from a float32 layer, or cos θ + i sin θ, may be outside by rounding.
    lambda v: bool(np.all(np.abs(v) <= 1 + 1e-6)),
    _disk_from_plane,
    _plane_from_disk,
    is_complex=True,
    log_jacobian=_log_area_of_disk,
    is_bounded=True,
)

FRACTION = Constraint(
    "between 0 and 1",
    # 1 − v must be positive too, in the precision of the kernel.
    lambda v: bool(np.all((v > np.finfo(v.dtype).tiny) & (v < 1))),
    tf.sigmoid,
    lambda v: np.log(v) - np.log1p(-v),
    placeholder=0.2,
    log_jacobian=lambda raw: tf.math.log_sigmoid(raw) + tf.math.log_sigmoid(-raw),
    is_bounded=True,
    ends=(0.0, 1.0),
)


def between(lowest: float, highest: float) -> Constraint:
    """Numbers from `lowest` to `highest`; training comes near to an end, but does not leave one."""

    def inverse(value: np.ndarray) -> np.ndarray:
        rounding = np.finfo(value.dtype).eps
        share = np.clip((value - lowest) / (highest - lowest), rounding, 1.0 - rounding)
        return np.log(share) - np.log1p(-share)

    return Constraint(
        f"between {lowest:g} and {highest:g}",
        # An end read from a float32 layer may be outside by rounding.
        lambda v: bool(np.all((v >= lowest - 1e-6) & (v <= highest + 1e-6))),
        lambda raw: lowest + (highest - lowest) * tf.sigmoid(raw),
        inverse,
        placeholder=0.5 * (lowest + highest),
        log_jacobian=lambda raw: (
            math.log(highest - lowest) + tf.math.log_sigmoid(raw) + tf.math.log_sigmoid(-raw)
        ),
        is_bounded=True,
        ends=(lowest, highest),
    )


def in_steps_of(scale: np.ndarray | float, constraint: Constraint) -> Constraint:
    """Returns the constraint with its weights in units of `scale`.

    An optimizer such as Adam changes all weights by similar amounts. Data determine a frequency to
    a small fraction of its value, but a variance hardly to a factor of two, so that the two need
    weights in different units. The unit is a weight too: a saved weight keeps its meaning when it
    is loaded elsewhere.
    """
    return constraint._replace(step=scale)


def _weight(
    layer: keras.layers.Layer, name: str, value: np.ndarray, trainable: bool
) -> keras.Variable:
    dtype = layer.variable_dtype
    return keras_private.add_variable(
        layer,
        lambda: keras.Variable(
            # A Keras initialiser would take the value through floatx.
            lambda shape, dtype: tf.constant(value, dtype),
            shape=value.shape,
            dtype=dtype,
            trainable=trainable,
            autocast=False,  # or a float32 layer that uses a float64 kernel would round it
            name=name,
        ),
    )


class Parameter:
    """A hyperparameter of a layer: a constrained value, stored as an unconstrained real weight.

    It converts to a tensor, a NumPy array, a float or a complex number wherever one is expected.
    One whose value was left out has a placeholder, until `assign`, `start` or loaded weights give
    it a value.

    Attributes:
        name: Its name within the layer.
        variable: The Keras weight, real and unconstrained; a trailing axis of 2 when complex.
        step: The unit of `variable`, a non-trainable weight, or None.
        constraint: The set of its values.
    """

    # No other attributes: setting one such as `trainable` would have no effect.
    __slots__ = (
        "_dtype",
        "_fixed",
        "_initial",
        "_is_set",
        "_prior",
        "constraint",
        "name",
        "step",
        "variable",
    )

    def __init__(
        self,
        layer: keras.layers.Layer,
        name: str,
        value: ArrayLike | None,
        constraint: Constraint,
        fixed: bool,
        prior: Any,
    ) -> None:
        self.name, self.constraint, self._fixed = name, constraint, bool(fixed)
        self._dtype = np.dtype(layer.variable_dtype)
        if value is None and fixed:  # no data will ever change it
            value = constraint.placeholder
        # Copied, as the caller may go on to change an array.
        self._initial = None if value is None else self._check(value).copy()
        self._is_set = value is not None
        raw = constraint.inverse(self._check(constraint.placeholder if value is None else value))
        self.step = None
        if constraint.step is not None:
            step = np.broadcast_to(constraint.step, raw.shape)
            self.step = _weight(layer, f"{name}_step", step, trainable=False)
            raw = raw / step
        self.variable = _weight(layer, name, raw, trainable=not fixed)
        self._prior = None
        if prior is not None:
            try:
                self._prior = prior_from_config(prior_config(prior), layer.variable_dtype)
            except ValueError as error:
                raise ValueError(f"the prior of {name} cannot be read: {error}") from error
            self._check_shape_of(self._prior)

    def _check_shape_of(self, prior: Any) -> None:
        # A larger shape would broadcast, and count the parameter several times.
        shape, event = tuple(prior.batch_shape + prior.event_shape), self._argument_of_prior().shape
        try:
            np.broadcast_to(np.empty(shape), event)
        except ValueError:
            parameter = f"[re, im] of {self.name}" if self.constraint.is_complex else self.name
            raise ValueError(
                f"the prior of {self.name} has shape {shape}, but {parameter} has {tuple(event)}"
            ) from None

    def _check(self, value: ArrayLike) -> np.ndarray:
        array = np.asarray(value)
        is_complex, expected = self.constraint.is_complex, self.constraint.description
        if array.dtype.kind not in ("iufc" if is_complex else "iuf"):
            if array.dtype.kind == "c" and expected != "real":
                expected = f"real and {expected}"
            raise TypeError(f"{self.name} must be {expected}, got {value!r}")
        array = array.astype(np.complex128 if is_complex else np.float64)
        dtype = np.result_type(self._dtype, 1j) if is_complex else self._dtype
        with np.errstate(over="ignore"):
            rounded = array.astype(dtype)  # 1e-300 is positive, but not in float32
        if not np.all(np.isfinite(rounded)) or not self.constraint.contains(rounded):
            where = "" if self._dtype == np.float64 else f" and finite in {self._dtype}"
            if not where and not np.all(np.isfinite(array)):
                where = " and finite"
            raise ValueError(f"{self.name} must be {expected}{where}, got {value!r}")
        return array

    @property
    def fixed(self) -> bool:
        """Whether training leaves the value as it is."""
        return self._fixed

    @fixed.setter
    def fixed(self, value: bool) -> None:
        raise AttributeError(
            f"whether {self.name} is fixed is settled when its layer is made: give "
            f'fixed="{self.name}" to the constructor, or not'
        )

    @property
    def prior(self) -> Any:
        """A TFP distribution of the constrained value, or None; of `[re, im]` when complex."""
        return self._prior

    @prior.setter
    def prior(self, value: Any) -> None:
        # Functions that have been compiled with another prior would keep it.
        raise AttributeError(
            f"the prior of {self.name} is settled when its layer is made: give "
            f'priors={{"{self.name}": ...}} to the constructor'
        )

    @property
    def initial(self) -> np.ndarray | None:
        """The value given to the constructor; None if it was left out."""
        return self._initial

    @property
    def is_left_out(self) -> bool:
        """Whether the value was left out and is not initialised yet."""
        if self._is_set:
            return False
        raw = self.constraint.inverse(np.asarray(self._check(self.constraint.placeholder)))
        raw = raw if self.step is None else raw / self.constraint.step
        with tf.init_scope():  # what a graph reads when it is traced
            present = keras_private.stored(self.variable).numpy()
        # Weights that have been loaded are compared once.
        self._is_set = not np.array_equal(present, np.asarray(raw, self._dtype))
        return not self._is_set

    def start(self, value: ArrayLike, unit: ArrayLike | None = None) -> None:
        """Initialises a hyperparameter whose value was left out.

        Args:
            value: The constrained value, as for `assign`.
            unit: The new unit of the weight, for a constraint in steps (see `in_steps_of`).
        """
        if self.step is not None and unit is not None:
            self.step.assign(tf.constant(np.broadcast_to(unit, self.step.shape), self.step.dtype))
        self.assign(value)

    def spread(self, dimensions: int) -> None:
        """Makes a hyperparameter that was left out a vector, with a value for each dimension of x.

        No graph may have been made with it, as none is with a value that was left out.
        """
        constraint = self.constraint
        self.constraint = constraint._replace(
            placeholder=np.broadcast_to(np.ravel(constraint.placeholder)[0], [dimensions])
        )
        for variable in self.variables:
            first = np.ravel(variable.numpy())[0]
            keras_private.replace_value(variable, np.broadcast_to(first, [dimensions]))

    @contextlib.contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """A context that restores the value, and whether it was left out, if it raises."""
        before = [v.numpy() for v in self.variables]
        was_set, constraint = self._is_set, self.constraint
        try:
            yield
        except BaseException:
            for variable, array in zip(self.variables, before, strict=True):
                if variable.shape == array.shape:
                    variable.assign(array)
                else:
                    keras_private.replace_value(variable, array)
            self._is_set, self.constraint = was_set, constraint
            raise

    @property
    def variables(self) -> list[keras.Variable]:
        """The weights that the value depends on."""
        return [self.variable] if self.step is None else [self.variable, self.step]

    def constrained(self, raw: tf.Tensor) -> tf.Tensor:
        """Returns the constrained value for a value of `variable`."""
        return self.constraint.forward(raw if self.step is None else raw * self.step.value)

    @property
    def value(self) -> tf.Tensor:
        """The constrained value, differentiable with respect to `variable`."""
        return self.constrained(tf.convert_to_tensor(self.variable.value))

    def assign(self, value: ArrayLike) -> None:
        """Sets the constrained value; state derived from the old one is recomputed when it is used.

        Raises:
            ValueError: A value outside the constraint, or of another shape.
        """
        self.variable.assign(tf.constant(self.raw(value), self.variable.dtype))
        self._is_set = True

    def raw(self, value: ArrayLike) -> np.ndarray:
        """Returns the value of `variable` that stands for a constrained value.

        Raises:
            ValueError: A value outside the constraint, or of another shape.
        """
        raw = np.asarray(self.constraint.inverse(self._check(value)))
        if raw.shape != tuple(self.variable.shape):
            shapes = f"{np.shape(self.numpy())}, got a value of shape {np.shape(value)}"
            raise ValueError(f"{self.name} has shape {shapes}")
        return raw if self.step is None else raw / self.step.numpy()

    def log_prior(self) -> tf.Tensor | None:
        """Returns the log density of the prior at the present value, summed; None without a prior.

        The prior of a complex value is a distribution of its parts, `[..., 2]`: of vectors of two,
        or of numbers, which then applies to each part.
        """
        if self.prior is None:
            return None
        return tf.reduce_sum(self.prior.log_prob(self._argument_of_prior()))

    def _argument_of_prior(self) -> tf.Tensor:
        z = self.value
        if not self.constraint.is_complex:
            return z
        return tf.stack([tf.math.real(z), tf.math.imag(z)], axis=-1)

    def numpy(self) -> np.ndarray:
        """Returns the constrained value as a NumPy array."""
        return self.value.numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)

    def __float__(self) -> float:
        if self.constraint.is_complex:  # NumPy would drop the imaginary part
            raise TypeError(f"{self.name} is complex, {self}: take complex() of it")
        return float(self.numpy())

    def __complex__(self) -> complex:
        return complex(self.numpy())

    def __format__(self, spec: str) -> str:
        return format(self.numpy()[()], spec) if spec else str(self)

    def __repr__(self) -> str:
        return f"{self.name}={self}"

    def __str__(self) -> str:
        if not tf.executing_eagerly():
            return "?"
        if self.is_left_out:
            return "to be learned"
        text = np.array2string(self.numpy(), precision=4, separator=", ").replace("\n", "")
        return text + (" (fixed)" if self.fixed else "")


tf.register_tensor_conversion_function(
    Parameter, lambda p, dtype=None, name=None, as_ref=False: tf.convert_to_tensor(p.value, dtype)
)


def names_of(fixed: Any) -> tuple[str, ...]:
    """Names of parameters as a tuple; a single name may be a string."""
    if not isinstance(fixed, Iterable):
        raise TypeError(f"fixed must be names of parameters, got {fixed!r}")
    return (fixed,) if isinstance(fixed, str) else tuple(fixed)


class Parameterized(ReadOnlyArguments):
    """A mixin for layers that own hyperparameters, declared once in `__init__`."""

    own_parameters: tuple["Parameter", ...] = ()
    _refused_values = ""  # the error about the last values that were loaded

    def __setattr__(self, name: str, value: Any) -> None:
        if any(name == p.name and value is not p for p in self.own_parameters):
            remedy = f"set its value with {name}.assign({value!r})"
            raise AttributeError(f"{name} is a hyperparameter: {remedy}")
        super().__setattr__(name, value)

    def declare_parameters(
        self,
        values: Mapping[str, tuple[Any, Constraint]],
        fixed: Iterable[str] = (),
        priors: Mapping[str, Any] | None = None,
    ) -> None:
        """Creates one `Parameter` attribute for each entry of `values`.

        Args:
            values: Initial value and constraint by name; None for a value that was left out.
            fixed: Names of parameters that are not trained.
            priors: TFP distributions of the constrained values, by name; of a complex one, of
                `[re, im]`.

        Raises:
            ValueError: A name in `fixed` or `priors` that is not among `values`, or a value outside
                its constraint.
        """
        if not isinstance(priors, Mapping | None):
            raise TypeError(
                f"priors must be a dictionary of distributions by name, of {sorted(values)}, got "
                f"{priors!r}"
            )
        fixed, priors = names_of(fixed), dict(priors or {})
        for argument, names in (("fixed", fixed), ("priors", priors)):
            unknown, owner = sorted(set(names) - set(values)), type(self).__name__
            if unknown:
                has = f"the parameters of {owner} are {sorted(values)}"
                raise ValueError(f"{argument} names {unknown}, but {has}")
        self.own_parameters = tuple(
            Parameter(self, name, value, constraint, name in fixed, priors.get(name))
            for name, (value, constraint) in values.items()
        )
        for parameter in self.own_parameters:
            setattr(self, parameter.name, parameter)
            for variable in parameter.variables:
                # Attributes are what TensorFlow's checkpoints and exports look through.
                setattr(self, f"_{variable.name}", variable)

    def load_own_variables(self, store: Any) -> None:
        """Loads the weights, and refuses hyperparameters that are not finite.

        Raises:
            ValueError: A hyperparameter that is not finite; all are then as they were.
        """
        if self._refused_values and not store.keys():  # Keras tries once more, elsewhere in a file
            raise ValueError(self._refused_values)
        self._refused_values = ""
        variables = [v for parameter in self.own_parameters for v in parameter.variables]
        before = [v.numpy() for v in variables]
        super().load_own_variables(store)  # type: ignore[misc]
        bad = [p for p in self.own_parameters if not np.all(np.isfinite(p.numpy()))]
        if bad:
            expected = f"{bad[0].constraint.description} and finite"
            self._refused_values = (
                f"the saved {bad[0].name} must be {expected}, got {bad[0].numpy()}"
            )
            for variable, was in zip(variables, before, strict=True):
                variable.assign(was)
            raise ValueError(self._refused_values)

    def parameters_config(self) -> dict:
        """Returns the arguments of `declare_parameters` in a form that serialises.

        Complex numbers are `[re, im]`, and their names under the key `complex`. The keys `complex`,
        `fixed` and `priors` are absent where they are empty; a value that was left out is None.
        """
        parameters = self.own_parameters
        lists = {
            "complex": [p.name for p in parameters if p.constraint.is_complex],
            "fixed": [p.name for p in parameters if p.fixed],
            "priors": {p.name: prior_config(p.prior) for p in parameters if p.prior is not None},
        }
        values = {
            p.name: _left_out_config(p) if p.initial is None else number_to_config(p.initial)
            for p in parameters
        }
        return values | {key: entries for key, entries in lists.items() if entries}


def values_by_name(
    parameters: Mapping[str, Parameter], left_out: Iterable[Parameter]
) -> dict[str, np.ndarray]:
    """The constrained values of hyperparameters by name; NaN for those in `left_out`."""
    without = {id(parameter) for parameter in left_out}
    values = {name: p.numpy() for name, p in parameters.items()}
    return {n: a * np.nan if id(parameters[n]) in without else a for n, a in values.items()}


def _left_out_config(parameter: Parameter) -> list[None] | None:
    """The config of a value that was left out: None, or one for each dimension of x."""
    shape = parameter.variable.shape
    return [None] * shape[0] if parameter.constraint.is_per_dimension and shape.rank else None


def number_to_config(number: npt.ArrayLike) -> Any:
    """Converts a number or array to floats and lists; complex ones gain a last axis [re, im]."""
    number = np.asarray(number)
    return (split(number) if np.iscomplexobj(number) else number).tolist()


def complex_from_config(config: Any) -> Any:
    """Converts a config back to a complex number or array; a number is returned as it is."""
    if isinstance(config, list | tuple):
        pairs = np.asarray(config)
        return pairs[..., 0] + 1j * pairs[..., 1]
    return config


def named_parameters(layers: Iterable[tuple[str, Parameterized]]) -> dict[str, Parameter]:
    """Names the parameters of layers uniquely: `prefix.parameter`, numbered if names repeat.

    The layers come in pairs with their prefix; with an empty one the parameter has its own name
    only. A layer that is listed twice counts once. Layers of one prefix share it while their
    parameters differ, so that the factors of a product may have the name of their term.
    """
    layers_so_far: set[int] = set()
    by_name: dict[str, Parameter] = {}
    for prefix, layer in layers:
        if id(layer) in layers_so_far:
            continue
        layers_so_far.add(id(layer))
        names = [parameter.name for parameter in layer.own_parameters]
        if prefix:
            numbered = (f"{prefix}_{number}" for number in itertools.count(2))
            prefixes = itertools.chain([prefix], numbered)
            several = ([f"{p}.{name}" for name in names] for p in prefixes)
            names = next(candidates for candidates in several if not by_name.keys() & candidates)
        by_name |= zip(names, layer.own_parameters, strict=True)
    return by_name


def prior_config(prior: Any) -> dict[str, Any]:
    """The config of a distribution of `tfp.distributions`; a config is returned as it is.

    Returns:
        `{"distribution": name, "parameters": {name: number or nested list of numbers}}`.

    Raises:
        TypeError: Not such a distribution, or a parameter of it is no number.
    """
    if isinstance(prior, Mapping):
        return dict(prior)
    import tensorflow_probability as tfp  # here: importing it takes as long as TensorFlow

    is_known = hasattr(tfp.distributions, type(prior).__name__)
    if not isinstance(prior, tfp.distributions.Distribution) or not is_known:
        raise TypeError(f"a prior must be a distribution of tfp.distributions, got {prior!r}")
    arguments = {
        name: argument
        for name, argument in prior.parameters.items()
        if argument is not None and not isinstance(argument, bool | str) and name != "name"
    }
    try:
        arguments = {name: np.asarray(a, float).tolist() for name, a in arguments.items()}
    except (TypeError, ValueError):
        raise TypeError(
            f"a prior must have numbers for parameters, so that it can be saved; got {prior!r}"
        ) from None
    return {"distribution": type(prior).__name__, "parameters": arguments}


def prior_from_config(config: Mapping[str, Any], dtype: str) -> Any:
    """The TFP distribution of a `prior_config`, of parameters of a real dtype.

    Raises:
        ValueError: A malformed config; a discrete distribution.
    """
    import tensorflow_probability as tfp

    expected = 'a prior must be {"distribution": name, "parameters": {name: numbers}}'
    has_keys = set(config) == {"distribution", "parameters"}
    if not has_keys or not isinstance(config["parameters"], Mapping):
        raise ValueError(f"{expected}, got {dict(config)}")
    name = config["distribution"]
    make = getattr(tfp.distributions, name, None) if isinstance(name, str) else None
    if not isinstance(make, type) or not issubclass(make, tfp.distributions.Distribution):
        first = "the first the name of a distribution of tfp.distributions"
        raise ValueError(f"{expected}, {first}, got {name!r}")
    kind = tf.as_dtype(dtype).as_numpy_dtype
    try:
        prior = make(**{k: np.asarray(v, kind) for k, v in config["parameters"].items()})
    except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        parameters = config["parameters"]
        message = f"{expected}, but {name} cannot be made of the parameters {parameters}: {error}"
        raise ValueError(message) from error
    if _is_discrete(prior):
        raise ValueError(f"a prior must be a continuous distribution, got {name}, a discrete one")
    return prior


def _is_discrete(prior: Any) -> bool:
    """Whether TFP has no bijector from real numbers to the values of a distribution."""
    try:
        return prior.experimental_default_event_space_bijector() is None
    except (TypeError, NotImplementedError):
        return False
