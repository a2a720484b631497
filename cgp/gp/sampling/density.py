"""The posterior density of hyperparameters as a pure function of one vector of coordinates w.

With θ = g(w) the constrained values of the unconstrained w, the density of w has the log

    log p(z | g(w)) + log p(g(w)) + log |det g'(w)| ,

the last term because a density is per unit of volume. No variable is assigned: Keras reads the
values from the scope of the call.

Hyperparameters without a prior have a weak one, as a likelihood alone may have no finite integral:
a length scale far below the spacing of x gives white noise, however far; one far above the span of
x gives a constant. The likelihood is then flat, and draws under it would wander off. The priors are
wide beside the likelihood of values that data determine, and follow from the scales of the data:

| hyperparameter               | prior                                                             |
|------------------------------|-------------------------------------------------------------------|
| positive                     | log-normal of standard deviation 2, a factor of 7.4 either way,   |
|                              | about the value that a first fit starts from (`cgp.gp.starts`),   |
|                              | or else about the value it was given                              |
| a frequency of either sign   | normal about that value, of half a cycle a step of x              |
| another real number          | normal about that value v, of deviation 10 max(1, |v|)            |
| complex                      | normal in both parts about zero, of ten times the root mean       |
|                              | square of z, or the present modulus where that is larger          |
| between 0 and 1; in the disk | uniform                                                           |

A noise variance that was left out keeps the weak prior of `fit` (`cgp.gp.starts.log_weak_prior`).
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cgp.gp.data import Data
from cgp.gp.starts import residual_power, scales_of, values_from_data
from cgp.kernels.data_scales import DataScales
from cgp.linalg import with_gradient
from cgp.linalg.arguments import ArrayLike
from cgp.linalg.cholesky import nan_where_indefinite
from cgp.training.parameters import POSITIVE, UNIT_DISK, Parameter

_MOST_RADIUS = 1.4  # of the plane that is wound onto the unit disk, whose edge is at π/2
_WIDTH = 2.0  # of the logarithm of a positive hyperparameter
_NEAR = 2.0  # widths from the center of a weak prior


class Coordinates:
    """The trainable variables of a `MaximumLikelihoodGP` as one vector.

    Attributes:
        variables: The trainable variables of hyperparameters, in the order of
            `gp.trainable_variables`.
        parameters: The hyperparameters that they belong to, by name, in the order of
            `gp.parameters()`; one that is fixed is left out.
        size: The number of coordinates.
    """

    def __init__(self, gp: Any):
        self.variables: list[keras.Variable] = list(gp.variables_of_hyperparameters)
        trainable = {id(variable) for variable in self.variables}
        self.parameters: dict[str, Parameter] = {
            name: p for name, p in gp.named_hyperparameters().items() if id(p.variable) in trainable
        }
        self._sizes = [int(np.prod(v.shape)) for v in self.variables]
        self.size = sum(self._sizes)
        self.dtype = gp.variable_dtype
        ends = np.cumsum(self._sizes).tolist()
        slices = map(slice, [0, *ends], ends)
        self._slices = dict(zip(map(id, self.variables), slices, strict=True))

    def of_parameter(self, parameter: Parameter) -> slice:
        """The slice of the coordinates of a hyperparameter."""
        return self._slices[id(parameter.variable)]

    @property
    def without_parameter(self) -> list[str]:
        """The paths of variables that belong to no hyperparameter, as of a network in a kernel."""
        of_parameters = {id(p.variable) for p in self.parameters.values()}
        return [v.path for v in self.variables if id(v) not in of_parameters]

    @property
    def present(self) -> np.ndarray:
        """The present coordinates, `[P]`."""
        return np.concatenate([np.ravel(v.numpy()) for v in self.variables]).astype(self.dtype)

    def assign(self, point: tf.Tensor) -> None:
        """Writes a point `[P]` into the variables."""
        for variable, weight in zip(self.variables, self.split(point), strict=True):
            variable.assign(tf.ensure_shape(weight, variable.shape))

    def inside_bounds(self) -> np.ndarray:
        """The present coordinates, moved inside a little near the edge of the unit disk, `[P]`.

        At the edge, where an optimum may be, the density of the weights is zero.
        """
        point = self.present.copy()
        for parameter in self.parameters.values():
            if parameter.constraint.description != UNIT_DISK.description:
                continue
            plane = point[self.of_parameter(parameter)].reshape(-1, 2)  # a view
            radius = np.hypot(*np.moveaxis(plane, -1, 0))
            plane *= (np.minimum(radius, _MOST_RADIUS) / np.where(radius > 0, radius, 1.0))[:, None]
        return point

    def near_priors(self, point: np.ndarray, weak: dict[str, "WeakPrior"]) -> np.ndarray:
        """A point `[P]` whose positive values are within some widths of their weak priors."""
        point = point.copy()
        for name, prior in weak.items():
            parameter = self.parameters[name]
            if prior.is_of_log:
                center, reach = np.asarray(prior.center), _NEAR * np.asarray(prior.width)
                place = self.of_parameter(parameter)
                logarithm = np.log(np.asarray(parameter.constrained(point[place])))
                inside = np.clip(logarithm.reshape(center.shape), center - reach, center + reach)
                point[place] = np.ravel(parameter.raw(np.exp(inside)))
        return point

    def split(self, point: tf.Tensor) -> list[tf.Tensor]:
        """The values of the variables at points `[..., P]`, each `[..., *shape]`."""
        vectors = tf.split(point, self._sizes, axis=-1)
        batch = tf.shape(point)[:-1]
        return [
            tf.reshape(a, tf.concat([batch, tf.constant(list(v.shape), tf.int32)], axis=0))
            for v, a in zip(self.variables, vectors, strict=True)
        ]

    def joined(self, weights: Any) -> tf.Tensor:
        """Points `[..., P]` from values of the variables, each `[..., *shape]`.

        Raises:
            TypeError: Hyperparameters, whose values are constrained.
            ValueError: Another number of values, or shapes that do not fit.
        """
        weights = list(weights)
        for weight in weights:
            if isinstance(weight, Parameter):
                names = (name for name, p in self.parameters.items() if p is weight)
                raise TypeError(
                    "weights, unconstrained, were expected, got the hyperparameter "
                    f"{next(names, weight.name)}: give its variable, p.variable"
                )
        if len(weights) != len(self.variables):
            raise ValueError(
                f"weights must be the {len(self.variables)} values of trainable_variables, got "
                f"{len(weights)}"
            )
        vectors, batch = [], None
        for variable, weight in zip(self.variables, weights, strict=True):
            a = tf.convert_to_tensor(weight, self.dtype)
            event, rank = list(variable.shape), len(variable.shape)
            axes = a.shape[: a.shape.rank - rank]
            if a.shape.rank < rank or not a.shape[a.shape.rank - rank :] == event:
                raise ValueError(
                    f"the weight of {variable.path} must be [..., {', '.join(map(str, event))}], "
                    f"got shape {a.shape}"
                )
            if batch is not None and not axes.is_compatible_with(batch):
                raise ValueError(
                    f"all weights must have the same batch axes, got {batch} and, of "
                    f"{variable.path}, {axes}"
                )
            batch = axes
            vectors.append(tf.reshape(a, tf.concat([tf.shape(a)[: axes.rank], [-1]], axis=0)))
        return tf.concat(vectors, axis=-1)

    def constrained(self, points: ArrayLike) -> dict[str, np.ndarray]:
        """The constrained values at points `[..., P]` by name, each `[..., *shape]`."""
        points = np.asarray(points, self.dtype)
        by_name = {}
        for name, parameter in self.parameters.items():
            raw = points[..., self.of_parameter(parameter)]
            raw = raw.reshape(*points.shape[:-1], *parameter.variable.shape)
            by_name[name] = parameter.constrained(tf.constant(raw)).numpy()
        return by_name


def log_determinant(parameter: Parameter, raw: tf.Tensor) -> tf.Tensor:
    """The log of the determinant of a hyperparameter's map from its unconstrained value `raw`.

    A complex value has a last axis of two. A ValueError for a constraint without a log-Jacobian.
    """
    log_jacobian = parameter.constraint.log_jacobian
    if log_jacobian is None:
        raise ValueError(
            f"the constraint of {parameter.name}, {parameter.constraint.description!r}, has no "
            "log_jacobian: a density over its unconstrained numbers needs one"
        )
    if parameter.step is None:
        return tf.reduce_sum(log_jacobian(raw))
    step = tf.convert_to_tensor(parameter.step.value)
    return tf.reduce_sum(log_jacobian(raw * step)) + tf.reduce_sum(tf.math.log(tf.abs(step)))


class WeakPrior(NamedTuple):
    """A normal prior of one hyperparameter, or of its logarithm."""

    is_of_log: bool
    """Whether the logarithm is normal."""
    center: tf.Tensor
    """The mean of the value or of its logarithm, real, of its shape; `[..., 2]` if complex."""
    width: tf.Tensor
    """The standard deviation, like `center`."""

    def log_prob(self, parameter: tf.Tensor) -> tf.Tensor:
        """The log density of a constrained hyperparameter, a number."""
        if parameter.dtype.is_complex:
            parameter = tf.stack([tf.math.real(parameter), tf.math.imag(parameter)], axis=-1)
        x = tf.math.log(parameter) if self.is_of_log else parameter
        log_density = -0.5 * tf.square((x - self.center) / self.width) - tf.math.log(
            np.sqrt(2.0 * np.pi) * self.width
        )
        return tf.reduce_sum(log_density - x if self.is_of_log else log_density)

    def words(self) -> str:
        """A description of the prior, for a reader."""
        center, width = np.asarray(self.center), float(np.max(self.width))
        if self.is_of_log:
            about = np.array2string(np.exp(center), precision=3)
            return f"log-normal about {about}, of deviation {width:.3g} of the logarithm"
        return f"normal about {np.array2string(center, precision=3)}, of deviation {width:.3g}"


WeakPriors = Sequence[WeakPrior | None]
"""In the order of the hyperparameters, None for one that needs none."""


def weak_priors(gp: Any, coordinates: Coordinates, data: Data) -> dict[str, WeakPrior]:
    """The weak priors of the hyperparameters that need one, by name."""
    scales = scales_of(gp, data)
    starts = {id(p): start for p, start in values_from_data(gp, data)}
    priors = {}
    for name, parameter in coordinates.parameters.items():
        is_bounded = parameter.constraint.is_bounded
        is_weak_already = parameter is gp.noise_variance and gp.has_weak_prior
        if parameter.prior is None and not is_bounded and not is_weak_already:
            priors[name] = _prior_of(parameter, starts.get(id(parameter)), scales)
    return priors


def in_words(gp: Any, data: Data, weak: dict[str, WeakPrior]) -> dict[str, str]:
    """Descriptions of weak priors by name, with the prior of a noise variance left out."""
    words = {}
    if gp.has_weak_prior:
        powers = np.ravel(residual_power(gp.observation_model, data))
        scale = ", ".join(f"{2.0 * power:.3g}" for power in powers)
        words["noise_variance"] = (
            f"that of a fit, about gamma of shape 1.5 and scale {scale}, twice the mean square "
            "of what offset, mean and trend leave of z"
        )
    return words | {name: prior.words() for name, prior in weak.items()}


def _prior_of(parameter: Parameter, start: ArrayLike | None, scales: DataScales) -> WeakPrior:
    present = parameter.numpy()
    middle = present if parameter.initial is None else parameter.initial
    if start is not None:
        middle = np.broadcast_to(start, present.shape)
    is_of_log = parameter.constraint.description == POSITIVE.description
    if is_of_log:
        center, width = np.log(middle), _WIDTH
    elif parameter.constraint.is_complex:
        center = np.zeros((*present.shape, 2))
        width = 10.0 * max(np.sqrt(scales.total), float(np.max(np.abs(present))))
    elif parameter.step is not None:
        center, width = middle, 0.5 / scales.spacing
    else:
        center, width = middle, 10.0 * np.maximum(1.0, np.abs(middle))
    kind = parameter.variable.dtype
    center = np.asarray(center, float)
    width = tf.constant(np.broadcast_to(width, center.shape), kind)
    return WeakPrior(is_of_log, tf.constant(center, kind), width)


def log_weak_priors(coordinates: Coordinates, weak: WeakPriors) -> list[tf.Tensor]:
    """The log densities of weak priors at the present values; none for an empty sequence."""
    if not weak:
        return []
    pairs = zip(coordinates.parameters.values(), weak, strict=True)
    return [prior.log_prob(parameter.value) for parameter, prior in pairs if prior is not None]


@contextlib.contextmanager
def _read_at(coordinates: Coordinates, weights: Sequence[tf.Tensor]) -> Iterator[None]:
    """A context in which the variables have these values, and an indefinite matrix gives NaN."""
    state = list(zip(coordinates.variables, weights, strict=True))
    with keras.StatelessScope(state_mapping=state), nan_where_indefinite():
        yield


def values_and_gradients(
    gp: Any, coordinates: Coordinates, data: Data, points: tf.Tensor, weak: WeakPriors = ()
) -> tuple[tf.Tensor, tf.Tensor]:
    """The log densities at points `[B, P]` and their gradients, `[B]` and `[B, P]`, to compile.

    NaN where the likelihood has no value. Points go through a `tf.map_fn`, several at once where
    there are cores: kernels take one number for each hyperparameter.
    """
    parameters = coordinates.parameters.values()

    def of_one(point: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        weights = coordinates.split(point)
        with tf.GradientTape() as tape:
            tape.watch(weights)
            with _read_at(coordinates, weights):
                terms = [tf.reduce_sum(gp.data_log_likelihood(data)), *gp.log_priors(data)]
                terms += log_weak_priors(coordinates, weak)
                terms += [log_determinant(p, p.variable.value) for p in parameters]
                value = tf.add_n(terms)
        with _read_at(coordinates, weights):  # variables are read again for a gradient
            gradients = tape.gradient(value, weights, None, tf.UnconnectedGradients.ZERO)
        return value, tf.concat([tf.reshape(g, [-1]) for g in gradients], axis=0)

    kind = tf.as_dtype(coordinates.dtype)
    specs = tf.TensorSpec([], kind), tf.TensorSpec([coordinates.size], kind)
    return tf.map_fn(of_one, points, fn_output_signature=specs, parallel_iterations=8)


def attached(points: tf.Tensor, values: tf.Tensor, gradients: tf.Tensor) -> tf.Tensor:
    """Values `[B]` whose gradient by the points `[B, P]` is known."""
    return with_gradient(
        lambda points, values, gradients: values,
        points,
        tf.stop_gradient(values),
        tf.stop_gradient(gradients),
        grad=lambda points, values, gradients, dy: dy[..., None] * gradients,
    )
