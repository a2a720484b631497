"""The linear Gaussian state-space model."""

import functools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from cgp.distributions.forms import CompositeForm, Form, ProperForm
from cgp.linalg.arguments import ArrayLike, check_finite, complex_dtype
from cgp.linalg.cholesky import NotPositiveDefiniteError
from cgp.statespace.models.initial_states import diffuse_variance, stationary_chol
from cgp.statespace.models.model_base import (
    FactoredCovariance,
    Settled,
    as_dtype,
    matrix_or_word,
    of_one_dtype,
)

_MATRICES = ("F", "Q", "H", "R", "B", "S")
_GIVEN = ("F", "H", "B", "S", "b", "d")


def _field(name: str, field: str, doc: str) -> Any:
    return property(lambda model: getattr(model._covariances[name], field), doc=doc)


class LinearGaussian(Settled):
    """A linear Gaussian state-space model, complex or real.

        x[t+1] = F[t] x[t] + B[t] u[t] + w[t],   w[t] ~ CN(0, Q[t])
        z[t]   = H[t] x[t] + v[t],               v[t] ~ CN(0, R[t])

    F is `[n, n]`, Q `[n, n]`, H `[m, n]`, R `[m, m]`, B `[n, k]`, S `[n, m]`. A matrix that varies
    over time has time as the third axis from the right, always: `[T, n, n]`, with T steps as the
    series. The batch axes of a batch of models come before it, and the time axis is 1 where nothing
    varies: `[B, 1, n, n]`. `F[t]`, `Q[t]` and `B[t]` lead from t to t+1. The initial mean and
    covariance are the prior of the state at the first observation.

    If all matrices are real the model is for real series, with real normal densities. Otherwise it
    is for proper complex series; `widely_linear` makes a model for improper ones.

    Args:
        F: Transition matrix.
        Q: Process noise covariance, `E[w wᴴ]`; may be singular.
        H: Observation matrix.
        R: Observation noise covariance, `E[v vᴴ]`; may be singular.
        initial_mean: `[..., n]`; zero if None.
        initial_covariance: `[..., n, n]`; or "stationary", the solution of P = F P Fᴴ + Q; or
            "diffuse", a prior variance of 1e10 (1e6 in single precision) in place of an infinite
            one. Units in which that is not wide beside the data, or in which the noise is lost to
            rounding beside it, are an error. It adds about the logarithm of that variance to the
            negative log likelihood for each direction of the state.
        B: Input matrix of a known input u.
        S: Covariance of the noise of process and observation, `E[w vᴴ]`, of the same time: the
            noise of z[t] and that which leads from t to t+1. None if they are independent. Filter
            and smoother use the transition of the state given the observed components of z[t]
            (Anderson & Moore, *Optimal Filtering*, 1979, §5.5), and `sample` draws both together.

    Attributes:
        F, Q, H, R, B, S: The matrices, tensors of one dtype; B and S may be None. In a widely
            linear model they are matrices of the real composite, `[2n, 2n]` for `[n, n]`.
        joint_noise: The covariance `[[R, Sᴴ], [S, Q]]` of v and w with its factor; None without S.
        initial_mean, initial_covariance: The initial moments, in the same dtype and form.
        initial_chol, Q_factor: Factors of the initial covariance, and of Q.
        initial: "stationary", "diffuse", or None where a matrix was given.
        form: The form of the working values of states and inputs, complex or real composite
            (`cgp.distributions.forms`).
        observation_form: The form of observations, which may differ in a linearised model.
        b, d: Offsets of F x and H x in such a model, working values `[..., T, n]` and
            `[..., T, m]`; otherwise None.
        dtype: complex128, complex64, float64 or float32, which the dtypes given promote to.

    Raises:
        TypeError: Not numbers, or a dtype other than these.
        ValueError: Shapes that do not fit; NaN; a covariance that is not Hermitian; an F that has
            no stationary covariance. Values are checked eagerly, not in a graph.
        NotPositiveDefiniteError: A covariance that is indefinite beyond rounding; an S that no
            noise of covariances Q and R can have.

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

    F: tf.Tensor
    H: tf.Tensor
    B: tf.Tensor | None
    S: tf.Tensor | None
    b: tf.Tensor | None
    d: tf.Tensor | None
    initial_mean: tf.Tensor
    initial: str | None
    form: Form
    observation_form: Form
    dtype: tf.DType
    joint_noise: FactoredCovariance | None
    _covariances: dict[str, FactoredCovariance]

    def __init__(
        self,
        F: ArrayLike,
        Q: ArrayLike,
        H: ArrayLike,
        R: ArrayLike,
        initial_mean: ArrayLike | None = None,
        initial_covariance: ArrayLike | str = "stationary",
        B: ArrayLike | None = None,
        S: ArrayLike | None = None,
    ):
        named = {"F": F, "Q": Q, "H": H, "R": R, "B": B, "S": S, "initial_mean": initial_mean}
        _check_there(named)
        matrix, initial = matrix_or_word(initial_covariance)
        tensors = of_one_dtype({**named, "initial_covariance": matrix})
        self._set(tensors, initial, ProperForm(), ProperForm())

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, tf.Tensor | FactoredCovariance],
        initial: str | None = None,
        form: Form | None = None,
        observation_form: Form | None = None,
    ) -> "LinearGaussian":
        """Makes a model from tensors of one dtype, by the constructor's argument names, b and d.

        A `FactoredCovariance` is not checked again. `initial` is "stationary", "diffuse", or None
        where the covariance is among the tensors. The form of working values is proper if None;
        `observation_form` is `form` if None.
        """
        model, form = cls.__new__(cls), form or ProperForm()
        model._set(tensors, initial, form, observation_form or form)
        return model

    def parts(self) -> dict[str, tf.Tensor | FactoredCovariance]:
        """The arguments of `from_tensors` by name, with the computed initial covariance."""
        tensors = {name: getattr(self, name) for name in (*_GIVEN, "initial_mean")}
        return {k: v for k, v in tensors.items() if v is not None} | self._covariances

    def replace(self, **changes: ArrayLike | str | None) -> "LinearGaussian":
        """A new model with some matrices replaced, the others kept with their factors.

        A "stationary" initial covariance is solved for again; a "diffuse" one stays diffuse.

        Args:
            **changes: Arguments of the constructor by name. For a widely linear model they are
                the matrices of the real composite, like its attributes.

        Returns:
            A new `LinearGaussian`; this one is unchanged.

        Raises:
            TypeError: A name that is not an argument of the constructor; a complex matrix for a
                widely linear model, whose composite is real.
            ValueError, NotPositiveDefiniteError: As the constructor.

        Example:
            >>> from cgp import statespace
            >>> model = statespace.LinearGaussian([[0.5]], [[3.0]], [[1.0]], [[0.1]])
            >>> noisier = model.replace(Q=[[6.0]])
            >>> print(f"{noisier.initial_covariance.numpy().item():.6f}")
            8.000000
        """
        names = (*_MATRICES, "initial_mean", "initial_covariance")
        unknown = sorted(set(changes) - set(names))
        if unknown:
            raise TypeError(f"replace knows {', '.join(names)}, but was given {', '.join(unknown)}")
        _check_there(changes)
        named = {name: getattr(self, name) for name in (*names[:-1], "b", "d")} | changes
        matrix, initial = None, self.initial
        if "initial_covariance" in changes:
            matrix, initial = matrix_or_word(changes["initial_covariance"])
        elif initial is None:
            matrix = self.initial_covariance
        tensors = of_one_dtype({**named, "initial_covariance": matrix})
        dtype = tensors["F"].dtype
        if dtype.is_complex and not self.is_proper:
            raise TypeError(
                "the matrices of a widely linear model are those of its real composite, [2n, 2n], "
                f"but {', '.join(changes)} make them {dtype.name}: give real ones, or replace them "
                "in the proper model and make it widely linear again"
            )
        kept = {
            name: covariance.cast(dtype)
            for name, covariance in self._covariances.items()
            if name not in changes and name in tensors
        }
        forms = (self.form, self.observation_form)
        return type(self).from_tensors({**tensors, **kept}, initial, *forms)

    def _set(
        self,
        tensors: Mapping[str, tf.Tensor | FactoredCovariance],
        initial: str | None,
        form: Form,
        observation_form: Form,
    ) -> None:
        self._settle(**{name: tensors.get(name) for name in _GIVEN})
        self._settle(form=form, observation_form=observation_form)
        self._settle(initial=initial, dtype=self.F.dtype, _covariances={})
        n = self._check_shapes({name: _matrix_of(tensors[name]) for name in ("Q", "R")})
        mean = tensors.get("initial_mean")
        self._settle(initial_mean=tf.zeros([n], self.dtype) if mean is None else mean)
        if self.initial_mean.shape.rank < 1 or self.initial_mean.shape[-1] != n:
            raise ValueError(
                f"initial_mean must be [..., {n}], for F of shape {self.F.shape}, got shape "
                f"{self.initial_mean.shape}"
            )
        if tf.executing_eagerly():
            check_finite(self.initial_mean, "initial_mean")
        for name in ("Q", "R"):
            self._covariances[name] = FactoredCovariance.checked(tensors[name], name)
        self._settle(joint_noise=self._joint_noise())
        initial_covariance = self._initial_covariance(tensors.get("initial_covariance"), n)
        self._covariances["initial_covariance"] = initial_covariance
        self._check_batches()
        self._check_steps()

    def _initial_covariance(self, covariance: Any, n: int) -> FactoredCovariance:
        if self.initial is None:
            self._check(_matrix_of(covariance), "initial_covariance", n, n, rank=2)
            return FactoredCovariance.checked(covariance, "initial_covariance")
        if self.initial == "stationary":
            covariance = (with_time(a) for a in (self.F, self.Q, self.Q_factor))
            return FactoredCovariance(*stationary_chol(*covariance))
        variance = diffuse_variance(self.dtype) / self.form.multiplicity
        return FactoredCovariance.of_factor(variance**0.5 * tf.eye(n, dtype=self.dtype))

    def _joint_noise(self) -> FactoredCovariance | None:
        """The covariance of v and w together, `[..., m + n, m + n]`; None without S."""
        if self.S is None:
            return None
        S, Q, R = (with_time(a) for a in (self.S, self.Q, self.R))
        shapes = [tf.shape(a)[:-2] for a in (S, Q, R)]
        axes = functools.reduce(tf.broadcast_dynamic_shape, shapes)
        S, Q, R = (tf.broadcast_to(a, tf.concat([axes, a.shape[-2:]], 0)) for a in (S, Q, R))
        upper = tf.concat([R, tf.linalg.adjoint(S)], axis=-1)
        joint = tf.concat([upper, tf.concat([S, Q], axis=-1)], axis=-2)
        if all(a.shape.rank == 2 for a in (self.S, self.Q, self.R)):
            joint = joint[0]
        try:
            return FactoredCovariance.checked(joint, "[[R, Sᴴ], [S, Q]]")
        except NotPositiveDefiniteError:
            raise NotPositiveDefiniteError(
                "S is impossible: no noise of covariances Q and R has this E[w vᴴ], as [[R, Sᴴ], "
                "[S, Q]] is indefinite (of single numbers, |S|² is at most Q R)"
            ) from None

    Q = _field("Q", "matrix", "The covariance of the process noise.")
    R = _field("R", "matrix", "The covariance of the observation noise.")
    initial_covariance = _field(
        "initial_covariance", "matrix", "The covariance of the initial state."
    )
    Q_factor = _field("Q", "factor", "A factor of Q, `[..., n, q]`, not necessarily triangular.")
    R_factor = _field("R", "factor", "A factor of R, `[..., m, q]`, not necessarily triangular.")
    initial_chol = _field(
        "initial_covariance", "factor", "The Cholesky factor of the initial covariance."
    )

    # --- checks ----------------------------------------------------------------------------------

    def _check_shapes(self, noise: Mapping[str, tf.Tensor]) -> int:
        if self.F.shape.rank < 2 or self.F.shape[-1] != self.F.shape[-2]:
            vector = ": of a vector of its diagonal, np.diag(F)" if self.F.shape.rank == 1 else ""
            raise ValueError(
                f"F must be [n, n] or [..., T, n, n], got shape {self.F.shape}{vector}"
            )
        if tf.executing_eagerly():
            check_finite(self.F, "F")
        n = self.F.shape[-1]
        m = self.H.shape[-2] if self.H.shape.rank >= 2 else None
        self._check(self.H, "H", m, n)
        if m == 0 or n == 0:
            raise ValueError(f"F and H must not be empty, got {self.F.shape} and {self.H.shape}")
        self._check(noise["Q"], "Q", n, n)
        self._check(noise["R"], "R", m, m)
        if self.B is not None:
            self._check(self.B, "B", n, self.B.shape[-1] if self.B.shape.rank else None)
        if self.S is not None:
            self._check(self.S, "S", n, m)
        k = 0 if self.B is None else self.B.shape[-1]
        forms = {"F": (n, self.form), "H": (m, self.observation_form), "B": (k, self.form)}
        for name, (size, form) in forms.items():
            if size % form.multiplicity:
                raise ValueError(
                    f"{name} of a widely linear model is that of its real composite, whose rows "
                    f"and columns are even in number, got shape {getattr(self, name).shape}"
                )
        return n

    def _check(
        self, a: tf.Tensor, name: str, rows: int | None, columns: int | None, rank: int = 3
    ) -> None:
        if a.shape.rank < 2 or list(a.shape[-2:]) != [rows, columns]:
            time = "..., T, " if rank == 3 else "..., "
            reason = f"F of shape {self.F.shape} and H of shape {self.H.shape}"
            shape: tuple[int | str | None, ...] = (rows, columns)
            if name == "H":  # has as many rows as it has
                shape, reason = (
                    ("m", columns),
                    f"F of shape {self.F.shape}: a column for each state",
                )
            elif name == "B":
                shape, reason = (rows, "k"), f"F of shape {self.F.shape}: a row for each state"
            own_axes = ", ".join(map(str, shape))
            expected = f"[{own_axes}] or [{time}{own_axes}]"
            raise ValueError(
                f"{name} must be {expected}, for {reason}, got shape {a.shape}"
                f"{_as_matrix(a, name, rows)}"
            )
        if tf.executing_eagerly():
            check_finite(a, name)

    def _check_steps(self) -> None:
        steps = {name: self._shape_of(name)[-3] for name in self._names()}
        varying = {name: count for name, count in steps.items() if count != 1}
        lengths = {count for count in varying.values() if count is not None}
        if len(lengths) > 1 or 0 in lengths:
            raise ValueError(
                "the third axis from the right is time, and must be as long in all matrices that "
                f"vary, got {varying} (a batch of models has a time axis of 1: [B, 1, n, n])"
            )

    # --- sizes -----------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        return [name for name in _MATRICES if getattr(self, name) is not None]

    def _shape_of(self, name: str) -> tf.TensorShape:
        """The shape of a matrix, with a time axis."""
        shape = getattr(self, name).shape
        return tf.TensorShape([1, *shape]) if shape.rank == 2 else shape

    @property
    def state_size(self) -> int:
        """n, the number of components of the state."""
        return self.F.shape[-1] // self.form.multiplicity

    @property
    def observation_size(self) -> int:
        """m, the number of components of an observation."""
        return self.H.shape[-2] // self.observation_form.multiplicity

    @property
    def steps(self) -> int | None:
        """T where a matrix varies over time; None where none does."""
        varying = [self._shape_of(name)[-3] for name in self._names()]
        return next((steps for steps in varying if steps != 1), None)

    @property
    def batch_shape(self) -> tf.TensorShape:
        """The batch axes of a batch of models."""
        return self._check_batches()

    def _check_batches(self) -> tf.TensorShape:
        shapes = {name: self._shape_of(name)[:-3] for name in self._names()}
        shapes["initial_mean"] = self.initial_mean.shape[:-1]
        shapes["initial_covariance"] = self.initial_covariance.shape[:-2]
        batch = tf.TensorShape([])
        for shape in shapes.values():
            try:
                batch = tf.broadcast_static_shape(batch, shape)
            except ValueError:
                raise ValueError(f"the batch axes of these do not fit together: {shapes}") from None
        return batch

    @property
    def is_proper(self) -> bool:
        """Whether the model is not widely linear: its working values are not a composite then."""
        return not isinstance(self.form, CompositeForm)

    @property
    def series_dtype(self) -> tf.DType:
        """The dtype of its series: the dtype of the matrices; complex if these are a composite."""
        return self._dtype_in(self.observation_form)

    @property
    def state_dtype(self) -> tf.DType:
        """The dtype of states and inputs, likewise the dtype of the matrices, or complex."""
        return self._dtype_in(self.form)

    def _dtype_in(self, form: Form) -> tf.DType:
        return complex_dtype(self.dtype) if form.multiplicity > 1 else self.dtype

    def starting_from(self, mean: ArrayLike, chol: ArrayLike) -> "LinearGaussian":
        """The same model with another initial mean and Cholesky factor, which are not checked."""
        mean, chol = (
            a if tf.is_tensor(a) else as_dtype(a, self.dtype, name)
            for a, name in ((mean, "mean"), (chol, "chol"))
        )
        start = FactoredCovariance.of_factor(chol)
        return self._with(
            initial=None,
            initial_mean=mean,
            _covariances={**self._covariances, "initial_covariance": start},
        )

    def with_matrices(self, **matrices: tf.Tensor) -> "LinearGaussian":
        """The same model with other F, Q_factor, H or R, working values, which are not checked."""
        check_uncorrelated(self, "a model with matrices of each step")
        covariances, noise = dict(self._covariances), matrices.copy()
        if "Q_factor" in noise:
            covariances["Q"] = FactoredCovariance.of_factor(noise.pop("Q_factor"))
        if "R" in noise:
            covariances["R"] = FactoredCovariance(noise.pop("R"))
        return self._with(**noise, _covariances=covariances)

    def driven(self) -> "LinearGaussian":
        """The same model with a known input to each state component instead of process noise."""
        Q = FactoredCovariance(tf.zeros_like(self.Q), tf.zeros_like(self.Q_factor))
        B = tf.eye(self.F.shape[-1], dtype=self.dtype)
        covariances = {**self._covariances, "Q": Q}
        return self._with(B=B, S=None, joint_noise=None, _covariances=covariances)

    def centred(self) -> "LinearGaussian":
        """The model of the deviations of states and observations from their means."""
        mean = tf.zeros_like(self.initial_mean)
        return self.starting_from(mean, self.initial_chol)._with(b=None, d=None)

    def __repr__(self) -> str:
        kind = "widely linear" if not self.is_proper else self.dtype.name
        return (
            f"LinearGaussian({kind}, {self.state_size} states, {self.observation_size} observed"
            + (f", {self.steps} steps" if self.steps else "")
            + (f", batch {self.batch_shape}" if self.batch_shape.rank else "")
            + ")"
        )


def with_time(a: tf.Tensor) -> tf.Tensor:
    """A matrix with a time axis, `[..., T, n, m]`."""
    return tf.expand_dims(a, 0) if a.shape.rank == 2 else a


def _matrix_of(covariance: tf.Tensor | FactoredCovariance) -> tf.Tensor:
    return covariance.matrix if isinstance(covariance, FactoredCovariance) else covariance


def _check_there(named: Mapping[str, Any]) -> None:
    """Raises a TypeError for None in place of a matrix that every model needs."""
    missing_names = [name for name in "FQHR" if name in named and named[name] is None]
    if missing_names:
        raise TypeError(f"{', '.join(missing_names)} must be a matrix, got None")


def check_uncorrelated(model: LinearGaussian, use: str) -> None:
    """Raises a ValueError for a model whose process and observation noise are correlated."""
    if model.S is not None:
        raise ValueError(
            f"{use} needs process and observation noise that are independent, but the model has an "
            "S: make one without it by model.replace(S=None), or filter whole series"
        )


def check_model(model: object) -> None:
    """Raises a TypeError for anything but a model."""
    if not isinstance(model, LinearGaussian):
        raise TypeError(f"model must be a LinearGaussian, got {type(model).__name__}")


def _as_matrix(a: tf.Tensor, name: str, rows: int | None) -> str:
    """The hint of an error about a covariance that came as a vector or a number, else empty."""
    if name not in ("Q", "R", "initial_covariance") or rows is None:
        return ""
    if a.shape.rank == 0:
        return f": of one variance, {name} * np.eye({rows})"
    return f": of a vector of variances, np.diag({name})" if a.shape == [rows] else ""
