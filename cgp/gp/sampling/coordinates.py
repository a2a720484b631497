"""Hyperparameters as one vector of unconstrained coordinates, and its map to their values."""

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

    A complex one has a last axis of two. A ValueError for a constraint that does not know it.
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
