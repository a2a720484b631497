"""The linear Gaussian state-space model."""

import copy
from types import MappingProxyType

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import CompositeForm, Form, ProperForm
from cgp.linalg.arguments import check_finite, hermitian_gap
from cgp.linalg.cholesky import NotPositiveDefiniteError
from cgp.linalg.composite import complex_dtype, real_as
from cgp.linalg.semidefinite import semidefinite_factor
from cgp.statespace.diffuse import diffuse_variance
from cgp.statespace.stationary_covariance import stationary_chol

_INITIAL = 'initial_covariance must be a matrix, "stationary" or "diffuse", got {!r}'


class LinearGaussian:
    """A linear Gaussian state-space model, complex or real.

        x[t+1] = F[t] x[t] + B[t] u[t] + w[t],   w[t] ~ CN(0, Q[t])
        z[t]   = H[t] x[t] + v[t],               v[t] ~ CN(0, R[t])

    F is `[n, n]`, Q `[n, n]`, H `[m, n]`, R `[m, m]`, B `[n, k]`. One that varies has time as the
    third axis from the right, always: `[T, n, n]`, T that of the series. A batch of models has its
    axes before that, and a time axis of 1 where nothing varies: `[B, 1, n, n]`. `F[t]`, `Q[t]` and
    `B[t]` lead from t to t+1. The initial state is that at the first observation, before it.

    Real matrices throughout make a real model of real series, whose densities are those of the real
    normal; a complex one is of proper complex series, `widely_linear` of all others.

    Args:
        F: Transition matrix.
        Q: Covariance of the state's noise, `E[w wᴴ]`; may be singular.
        H: Observation matrix.
        R: Covariance of the observation's noise, `E[v vᴴ]`; may be singular.
        initial_mean: `[..., n]`; zero if None.
        initial_covariance: `[..., n, n]`; or "stationary", for the one that F and Q keep as it is;
            or "diffuse", for a prior of variance 1e10 (1e6 in single precision), meant as infinite:
            an error in units in which it is not, or is so large that noise is lost beside it. It
            adds about the logarithm of that number for each direction of the state to the negative
            log likelihood.
        B: Input matrix of a known input u.

    Attributes:
        F, Q, H, R, B: As given, tensors of one dtype; B may be None. Of a widely linear model
            those of the real composite, `[2n, 2n]` for `[n, n]`.
        initial_mean, initial_covariance: As given or found, likewise.
        initial_chol, Q_factor: Factors of the initial covariance, and of Q.
        initial: "stationary", "diffuse", or None where a matrix was given.
        form: The form in which series are seen (`cgp.distributions.forms`).
        dtype: complex128, complex64, float64 or float32: what the dtypes given promote to.

    Raises:
        TypeError: No number, or another dtype.
        ValueError: Shapes that do not fit; NaN; a covariance that is not Hermitian; an F that has
            no stationary covariance. As far as values are known: not in a graph.
        NotPositiveDefiniteError: A covariance that is indefinite beyond rounding.

    Example:
        >>> import numpy as np
        >>> from cgp import statespace
        >>> F = 0.98 * np.exp(0.4j)
        >>> model = statespace.LinearGaussian([[F]], [[1 - abs(F) ** 2]], [[1.0]], [[0.5]])
        >>> print(f"{model.initial_covariance.numpy().real.item():.6f}")
        1.000000
        >>> result = statespace.filter(model, np.array([0.3 + 0.1j, np.nan, -0.2j]))
        >>> result.filtered_means.shape
        TensorShape([3, 1])
    """

    form: Form = ProperForm()

    def __init__(self, F, Q, H, R, initial_mean=None, initial_covariance="stationary", B=None):
        named = {"F": F, "Q": Q, "H": H, "R": R, "B": B, "initial_mean": initial_mean}
        if not isinstance(initial_covariance, str):
            named["initial_covariance"] = initial_covariance
        elif initial_covariance not in ("stationary", "diffuse"):
            raise ValueError(_INITIAL.format(initial_covariance))
        if initial_covariance is None:
            raise ValueError(_INITIAL.format(initial_covariance))
        given = _of_one_dtype(named)
        self._set(given, initial_covariance if isinstance(initial_covariance, str) else None)

    @classmethod
    def of_tensors(cls, given, initial=None, factors=None, form=None) -> "LinearGaussian":
        """A model of tensors of one dtype.

        Args:
            given: By name, those that the constructor names.
            initial: "stationary", "diffuse", or None where the covariance is among those given.
            factors: Factors of "Q" and "initial_covariance" that are known, by name: covariances
                with a factor are taken on trust. So is R, if its name is there, with whatever.
            form: The form in which its user sees values; proper if None.
        """
        model = cls.__new__(cls)
        if form is not None:
            model.form = form
        model._set(given, initial, factors or {})
        return model

    def _set(self, given, initial, factors=MappingProxyType({})) -> None:
        self.F, self.Q, self.H, self.R = (given[name] for name in "FQHR")
        self.B = given.get("B")
        self.dtype = self.F.dtype
        n = self._check_shapes()
        mean = given.get("initial_mean")
        self.initial_mean = tf.zeros([n], self.dtype) if mean is None else mean
        if self.initial_mean.shape.rank < 1 or self.initial_mean.shape[-1] != n:
            raise ValueError(
                f"initial_mean must be [..., {n}], for F of shape {self.F.shape}, got shape "
                f"{self.initial_mean.shape}"
            )
        if tf.executing_eagerly():
            check_finite(self.initial_mean, "initial_mean")
        self.Q_factor = factors["Q"] if "Q" in factors else _factor(self.Q, "Q")
        if tf.executing_eagerly() and "R" not in factors:
            _factor(self.R, "R")  # for the check
        self.initial = initial
        if initial is None:
            self._check(given["initial_covariance"], "initial_covariance", n, n, own=2)
            self.initial_covariance = given["initial_covariance"]
            self.initial_chol = factors.get("initial_covariance")
            if self.initial_chol is None:
                self.initial_chol = _factor(self.initial_covariance, "initial_covariance")
        elif initial == "stationary":
            self.initial_covariance, self.initial_chol = self._stationary()
        elif initial == "diffuse":
            variance = diffuse_variance(self.dtype) / self.form.multiplicity
            self.initial_covariance = variance * tf.eye(n, dtype=self.dtype)
            self.initial_chol = variance**0.5 * tf.eye(n, dtype=self.dtype)
        else:
            raise ValueError(
                f'initial_covariance must be a matrix, "stationary" or "diffuse", got {initial!r}'
            )
        self._check_batches()
        self._check_steps()

    # --- checks ----------------------------------------------------------------------------------

    def _check_shapes(self) -> int:
        if self.F.shape.rank < 2 or self.F.shape[-1] != self.F.shape[-2]:
            raise ValueError(f"F must be [n, n] or [..., T, n, n], got shape {self.F.shape}")
        if tf.executing_eagerly():
            check_finite(self.F, "F")
        n = self.F.shape[-1]
        m = self.H.shape[-2] if self.H.shape.rank >= 2 else None
        self._check(self.H, "H", m, n)
        if m == 0 or n == 0:
            raise ValueError(f"F and H must not be empty, got {self.F.shape} and {self.H.shape}")
        self._check(self.Q, "Q", n, n)
        self._check(self.R, "R", m, m)
        if self.B is not None:
            self._check(self.B, "B", n, self.B.shape[-1] if self.B.shape.rank else None)
        return n

    def _check(self, a, name: str, rows, columns, own: int = 3) -> None:
        if a.shape.rank < 2 or list(a.shape[-2:]) != [rows, columns]:
            time = "..., T, " if own == 3 else "..., "
            wanted = f"[{rows}, {columns}] or [{time}{rows}, {columns}]"
            if rows is None:
                wanted = f"a matrix, [m, {columns}] or [..., T, m, {columns}]"
            raise ValueError(
                f"{name} must be {wanted}, for F of shape {self.F.shape} and H of shape "
                f"{self.H.shape}, got shape {a.shape}"
            )
        if tf.executing_eagerly():
            check_finite(a, name)

    def _check_steps(self) -> None:
        lengths = {name: self._matrix(name).shape[-3] for name in self._names()}
        varying = {name: steps for name, steps in lengths.items() if steps != 1}
        known = {steps for steps in varying.values() if steps is not None}
        if len(known) > 1 or 0 in known:
            raise ValueError(
                "the third axis from the right is time, and must be as long in all matrices that "
                f"vary, got {varying} (a batch of models has a time axis of 1: [B, 1, n, n])"
            )

    def _stationary(self):
        F, Q, G = (with_time(a) for a in (self.F, self.Q, self.Q_factor))
        if F.shape[-3] != 1 or Q.shape[-3] != 1:
            raise ValueError(
                'initial_covariance="stationary" needs F and Q that do not vary over time: give a '
                'matrix, or "diffuse"'
            )
        F, Q, G = F[..., 0, :, :], Q[..., 0, :, :], G[..., 0, :, :]
        if tf.executing_eagerly():
            radius = np.max(np.abs(np.linalg.eigvals(F.numpy())))
            if not radius < 1.0:
                raise ValueError(
                    'initial_covariance="stationary" needs an F whose eigenvalues are inside the '
                    f"unit circle, but the largest has modulus {radius:.6g}: give a matrix, or "
                    '"diffuse"'
                )
        return stationary_chol(F, Q, G)

    # --- sizes -----------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        return [name for name in ("F", "Q", "H", "R", "B") if getattr(self, name) is not None]

    def _matrix(self, name: str) -> tf.Tensor:
        return with_time(getattr(self, name))

    @property
    def state_size(self) -> int:
        """n, the number of components of the state."""
        return self.F.shape[-1] // self.form.multiplicity

    @property
    def observation_size(self) -> int:
        """m, the number of components of an observation."""
        return self.H.shape[-2] // self.form.multiplicity

    @property
    def steps(self) -> int | None:
        """T where a matrix varies over time; None where none does."""
        varying = [self._matrix(name).shape[-3] for name in self._names()]
        return next((steps for steps in varying if steps != 1), None)

    @property
    def batch_shape(self) -> tf.TensorShape:
        """The batch axes of a batch of models."""
        return self._check_batches()

    def _check_batches(self) -> tf.TensorShape:
        parts = {name: self._matrix(name).shape[:-3] for name in self._names()}
        parts["initial_mean"] = self.initial_mean.shape[:-1]
        parts["initial_covariance"] = self.initial_covariance.shape[:-2]
        batch = tf.TensorShape([])
        for own in parts.values():
            try:
                batch = tf.broadcast_static_shape(batch, own)
            except ValueError:
                raise ValueError(f"the batch axes of these do not fit together: {parts}") from None
        return batch

    @property
    def is_proper(self) -> bool:
        """Whether no pseudo-covariance was given: factors are complex, or of a real model, then."""
        return not isinstance(self.form, CompositeForm)

    @property
    def series_dtype(self) -> tf.DType:
        """The dtype of its series: that of the matrices, or, of a real composite, complex."""
        return self.dtype if self.is_proper else complex_dtype(self.dtype)

    def starting_from(self, mean: tf.Tensor, chol: tf.Tensor) -> "LinearGaussian":
        """The same model with another initial state, of a mean and a factor that are computed."""
        other = copy.copy(self)
        other.initial, other.initial_mean, other.initial_chol = None, mean, chol
        other.initial_covariance = tf.linalg.matmul(chol, chol, adjoint_b=True)
        return other

    def driven(self) -> "LinearGaussian":
        """The same model with an input for each component of the state in the place of noise."""
        other = copy.copy(self)
        other.B = tf.eye(self.F.shape[-1], dtype=self.dtype)
        other.Q, other.Q_factor = tf.zeros_like(self.Q), tf.zeros_like(self.Q_factor)
        return other

    def __repr__(self):
        kind = "widely linear" if not self.is_proper else self.dtype.name
        return (
            f"LinearGaussian({kind}, {self.state_size} states, {self.observation_size} observed"
            + (f", {self.steps} steps" if self.steps else "")
            + (f", batch {self.batch_shape}" if self.batch_shape.rank else "")
            + ")"
        )


