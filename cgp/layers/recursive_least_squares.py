"""Recursive least squares: a Kalman filter of coefficients that stay, with forgetting."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp import native
from cgp.distributions.forms import ProperForm
from cgp.distributions.marginals import Marginals, Step, innovation
from cgp.linalg.arguments import ArrayLike, is_nan, nan, real_as
from cgp.linalg.batch_last import dot
from cgp.online.cell import Cell, Sample
from cgp.online.online import Online
from cgp.statespace.engines.filter_step import State, marginals_of, update, with_pseudo_variance
from cgp.statespace.models.model_base import whole_steps
from cgp.statespace.native_step import NOT_FINITE, CompiledStep, StepMatrices
from cgp.statespace.online.online_step import StateArrays


@keras.saving.register_keras_serializable(package="cgp.layers")
class LeastSquaresCell(Cell):
    """The coefficients w of `z = h w + v` before a sample, and their update by it.

    Arguments are as for `RecursiveLeastSquares`, whose regressors h are the inputs of a sample.
    """

    State = StateArrays
    streams_axis = -1  # the compiled step has the streams side by side
    jit_compile = True
    unsound = NOT_FINITE

    def __init__(
        self, taps: int, forgetting: float, initial_variance: float, noise_variance: float
    ):
        self.taps, self.forgetting = taps, forgetting
        self.initial_variance, self.noise_variance = initial_variance, noise_variance

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        names = ("taps", "forgetting", "initial_variance", "noise_variance")
        return {name: getattr(self, name) for name in names}

    def initial_state(self, batch_size: Any, sample: Sample | None = None) -> StateArrays:
        """Zero coefficients of the initial variance, of which the first step forgets as well."""
        n, deviation = self.taps, np.sqrt(self.initial_variance / self.forgetting)
        mean = tf.zeros([batch_size, n], tf.complex128)
        chol = tf.constant(deviation * np.eye(n), tf.complex128)
        return StateArrays(mean, tf.broadcast_to(chol, [batch_size, n, n]))

    def structure(self) -> dict[str, Any]:
        """The number of coefficients."""
        return {**super().structure(), "taps": self.taps}

    def sample_spec(self) -> Sample:
        """An observation, and its regressors `[n]`."""
        return Sample(
            z=tf.TensorSpec([], tf.complex128, "z"),
            inputs=tf.TensorSpec([self.taps], tf.complex128, "regressors"),
        )

    def check(
        self, sample: Sample, missing: ArrayLike | None = None, along: int = 0
    ) -> tuple[Sample, int | None]:
        """Checks a sample or block as every cell; there is a row of regressors for each sample."""
        if sample.inputs is not None and np.ndim(sample.inputs) <= along:
            expected = ["T"] * along + [str(self.taps)]
            raise ValueError(
                f"regressors must be [{', '.join(expected)}], or with an axis of streams before, "
                f"got shape {np.shape(sample.inputs)}"
            )
        return super().check(sample, missing, along)

    def step(self, state: StateArrays, sample: Sample) -> tuple[StateArrays, Step]:
        """Predicts observations `[B]`, updates the coefficients with them, and forgets."""
        mean, chol, h = (tf.experimental.numpy.moveaxis(a, 0, -1) for a in (*state, sample.inputs))
        absent, form = is_nan(sample.z), ProperForm()
        z = tf.where(absent, tf.zeros_like(sample.z), sample.z)
        r = tf.fill(tf.shape(z), tf.constant(self.noise_variance, tf.float64))
        observed = tf.cast(~absent, tf.float64)
        rows = tf.einsum("kb,klb->lb", h, chol)[None]
        prediction = dot(h, mean)
        moments = marginals_of(form, prediction[None], rows, real_as(r, z.dtype)[None, None])
        predicted = with_pseudo_variance(*moments).map(lambda a: a[0])
        posterior, _, _ = update(State(mean, chol), h[None], r[None], z[None], observed[None])
        filtered = with_pseudo_variance(*marginals_of(form, posterior.mean, posterior.chol, None))
        mean, chol = (tf.experimental.numpy.moveaxis(a, -1, 0) for a in posterior)
        chol /= self.forgetting**0.5
        deviation = tf.where(absent, nan(z.dtype), sample.z - prediction)
        return StateArrays(mean, chol), Step(
            predicted,
            deviation,
            filtered.map(lambda a: tf.experimental.numpy.moveaxis(a, -1, 0)),
        )

    def compiled(self, streams: int | None) -> "CompiledLeastSquares | None":
        """The compiled step, where the core is there."""
        return CompiledLeastSquares(self, streams) if native.core().ops is not None else None


class CompiledLeastSquares:
    """The step of B streams, or one, by a function of the compiled core."""

    def __init__(self, cell: LeastSquaresCell, streams: int | None):
        n = cell.taps
        self._deviation = cell.forgetting**-0.5
        self._streams = streams
        matrices = {
            "F": np.eye(n),
            "Q_factor": np.zeros((n, 1)),
            "H": np.zeros((1, n)),
            "R": np.full((1, 1), cell.noise_variance),
        }
        matrices = {name: a[..., None].astype(complex) for name, a in matrices.items()}
        self._step = CompiledStep(StepMatrices(**matrices), streams)

    def serves(self, arrays: Sequence[np.ndarray], sample: Sample, layer_weights: bytes) -> bool:
        """Whether the core is there."""
        return native.core().ops is not None

    def __call__(self, arrays: Sequence[np.ndarray], sample: Sample) -> Step | None:
        """Predicts and updates each stream in place, as every `Compiled` step; blocks too."""
        axes = () if self._streams is None else (slice(None),)
        if sample.z.ndim == len(axes):
            return self._take(arrays, sample)
        start, steps = [a.copy() for a in arrays], []
        for t in range(sample.z.shape[-1]):
            step = self._take(arrays, sample.map(lambda a: a[*axes, t]))  # noqa: B023
            if step is None:
                for a, unchanged in zip(arrays, start, strict=True):
                    np.copyto(a, unchanged)
                return None
            steps.append(step)
        return Step.stack(steps, axis=-1)

    def _take(self, arrays: Sequence[np.ndarray], sample: Sample) -> Step | None:
        h = sample.inputs if sample.inputs.ndim == 2 else sample.inputs[None]
        self._step.set(H=np.array(np.moveaxis(h, 0, -1), order="C")[None])
        moments = self._step(sample.z[..., None], *arrays)
        if moments is None:
            return None
        arrays[1][...] *= self._deviation
        predicted = Marginals(*(a[..., 0] for a in moments.predicted))
        return Step(predicted, innovation(sample.z, predicted.mean)[()], moments.filtered)


@keras.saving.register_keras_serializable(package="cgp")
class RecursiveLeastSquares(Online):
    """Recursive least squares with exponential forgetting, in square-root form.

    The coefficients w of `z[t] = h[t] w + v[t]` that minimise `Σ λ^(t−s) |z[s] − h[s] w|²`, and a
    term for the initial variance, updated with each sample: the adaptive filter of equalisers, echo
    cancellers and system identification. It is a `KalmanFilter` of constant coefficients, whose
    covariance is divided by λ after each sample (Sayed & Kailath, IEEE Signal Processing Magazine
    11, 1994; Haykin, *Adaptive Filter Theory*, 2002, ch. 9 and 14); its factor never loses its
    sign, as the textbook's recursion of the covariance does in single precision or after long
    runs. Where textbooks write `wᴴ u`, h is `u` and the coefficients are the conjugates of theirs.

    Forgetting goes on while regressors are zero or samples are missing, and the variance of
    directions that are not excited grows without bound: stop calling `step` then.

    Args:
        taps: The number of coefficients, n.
        forgetting: λ, above 0 and at most 1: samples count by λ to the power of their age.
        initial_variance: The variance of each coefficient before any sample, in squared units of
            z over those of h: large for coefficients that nothing is known of; `1/δ` of textbooks.
        noise_variance: The variance of v, `E|v|²`, in squared units of z. Coefficients depend on
            its ratio to the initial variance alone; variances of predictions on its value.
        name: A name.

    Raises:
        ValueError: No coefficients, a forgetting factor beyond its range, a variance that is not
            positive.

    Example:
        >>> import numpy as np, cgp
        >>> rng = np.random.default_rng(0)
        >>> channel = np.array([1.0, 0.5j])
        >>> u = rng.choice([1, -1, 1j, -1j], size=(200, 2))
        >>> rls = cgp.RecursiveLeastSquares(2, forgetting=0.99)
        >>> step = rls.process(u @ channel, u)
        >>> bool(np.allclose(rls.coefficients, channel, atol=1e-3))
        True
    """

    cell: LeastSquaresCell

    def __init__(
        self,
        taps: int,
        forgetting: float = 1.0,
        initial_variance: float = 1e4,
        noise_variance: float = 1.0,
        name: str | None = None,
        **kwargs: Any,
    ):
        numbers = {
            "forgetting": forgetting,
            "initial_variance": initial_variance,
            "noise_variance": noise_variance,
        }
        for argument, number in numbers.items():
            if not isinstance(number, int | float | np.integer | np.floating):
                raise TypeError(f"{argument} must be a real number, got {number!r}")
            if not 0.0 < number < np.inf:
                raise ValueError(f"{argument} must be positive and finite, got {number!r}")
        if forgetting > 1.0:
            raise ValueError(f"forgetting must be above 0 and at most 1, got {forgetting!r}")
        cell = LeastSquaresCell(whole_steps(taps, "taps"), *map(float, numbers.values()))
        super().__init__(cell, name=name, **kwargs)

    @property
    def coefficients(self) -> np.ndarray:
        """The present coefficients w, complex, `[n]`, or `[B, n]` of B streams."""
        return self.state.mean

    def step(  # type: ignore[override]
        self,
        z: ArrayLike,
        regressors: ArrayLike,
        missing: ArrayLike | None = None,
        *,
        gate: float | None = None,
    ) -> Step:
        """Predicts an observation, then updates the coefficients with it.

        Args:
            z: The observation, a complex number, or `[B]` of B streams; NaN where missing.
            regressors: The row h, complex, `[n]` or `[B, n]`.
            missing: Bool, or `[B]`: True where missing.
            gate: As for `KalmanFilter.step`: a probability outside of which z is skipped.

        Returns:
            `Step` of NumPy arrays: the a-priori prediction `h w` of z and its error as innovation,
            `[]` or `[B]`, and as `filtered` the coefficients after the update, `[n]` or `[B, n]`.

        Raises:
            TypeError, ValueError: Numbers of another dtype or shape, or not finite; the state is
                then unchanged.
        """
        return self._take_sample(Sample(z, inputs=regressors), missing, gate=gate)

    def process(  # type: ignore[override]
        self,
        z: ArrayLike,
        regressors: ArrayLike,
        missing: ArrayLike | None = None,
        verbose: int | str = "auto",
    ) -> Step:
        """Takes a block of samples: `step` for each.

        Args:
            z: Observations, `[T]` or `[B, T]`.
            regressors: Their rows, `[T, n]` or `[B, T, n]`.
            missing: Bool, broadcast against z.
            verbose: 0 is silent, 1 or 2 a bar, "auto" one if it takes long where it is watched.

        Returns:
            As `step`, stacked over time; errors as for `step`.
        """
        return self._take_block(Sample(z, inputs=regressors), missing, verbose)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, and the number of streams."""
        config = super().get_config()
        del config["cell"]
        return {**config, **self.cell.get_config()}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict | None = None
    ) -> "RecursiveLeastSquares":
        """Makes the filter of a config."""
        config = dict(config)
        return cls._with_streams(config, config.pop("streams", None))
