"""The inducing points of a sparse process: chosen from the data, then learned.

Pivoted Cholesky of the covariance of the signal takes, one after the other, the point of the
largest variance given those before it (Fine & Scheinberg, JMLR 2, 2001; as inducing points Burt,
Rasmussen & van der Wilk, JMLR 21, 2020), in O(N m²). With K ≈ R Rᴴ by the columns so far, the
column of the point p is

    r = (k(·, x_p) − R r_pᴴ) / √d_p,    d ← d − |r|²,

where r_p is its row of R and d are the variances given the points so far. Of an improper process
the covariance alone decides.

Their covariance K_uu gains a jitter on its diagonal. It stands for inducing variables that are u
plus a little noise, for which the bound of `cgp.gp.sparse.bound` holds as it is: it does for any
variables linear in f (Lázaro-Gredilla & Figueiras-Vidal, NIPS 22, 2009).
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.gp.data import Data
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.kernels.base import Kernel
from cgp.kernels.rotation import cosine_and_sine
from cgp.linalg import cholesky
from cgp.linalg.arguments import ArrayLike, as_complex, check_whole, real_as
from cgp.training.keras_private import in_stateless_scope, replace_value, stored
from cgp.training.parameters import REAL, Parameter, in_steps_of

_MOST_CANDIDATES = 20_000  # of all samples, from which points are chosen
_SEED = 0  # of these candidates
_JITTER = 32.0  # units in the last place of a variance, for each inducing point
_NEGLIGIBLE = 1e4  # units in the last place: less of a variance is rounding


class InducingPoints(Parameter):
    """Points `[m, D]` of a layer, whose weights are in units of the spread of the data.

    Args:
        layer: The layer that gains the weights.
        inducing: The number of points, or the points, `[m, D]`.
        fixed: Whether training leaves them as they are.

    Raises:
        TypeError: Points that are not real.
        ValueError: No number of points, or points that are not finite, or not `[m, D]`.
    """

    __slots__ = ("count",)

    def __init__(self, layer: Any, inducing: ArrayLike, fixed: bool):
        shape = np.shape(inducing)
        if not shape:
            check_whole(inducing, "inducing")
        elif len(shape) != 2 or 0 in shape:
            raise ValueError(
                "inducing must be the number of inducing points, or the points, [m, D], got shape "
                f"{shape}"
            )
        self.count = shape[0] if shape else int(np.asarray(inducing))
        constraint = _constraint_of(shape or [0, 1])
        value = inducing if shape else None
        super().__init__(layer, "inducing", value, constraint, False, None)
        if fixed:
            self.variable.trainable = False
            self._fixed = True

    @property
    def value(self) -> tf.Tensor:
        """The points, `[m, D]`; constant in a stateless scope that has no value for them."""
        raw = self.variable.value
        if in_stateless_scope() and raw is stored(self.variable):
            # Read past all tapes, which watch trainable variables.
            raw = tf.raw_ops.ReadVariableOp(resource=raw.handle, dtype=raw.dtype)
        return self.constrained(tf.convert_to_tensor(raw))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """A context in which the points are not learned."""
        was = self.variable.trainable
        self.variable.trainable = False
        try:
            yield
        finally:
            self.variable.trainable = was

    def take_shape(self, shape: tuple[int, int]) -> bool:
        """Makes room for points `[m, D]`, not chosen yet; returns whether it was needed."""
        if tuple(self.variable.shape) == tuple(shape):
            return False
        self.constraint = _constraint_of(shape)
        for variable in self.variables:
            replace_value(variable, np.ones(shape) * (variable is self.step))
        return True

    def choose(self, kernel: Kernel, data: Data) -> bool:
        """Sets points chosen for data; returns whether their number or dimensions have changed."""
        return self.replace(self.chosen(kernel, data))

    def replace(self, points: np.ndarray) -> bool:
        """Sets other points `[m, D]`; returns whether their number or dimensions have changed."""
        is_new, spread = self.take_shape(points.shape), points.std(axis=0)
        self.start(points, np.where(spread > 0.0, spread, 1.0))
        return is_new

    def chosen(self, kernel: Kernel, data: Data) -> np.ndarray:
        """Points chosen among the places of data, by a kernel at its present hyperparameters."""
        x = np.broadcast_to(data.x, (*data.z.shape, data.x.shape[-1]))[data.present.numpy()]
        if len(x) > _MOST_CANDIDATES:
            numbers = np.random.default_rng(_SEED).choice(len(x), _MOST_CANDIDATES, replace=False)
            x = x[np.sort(numbers)]
        return x[pivots(kernel, x, self.count)]


def _constraint_of(shape: Any) -> Any:
    return in_steps_of(1.0, REAL)._replace(placeholder=np.zeros(shape))


def pivots(kernel: Kernel, x: np.ndarray, count: int) -> np.ndarray:
    """The numbers of at most `count` points of `[N, D]`, in the order of their choice.

    Fewer where the others add nothing but rounding, as duplicates do.
    """
    points = tf.constant(x)
    variances = np.array(tf.math.real(kernel.moments_diagonal(points).k))
    least = _NEGLIGIBLE * np.finfo(x.dtype).eps * variances.max()
    columns = np.empty((count, len(x)), np.result_type(x, 1j))  # R, column after column
    chosen: list[int] = []
    while len(chosen) < min(count, len(x)):
        pivot = int(np.argmax(variances))
        if chosen and not variances[pivot] > least:
            break
        size = len(chosen)
        column = np.array(kernel.moments_matrix(points, points[pivot : pivot + 1]).k[:, 0])
        column -= np.conj(columns[:size, pivot]) @ columns[:size]
        with np.errstate(invalid="ignore"):  # where the kernel is NaN, which L tells
            columns[size] = column / np.sqrt(variances[pivot])
        variances -= np.abs(columns[size]) ** 2
        variances[pivot] = 0.0
        chosen.append(pivot)
    return np.array(chosen)


def carrier_at(process: SignalPlusNoise, x: tf.Tensor, inducing: tf.Tensor) -> tf.Tensor | None:
    """The carrier of the kernel at points `[..., D]`, of modulus 1, by `carrier_turns`.

    It is 1 at the first inducing point. None where the covariance is not known to be real under a
    carrier, and in single precision, which would round the turns at their size, not at that of
    their differences.
    """
    if not process.is_proper or x.dtype != tf.float64:
        return None
    turns = process.kernel.carrier_turns(x - tf.stop_gradient(inducing[:1]))
    return None if turns is None else tf.complex(*cosine_and_sine(turns))


def inducing_factor(process: SignalPlusNoise, inducing: tf.Tensor) -> tf.Tensor:
    """L, the factor of the working covariance of inducing points `[m, D]`, `[1, m, m]`.

    Under a carrier it is D L_R Dᴴ, with the factor L_R of the envelope and the diagonal D of the
    carrier: the rounding of phases in K, divided by its small eigenvalues, would not be Hermitian.
    """
    carrier = carrier_at(process, inducing, inducing)
    if carrier is None:
        covariance = process.form.covariance(process.kernel.moments_matrix(inducing[None]))
    else:
        covariance = process.kernel.envelope(inducing[:, None], inducing[None])[None]
    diagonal = tf.linalg.diag_part(covariance)
    largest = tf.reduce_max(tf.math.real(diagonal))
    eps = np.finfo(largest.dtype.as_numpy_dtype).eps
    jitter = _JITTER * eps * tf.cast(tf.shape(diagonal)[-1], largest.dtype) * largest
    chol = cholesky(tf.linalg.set_diag(covariance, diagonal + real_as(jitter, diagonal.dtype)))
    return chol if carrier is None else turned(chol, carrier)


def turned(matrix: tf.Tensor, carrier: tf.Tensor) -> tf.Tensor:
    """`D matrix Dᴴ`, with the diagonal D of a carrier `[m]`, of matrices `[..., m, m]`."""
    column = carrier[:, None]
    return tf.linalg.matmul(column, column, adjoint_b=True) * as_complex(matrix)
