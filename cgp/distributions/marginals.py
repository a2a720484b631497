"""Marginal moments of predictions, from any of the forms in which cgp returns predictions."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, cast

import numpy as np

from cgp.distributions.complex_normal import ComplexNormal
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
class Step(NamedTuple):
    """The result of an online filter for a sample, or, stacked over time, for a block."""

    predicted: Marginals
    """The one-step prediction of the observation, noise included."""
    innovation: np.ndarray
    """The observation minus its predicted mean, complex; NaN where missing."""
    filtered: Marginals
    """The posterior of the latent signal given the observations so far, this one included."""

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> Self:
        """Applies a function to each array, also of both distributions."""
        predicted, filtered = self.predicted.map(function), self.filtered.map(function)
        return type(self)(predicted, function(self.innovation), filtered)

    def marginals(self) -> Marginals:
        """The one-step prediction of the observation, which is compared with data."""
        return self.predicted

    @classmethod
    def stack(cls, steps: Iterable["Step"], axis: int = -1) -> Self:
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
        # The three fields may differ: a state has other components than an observation.
        shapes = [tuple(np.shape(a) for a in _arrays(step)) for step in steps]
        for t, step_shapes in enumerate(shapes):
            for expected, shape in zip(shapes[0], step_shapes, strict=True):
                if shape != expected:
                    raise ValueError(
                        f"steps must have one shape: step 0 has arrays of shape {expected}, "
                        f"step {t} of shape {shape}. Stack those of one filter alone"
                    )
        fields = zip(*map(_arrays, steps), strict=True)
        try:
            arrays = [np.stack(series, axis) for series in fields]
        except np.exceptions.AxisError as error:
            raise ValueError(
                f"arrays of shape {shapes[0][0]} cannot be stacked along axis {axis}: expected −1 "
                "for steps of a RecursiveGP or a StateSpaceGP, −2 for those of a KalmanFilter"
            ) from error
        return cls(Marginals(*arrays[:3]), arrays[3], Marginals(*arrays[4:]))


def _arrays(step: Step) -> tuple[np.ndarray, ...]:
    """The seven arrays of a step, in their order."""
    return (*step.predicted, step.innovation, *step.filtered)


def innovation(z: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """The innovation `z − mean`; NaN in both parts where z is NaN."""
    deviation = np.asarray(z - mean)
    missing = np.isnan(z)
    if missing.any():
        deviation[missing] = complex(np.nan, np.nan) if np.iscomplexobj(z) else np.nan
    return deviation


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