def with_time(a: tf.Tensor) -> tf.Tensor:
    """A matrix with the axis of time, `[..., T, n, m]`."""
    return a[None] if a.shape.rank == 2 else a


def _of_one_dtype(named) -> dict[str, tf.Tensor]:
    """What was given, as tensors of the dtype that all of it promotes to; without what is None."""
    arrays = {name: _array(value, name) for name, value in named.items() if value is not None}
    kinds = {}
    for name, array in arrays.items():
        kind = tf.as_dtype(array.dtype).as_numpy_dtype if array.dtype != object else object
        if np.dtype(kind).kind not in "iufc":
            raise TypeError(f"{name} must be numbers, got {array.dtype}")
        kinds[name] = kind if np.dtype(kind).kind in "fc" else np.float64
    common = tf.as_dtype(np.result_type(*kinds.values()))
    if common not in (tf.complex64, tf.complex128, tf.float32, tf.float64):
        raise TypeError(
            "matrices must be complex64, complex128, float32 or float64, got "
            f"{', '.join(f'{name} {np.dtype(kind).name}' for name, kind in kinds.items())}"
        )
    return {name: as_dtype(array, common) for name, array in arrays.items()}


def _array(value, name: str):
    if tf.is_tensor(value) or isinstance(value, tf.Variable) or hasattr(value, "value"):
        return value
    try:
        return np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name} must be an array of numbers: {error}") from None


