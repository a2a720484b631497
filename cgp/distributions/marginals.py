"""Marginal moments of predictions, from any of the forms in which cgp returns predictions."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, cast

import numpy as np
import scipy.special

from cgp.distributions.complex_normal import ComplexNormal, check_probability
from cgp.linalg.arguments import as_numbers
from cgp.linalg.short_repr import short_repr
from cgp.observations import check_same_labels


@short_repr
class Marginals(NamedTuple):
    """The marginal moments of each component, NumPy arrays `[..., n]`."""

    mean: np.ndarray
    """The mean, complex."""
    variance: np.ndarray
    """The variance `E|z−m|²`, real."""
    pseudo_variance: np.ndarray
    """The pseudo-variance `E[(z−m)²]`, complex."""

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> Self:
        """Applies a function to each array, such as the choice of one stream."""
        return type(self)(*(function(a) for a in self))


@short_repr
class JointMoments(NamedTuple):
    """The second moments of all components together, NumPy arrays `[..., M, M]`."""

    covariance: np.ndarray
    """`E[(z−m)(z−m)ᴴ]`."""
    pseudo_covariance: np.ndarray
    """`E[(z−m)(z−m)ᵀ]`; of a real observation the covariance."""

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> Self:
        """Applies a function to both arrays."""
        return type(self)(function(self.covariance), function(self.pseudo_covariance))


@short_repr
class Step(NamedTuple):
    """The result of an online filter for a sample, or, stacked over time, for a block.

    `predicted` is the one-step prediction of the observation, noise included; `innovation` the
    observation minus its mean; `filtered` the posterior given this observation too. `joint` has the
    second moments of all components of the prediction, and `outside_gate` says whether a gate
    skipped the observation; they are empty, `()`, for numbers and for a step without a gate.
    `innovation_covariance`, `innovation_pseudo_covariance` and `nis` follow from these.
    """

    predicted: Marginals
    """The one-step prediction of the observation, noise included."""
    innovation: np.ndarray
    """The observation minus its predicted mean, complex; NaN where missing."""
    filtered: Marginals
    """The posterior of the latent signal given the observations so far, this one included."""
    joint: JointMoments | tuple[()] = ()
    """The second moments of the prediction over all components; empty for observations that are
    numbers, whose moments are in `predicted`."""
    outside_gate: np.ndarray | tuple[()] = ()
    """Whether the observation of each stream lay outside of the gate and was skipped, bool; empty
    for a step without a gate."""

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> Self:
        """Applies a function to each array, also inside the distributions."""
        return type(self)(
            self.predicted.map(function),
            function(self.innovation),
            self.filtered.map(function),
            self.joint.map(function) if self.joint else (),
            () if isinstance(self.outside_gate, tuple) else function(self.outside_gate),
        )

    @property
    def innovation_covariance(self) -> np.ndarray:
        """The covariance S of the innovation, noise included, `[..., M, M]`.

        Of an estimator whose observations are numbers it is their variance, `[...]`.
        """
        return self.joint.covariance if self.joint else self.predicted.variance

    @property
    def innovation_pseudo_covariance(self) -> np.ndarray:
        """The pseudo-covariance of the innovation, as `innovation_covariance`; zero if proper."""
        return self.joint.pseudo_covariance if self.joint else self.predicted.pseudo_variance

    @property
    def nis(self) -> np.ndarray:
        """The normalised innovation squared, real, `[...]`: NaN where nothing is observed.

        The squared Mahalanobis distance of the observation, `vᵀ S⁻¹ v` of the real composite
        `v = [Re; Im]` of the innovation; `2 vᴴ S⁻¹ v` where it is proper. If the model is right it
        is χ² with two degrees of freedom for each observed component, of real series with one
        (Bar-Shalom, Li & Kirubarajan, *Estimation with Applications to Tracking and Navigation*,
        2001, §5.4).

        Example:
            >>> import cgp
            >>> model = cgp.statespace.LinearGaussian([[0j]], [[1.0]], [[1.0]], [[1.0]])
            >>> float(cgp.KalmanFilter(model).step(2.0 + 0j).nis)
            4.0
        """
        covariance, innovation = self.innovation_covariance, self.innovation
        pseudo = self.innovation_pseudo_covariance
        if not self.joint:  # numbers: a vector of one component
            covariance, pseudo = covariance[..., None, None], pseudo[..., None, None]
            innovation = np.asarray(innovation)[..., None]
        return normalized_innovation_squared(innovation, covariance, pseudo)

    def marginals(self) -> Marginals:
        """The one-step prediction of the observation, which is compared with data."""
        return self.predicted

    @classmethod
    def stack(cls, steps: Iterable["Step"], axis: int = -1) -> "Step":
        """Stacks the results of `step`, sample by sample, as `process` returns them for a block.

        Metrics and plots take the result: `cgp.metrics.coverage(z, stacked)`.

        Args:
            steps: The results of one filter, in the order of the samples.
            axis: The axis of time. The last, −1, for the steps of `RecursiveGP` and
                `StateSpaceGP`: numbers become `[T]`, arrays `[B]` of B series `[B, T]`. The last
                but one, −2, for the steps of `KalmanFilter`, whose components `[M]` stay last:
                `[T, M]`, or `[B, T, M]`.

        Returns:
            A `Step` of arrays.

        Raises:
            TypeError: A member that is not a `Step`.
            ValueError: No steps, steps of different shapes, or an axis that their arrays lack.

        Example:
            >>> import cgp
            >>> from cgp.distributions import Step
            >>> gp = cgp.StateSpaceGP(cgp.kernels.Matern12(1.0, 1.0), noise_variance=0.5)
            >>> z = [1.0 + 1j, 0.5j, 0.2]
            >>> stacked = Step.stack([gp.step(x, z_x + 0j) for x, z_x in enumerate(z)])
            >>> stacked.predicted.mean.shape
            (3,)
            >>> cgp.metrics.coverage(np.array(z), stacked)
            1.0
        """
        steps = list(steps)
        for step in steps:
            if not isinstance(step, Step):
                raise TypeError(f"each member must be a Step, got {type(step).__name__}")
        if not steps:
            raise ValueError("there are no steps to stack")
        # The fields may differ: a state has other components than an observation.
        shapes = [tuple(np.shape(a) for a in _arrays(step)) for step in steps]
        for t, step_shapes in enumerate(shapes):
            if len(step_shapes) != len(shapes[0]):
                raise ValueError(
                    f"steps must be those of one filter, all with a gate or none: step 0 has "
                    f"{len(shapes[0])} arrays, step {t} has {len(step_shapes)}"
                )
            for expected, shape in zip(shapes[0], step_shapes, strict=True):
                if shape != expected:
                    raise ValueError(
                        f"steps must have one shape: step 0 has arrays of shape {expected}, "
                        f"step {t} of shape {shape}. Stack those of one filter alone"
                    )
        # From the start, as joint moments have one axis of components more.
        place = axis if axis >= 0 else np.ndim(steps[0].innovation) + 1 + axis
        arrays = iter(_stacked(list(map(_arrays, steps)), axis, place))
        return steps[0].map(lambda _: next(arrays))


def _arrays(step: Step) -> list[np.ndarray]:
    """The arrays of a step, in their order."""
    outside = () if isinstance(step.outside_gate, tuple) else (step.outside_gate,)
    return [*step.predicted, step.innovation, *step.filtered, *step.joint, *outside]


def _stacked(rows: list[list[np.ndarray]], axis: int, place: int) -> list[np.ndarray]:
    try:
        if place < 0:
            raise np.exceptions.AxisError(axis, np.ndim(rows[0][0]))
        return [np.stack(series, place) for series in zip(*rows, strict=True)]
    except np.exceptions.AxisError as error:
        raise ValueError(
            f"arrays of shape {np.shape(rows[0][0])} cannot be stacked along axis {axis}: expected "
            "−1 for steps of a RecursiveGP or a StateSpaceGP, −2 for those of a KalmanFilter"
        ) from error


def innovation(z: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """The innovation `z − mean`; NaN in both parts where z is NaN."""
    deviation = np.asarray(z - mean)
    missing = np.isnan(z)
    if missing.any():
        deviation[missing] = complex(np.nan, np.nan) if np.iscomplexobj(z) else np.nan
    return deviation


def normalized_innovation_squared(
    innovation: np.ndarray, covariance: np.ndarray, pseudo_covariance: np.ndarray
) -> np.ndarray:
    """`vᵀ S⁻¹ v` of the observed components of innovations `[..., M]`, of their real composites.

    Args:
        innovation: The innovation v, complex or real; NaN where missing.
        covariance: `[..., M, M]`.
        pseudo_covariance: Likewise; not used for a real innovation.

    Returns:
        Real, `[...]`; NaN where no component is observed, infinite where S is singular and v
        contradicts it.
    """
    v, S = innovation, covariance
    if np.iscomplexobj(innovation):
        K, C = covariance, pseudo_covariance
        v = np.concatenate([innovation.real, innovation.imag], axis=-1)
        # With z = x + iy: K = E[xx + yy] + i E[yx − xy], C = E[xx − yy] + i E[yx + xy].
        rows = [[(K + C).real, (C - K).imag], [(K + C).imag, (K - C).real]]
        S = 0.5 * np.concatenate([np.concatenate(row, axis=-1) for row in rows], axis=-2)
    observed = ~np.isnan(v)
    if not observed.all():  # missing components: v = 0 with the identity as covariance
        v = np.where(observed, v, 0.0)
        observed_pairs = observed[..., :, None] & observed[..., None, :]
        S = np.where(observed_pairs, S, np.eye(v.shape[-1], dtype=v.dtype))
    try:
        square = np.sum(v * np.linalg.solve(S, v[..., None])[..., 0], axis=-1)
    except np.linalg.LinAlgError:
        square = _singular_square(v, S)
    return np.where(observed.any(axis=-1), square, np.nan)[()]


def _singular_square(v: np.ndarray, S: np.ndarray) -> np.ndarray:
    """`vᵀ S⁺ v`, infinite where v is not in the range of S."""
    variances, axes = np.linalg.eigh(S)
    along = np.einsum("...ik,...i->...k", axes, v) ** 2
    rounding = v.shape[-1] * np.finfo(v.dtype).eps
    certain = variances <= rounding * variances[..., -1:]
    contradicts = certain & (along > rounding * np.sum(v**2, axis=-1, keepdims=True))
    squares = np.where(certain, 0.0, along / np.where(certain, 1.0, variances))
    return np.where(contradicts.any(axis=-1), np.inf, squares.sum(axis=-1))


def within_gate(step: Step, probability: float) -> np.ndarray:
    """Whether each observation of a step lies inside its gate: `cgp.metrics.gate`."""
    check_probability(probability, "probability of a gate")
    degrees = degrees_of_freedom(step)
    # The quantile of χ² with k degrees of freedom: twice that of the gamma distribution of k/2.
    limit = 2.0 * scipy.special.gammaincinv(0.5 * np.maximum(degrees, 1), probability)
    return np.asarray((degrees == 0) | (step.nis <= limit))[()]


def degrees_of_freedom(step: Step) -> np.ndarray:
    """The degrees of freedom of `step.nis`, `[...]`: zero where nothing is observed."""
    observed = ~np.isnan(step.innovation)
    count = np.asarray(observed.sum(axis=-1) if step.joint else observed.astype(int))
    return count * (2 if np.iscomplexobj(step.innovation) else 1)


class Result(Protocol):
    """A result that has the moments of a prediction."""

    def marginals(self) -> Marginals:
        """The moments that metrics and plots take."""


Prediction: TypeAlias = ComplexNormal | Result | Mapping[str, Any] | tuple[Any, ...]
"""A `ComplexNormal`, a result, a dict of moments as from `predict`, or a named tuple of moments."""

_OF_FILTER = {
    "mean": "observation_mean",
    "variance": "innovation_variance",
    "pseudo_variance": "innovation_pseudo_variance",
}
"""The keys of the moments of observations in the result of a `KalmanFilter` for a series."""


def marginals(prediction: Prediction) -> Marginals:
    """The marginal moments of a prediction in any of its forms.

    A result with several distributions gives the moments that can be compared with data, where it
    has them: a filter, whole or online, the one-step predictions of the observations, noise
    included; a forecast the observations; a smoother and a particle filter, which have moments of
    the state alone, the state.

    Args:
        prediction: A `ComplexNormal`; the result of `step` or `process`, or of
            `statespace.filter`, `smooth`, `forecast` or `particle_filter`; a dict with keys mean,
            variance, pseudo_variance, as `predict` and `forecasts` return, or the dict of a
            `KalmanFilter`; or a named tuple with such fields.

    Returns:
        `Marginals(mean, variance, pseudo_variance)`.

    Raises:
        TypeError: None of these, a real mean, or a complex variance.
        ValueError: Keys that are missing, masked elements, or shapes that differ.

    Example:
        >>> import numpy as np, cgp
        >>> from cgp.distributions import marginals
        >>> normal = cgp.ComplexNormal(np.array([1.0j]), np.array([[2.0 + 0j]]))
        >>> marginals(normal).variance
        array([4.])
    """
    if isinstance(prediction, ComplexNormal):
        return Marginals(*(np.asarray(getattr(prediction, name)()) for name in Marginals._fields))
    if hasattr(prediction, "marginals"):
        prediction = cast("Result", prediction).marginals()
    if hasattr(prediction, "_asdict"):
        prediction = cast("NamedTuple", prediction)._asdict()
    if not isinstance(prediction, Mapping):
        raise TypeError(
            "a prediction must be a ComplexNormal, or a dict with keys mean, variance and "
            "pseudo_variance, or what a filter, a smoother or a forecast returns, got "
            f"{type(prediction).__name__}"
        )
    if _OF_FILTER["mean"] in prediction:
        of_filter = {n: prediction[key] for n, key in _OF_FILTER.items() if key in prediction}
        # A proper model has no pseudo-variance.
        prediction = {"pseudo_variance": np.zeros_like(of_filter["mean"]), **of_filter}
    missing = [name for name in Marginals._fields if name not in prediction]
    if missing:
        keys = ", ".join(prediction)
        raise ValueError(f"the prediction has no {', '.join(missing)}; it has {keys}")
    check_same_labels(**{name: (a, 0) for name, a in labelled_moments(prediction).items()})
    named = ((prediction[name], f"the {name} of a prediction") for name in Marginals._fields)
    moments = Marginals(*(np.asarray(as_numbers(*moment)) for moment in named))
    if not np.iscomplexobj(moments.mean):
        raise TypeError(f"the mean of a prediction must be complex, got {moments.mean.dtype}")
    if np.iscomplexobj(moments.variance):
        raise TypeError(f"a variance must be real, got {moments.variance.dtype}")
    shapes = [str(moment.shape) for moment in moments]
    if len({*shapes}) > 1:
        raise ValueError(
            "mean, variance and pseudo_variance of a prediction must have one shape, got "
            f"{', '.join(shapes)}"
        )
    return moments


def labelled_moments(prediction: Prediction) -> dict[str, Any]:
    """The moments in a dict or dataset, which may have labels, by their expression in code."""
    if not isinstance(prediction, Mapping):
        return {}
    names = [name for name in Marginals._fields if name in prediction]
    return {f'prediction["{name}"]': prediction[name] for name in names}


def mixture(components: list[tuple[float, Marginals]]) -> Marginals:
    """The moments of a mixture of predictions with weights of sum 1."""
    weights, predictions = zip(*components, strict=True)
    means, variances, pseudo_variances = map(np.stack, zip(*predictions, strict=True))
    mean = np.tensordot(weights, means, 1)
    apart = means - mean
    variance = np.tensordot(weights, variances + np.abs(apart) ** 2, 1)
    return Marginals(mean, variance, np.tensordot(weights, pseudo_variances + apart**2, 1))


def deviations(variance: np.ndarray, difference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standard deviations of real and imaginary part, `√((variance ± difference)/2)`.

    Rounding may leave a part that is certain a variance of −1e−17.
    """
    first, second = np.sqrt(np.maximum([variance + difference, variance - difference], 0.0) / 2)
    return first, second
