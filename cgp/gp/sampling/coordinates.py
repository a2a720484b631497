"""The unconstrained coordinates of hyperparameters, one vector, and the values they stand for."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import ArrayLike
from cgp.training.parameters import UNIT_DISK, Parameter

_MOST_RADIUS = 1.4  # of the plane that is wound onto the unit disk, whose edge is at π/2


class Coordinates:
    """The trainable variables of a process as one vector.

    Args:
        gp: A `MaximumLikelihoodGP`.

    Attributes:
        variables: The trainable variables, in the order of `gp.trainable_variables`.
        parameters: The hyperparameters that they belong to, by name, in the order of
            `gp.parameters()`; one that is fixed is left out.
        size: The number of coordinates.
    """

    def __init__(self, gp: Any):
        self.variables: list[keras.Variable] = list(gp.trainable_variables)
        own = {id(variable) for variable in self.variables}
        found = gp.named_hyperparameters()
        self.parameters: dict[str, Parameter] = {
            name: p for name, p in found.items() if id(p.variable) in own
        }
        self._sizes = [int(np.prod(v.shape)) for v in self.variables]
        self.size = sum(self._sizes)
        self.dtype = gp.variable_dtype
        first = np.cumsum([0, *self._sizes]).tolist()
        self._slices = {
            id(v): slice(a, b)
            for v, a, b in zip(self.variables, first[:-1], first[1:], strict=True)
        }

    def of_parameter(self, parameter: Parameter) -> slice:
        """Where the coordinates of a hyperparameter are."""
        return self._slices[id(parameter.variable)]

    def _label_of(self, parameter: Parameter) -> str:
        own = (name for name, p in self.parameters.items() if p is parameter)
        return next(own, parameter.name)

    @property
    def without_parameter(self) -> list[str]:
        """The paths of variables that belong to no hyperparameter, as of a network in a kernel."""
        own = {id(p.variable) for p in self.parameters.values()}
        return [v.path for v in self.variables if id(v) not in own]

    @property
    def present(self) -> np.ndarray:
        """The present values, `[P]`."""
        return np.concatenate([np.ravel(v.numpy()) for v in self.variables]).astype(self.dtype)

    def assign(self, point: tf.Tensor) -> None:
        """Writes a point `[P]` into the variables."""
        for variable, value in zip(self.variables, self.split(point), strict=True):
            variable.assign(tf.ensure_shape(value, variable.shape))

    def inside_bounds(self) -> np.ndarray:
        """The present values, those near the edge of the unit disk a little further inside, `[P]`.

        At the edge, where an optimum may be, the density of the weights is zero.
        """
        found = self.present.copy()
        for parameter in self.parameters.values():
            if parameter.constraint.description != UNIT_DISK.description:
                continue
            part = found[self.of_parameter(parameter)].reshape(-1, 2)
            radius = np.hypot(*np.moveaxis(part, -1, 0))
            part *= (np.minimum(radius, _MOST_RADIUS) / np.where(radius > 0, radius, 1.0))[:, None]
        return found

    def split(self, point: tf.Tensor) -> list[tf.Tensor]:
        """The values of the variables at points `[..., P]`, each `[..., *shape]`."""
        parts = tf.split(point, self._sizes, axis=-1)
        batch = tf.shape(point)[:-1]
        return [
            tf.reshape(part, tf.concat([batch, tf.constant(list(v.shape), tf.int32)], axis=0))
            for v, part in zip(self.variables, parts, strict=True)
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
                raise TypeError(
                    "weights, unconstrained, were expected, got the hyperparameter "
                    f"{self._label_of(weight)}: give its variable, p.variable"
                )
        if len(weights) != len(self.variables):
            raise ValueError(
                f"weights must be the {len(self.variables)} values of trainable_variables, got "
                f"{len(weights)}"
            )
        parts, batch = [], None
        for variable, weight in zip(self.variables, weights, strict=True):
            part = tf.convert_to_tensor(weight, self.dtype)
            own, rank = list(variable.shape), len(variable.shape)
            here = part.shape[: part.shape.rank - rank]
            if part.shape.rank < rank or not part.shape[part.shape.rank - rank :] == own:
                raise ValueError(
                    f"the weight of {variable.path} must be [..., {', '.join(map(str, own))}], got "
                    f"shape {part.shape}"
                )
            if batch is not None and not here.is_compatible_with(batch):
                raise ValueError(
                    f"all weights must have the same batch axes, got {batch} and, of "
                    f"{variable.path}, {here}"
                )
            batch = here
            parts.append(tf.reshape(part, tf.concat([tf.shape(part)[: here.rank], [-1]], axis=0)))
        return tf.concat(parts, axis=-1)

    def values(self, points: ArrayLike) -> dict[str, np.ndarray]:
        """The constrained values at points `[..., P]` by name, each `[..., *shape]`."""
        points = np.asarray(points, self.dtype)
        found = {}
        for name, parameter in self.parameters.items():
            part = points[..., self.of_parameter(parameter)]
            raw = part.reshape(*points.shape[:-1], *parameter.variable.shape)
            found[name] = parameter.constrained(tf.constant(raw)).numpy()
        return found


def log_jacobian(parameter: Parameter, raw: tf.Tensor) -> tf.Tensor:
    """The log of the determinant of a hyperparameter's map to its constrained value.

    Args:
        parameter: The hyperparameter.
        raw: A value of its variable; of a complex one with a last axis of two.

    Raises:
        ValueError: A constraint that does not know it.
    """
    own = parameter.constraint.log_jacobian
    if own is None:
        raise ValueError(
            f"the constraint of {parameter.name}, {parameter.constraint.description!r}, has no "
            "log_jacobian: a density over its unconstrained numbers needs one"
        )
    if parameter.step is None:
        return tf.reduce_sum(own(raw))
    step = tf.convert_to_tensor(parameter.step.value)
    return tf.reduce_sum(own(raw * step)) + tf.reduce_sum(tf.math.log(tf.abs(step)))