def check_model(model) -> None:
    """Raises for what is no model."""
    if not isinstance(model, LinearGaussian):
        raise TypeError(f"model must be a LinearGaussian, got {type(model).__name__}")


def whole_steps(steps) -> int:
    """A number of steps, or an error."""
    whole = isinstance(steps, int | float | np.integer | np.floating) and steps == int(steps)
    if not whole or isinstance(steps, bool) or steps < 1:
        raise ValueError(f"steps must be a whole number, at least 1, got {steps!r}")
    return int(steps)


def as_dtype(x, dtype: tf.DType, name: str = "it") -> tf.Tensor:
    """A real or complex array in a dtype that is complex if it is.

    Raises:
        TypeError: It is complex, and the dtype is not; or no number.
    """
    if not tf.is_tensor(x) and (isinstance(x, tf.Variable) or hasattr(x, "value")):
        x = tf.convert_to_tensor(x)
    if not tf.is_tensor(x):
        x = np.asarray(x)
        if x.dtype.kind not in "iufc":
            raise TypeError(f"{name} must be numbers, got {x.dtype}")
    if tf.as_dtype(x.dtype).is_complex and not dtype.is_complex:
        raise TypeError(f"{name} must be real, {dtype.name}, got {tf.as_dtype(x.dtype).name}")
    if isinstance(x, np.ndarray):
        return tf.constant(x.astype(dtype.as_numpy_dtype))
    if x.dtype == dtype:
        return x
    if x.dtype.is_complex:
        return tf.cast(x, dtype)
    return real_as(tf.cast(x, dtype.real_dtype), dtype)


def _factor(a: tf.Tensor, name: str) -> tf.Tensor:
    """A factor of a covariance, which is checked as far as its values are known."""
    if not tf.executing_eagerly():
        return semidefinite_factor(tf.stop_gradient(a))
    if gap := hermitian_gap(a):
        raise ValueError(
            f"{name} must be Hermitian, a covariance: it differs from its adjoint by {gap:.3g}"
        )
    try:
        return semidefinite_factor(tf.stop_gradient(a))
    except NotPositiveDefiniteError as error:
        raise NotPositiveDefiniteError(
            f"{name}, of shape {a.shape}, must be a covariance, but it is indefinite: {error}"
        ) from None
