"""VecchiaGP: a complex Gaussian process of many points, each predicted from those near it."""

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.distributions import ComplexNormal
from cgp.gp import posterior as predictions
from cgp.gp.base import as_dict, checked_points
from cgp.gp.data import Data, flattened
from cgp.gp.maximum_likelihood import MaximumLikelihoodGP
from cgp.gp.means import Mean
from cgp.gp.noise import SampleNoise
from cgp.gp.posterior import Posterior
from cgp.gp.saved_data import HeldData
from cgp.gp.subset_checks import moved_to_shorter_scales, signal_taken_for_noise
from cgp.gp.vecchia import density
from cgp.gp.vecchia.neighbours import NearestSamples, half_distances, nearest_in_graph, predecessors
from cgp.kernels.base import Kernel
from cgp.linalg.arguments import ArrayLike, as_numbers, check_whole, squared_modulus
from cgp.training.optimizers import LBFGS
from cgp.training.saving import Outputs, Served

_MOST_ROWS = 5000  # samples whose conditional densities are learned from
_TO_PREDICT = 5  # times as many neighbours
_NO_TREND = (
    "a marginalised trend is not of a VecchiaGP: give Polynomial its coefficients, or add kernels "
    "of large variance, Constant and IntegratedRandomWalk"
)
_MARGINALS_ALONE = (
    "a VecchiaGP predicts each point by itself, and has no {}: take an ExactGP of the samples "
    "near the points, or a SparseGP"
)
_ONE_X = (
    "a VecchiaGP learns from one x and z, of which it draws {} samples by itself: fit(x, z) of all "
    "samples together, without an engine"
)


@keras.saving.register_keras_serializable(package="cgp")
class VecchiaGP(MaximumLikelihoodGP):
    """A Gaussian process of many scattered points, each predicted from the samples nearest to it.

    The density of all samples is a product: each sample is conditioned on the k nearest of those
    before it, in a random order, alone (see `cgp.gp.vecchia.density`). With all samples as
    neighbours that is exact. It takes no inducing points, and so suits signals whose region holds
    many length scales, where those of a `SparseGP` are never dense enough. What is near follows
    from the kernel: distances are in units of that at which the correlation along an axis falls to
    a half.

    `fit` learns from the conditional densities of 5,000 samples drawn at random, each with all of
    its neighbours, of which the mean is an unbiased estimate of that of all: O(k³) each, whatever
    the number of samples; `parameter_errors` are those of such an estimate. By `LBFGS`, neighbours
    are held in a first descent, and sought again at its end, in the metric that it has learned, for
    a second; `epochs` caps both. Other optimizers hold those of the start. It takes one set of
    series, and no datasets. `log_marginal_likelihood` is of all samples, and has first derivatives
    alone, by x where the process is called on `(x, z)`.

    Predictions are from 5 k neighbours, at each point by itself: they have mean and variances, and
    no covariance between points. Samples that lie apart from each other beside the length scales
    of the kernel need few neighbours; a smooth signal in much noise, where hundreds of samples tell
    about each point, is rather for a `SparseGP`.

    `condition` stores the data alone. Series of a batch share inputs, the samples that are missing,
    and noise. Methods, and arguments that are not listed, are as for `ExactGP`.

    Args:
        kernel: A kernel of one signal, shared with other layers that hold it.
        mean: A mean of `cgp.means`, or None for zero; no marginalised trend.
        neighbours: k, the number of samples that a sample is conditioned on.

    Raises:
        TypeError: Not a kernel, or dtypes that differ.
        ValueError: A kernel of outputs, a marginalised trend, a number of neighbours below 1.

    Example:
        >>> import numpy as np
        >>> import cgp
        >>> x = np.random.default_rng(0).uniform(0.0, 9.0, (2000, 2))
        >>> kernel = cgp.kernels.RBF(1.0, 1.0) * cgp.kernels.Rotation([0.5, 0.2])
        >>> gp = cgp.VecchiaGP(kernel, noise_variance=1e-2)
        >>> gp.condition(x, np.exp(2j * np.pi * x @ [0.5, 0.2]))
        >>> mean = gp.predict([[1.0, 1.5]])["mean"]
        >>> bool(abs(mean[0] - np.exp(1.6j * np.pi)) < 0.05)
        True
    """

    likelihood = "neighbours"  # what it learns from, beside the "exact" one of others
    _noise_floor = 5e-10  # as of ExactGP: the covariances of neighbours have to have factors
    _noise_may_follow_signal = False
    _data_by_point = True

    def __init__(
        self,
        kernel: Kernel,
        noise_variance: ArrayLike | None = None,
        noise_pseudo_variance: complex = 0.0,
        mean: Mean | None = None,
        *,
        noise_scale: float | None = 1.0,
        neighbours: int = 20,
        fixed: str | Iterable[str] = (),
        priors: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str | None = None,
        trainable: bool = True,
        **others: Any,
    ):
        for argument in ("likelihood", "noise_fraction"):
            if argument in others:
                raise ValueError(
                    f"a VecchiaGP has no {argument}: the noise of samples is normal, and does not "
                    "depend on the signal, so take ExactGP, or over a line StateSpaceGP"
                )
        if getattr(mean, "marginalized", False):
            raise ValueError(_NO_TREND)
        if getattr(kernel, "outputs", None) is not None:
            raise ValueError(
                f"a VecchiaGP is of one signal, and {kernel!r} of {kernel.outputs}: take ExactGP, "
                "or StateSpaceGP over a line"
            )
        check_whole(neighbours, "neighbours")
        kwargs: dict[str, Any] = {"priors": priors, "name": name, "dtype": dtype, "fixed": fixed}
        kwargs |= {"noise_scale": noise_scale, "trainable": trainable, **others}
        super().__init__(kernel, noise_variance, noise_pseudo_variance, mean, **kwargs)
        self.neighbours = int(neighbours)
        self._nearest = NearestSamples()
        self.built = True

    # --- data -------------------------------------------------------------------------------------

    def check_data(self, data: Data) -> None:
        """Raises for data that kernel or mean refuse, or whose series differ but for targets."""
        if not data.is_of_values:
            raise ValueError(
                "derivatives and exposures are not taken by a VecchiaGP: ExactGP takes observed, "
                "and over a line widths"
            )
        if self._process.basis(data.x) is not None:
            raise ValueError(_NO_TREND)
        _check_series(data)
        super().check_data(data)

    def _condition(self, data: Data) -> None:
        self._stored.replace(data)

    def _recall(self, data: Data) -> None:
        self._stored.replace(data)

    def arranged(self, data: Data) -> Data:
        """The data with the neighbours of up to 5,000 samples, at the present hyperparameters."""
        if data.predecessors is not None:
            return data
        arrays = data.x[0].numpy(), data.present[0].numpy()
        nearest = predecessors(self._process.kernel, *arrays, self.neighbours, _MOST_ROWS)
        return data._replace(predecessors=nearest)

    def approximation_held(self) -> contextlib.AbstractContextManager[bool]:
        """A context in which L-BFGS has the neighbours that belong to its start."""
        return contextlib.nullcontext(isinstance(self.optimizer, LBFGS))

    def prepare_again(self, data: Data) -> bool:
        """Leaves an optimum in which short variations of the signal are noise."""

        def likelihood() -> float:
            return float(tf.reduce_sum(self.data_log_likelihood(self.arranged(data))))

        return moved_to_shorter_scales(self, data, likelihood)

    def suspicions(self, data: Data) -> list[str]:
        """The suspicion that a fit has taken signal for noise."""
        shorter = signal_taken_for_noise(self, data)
        if shorter is None:
            return []
        return [
            f"signal may have been taken for noise: {shorter}, which are neighbours. Fit from "
            "several starts, as in restarts=4, or with a kernel whose shape is that of the signal"
        ]

    def training_batch(self, data: Data) -> tuple:
        """Data with neighbours as the batch of an `Objective`."""
        return super().training_batch(self.arranged(data))

    def _fit_many_series(self, x: Any, engine: Any, **arguments: Any) -> NoReturn:
        raise ValueError(_ONE_X.format(_MOST_ROWS))

    def _as_dataset(self, pairs: tf.data.Dataset) -> tf.data.Dataset:
        if isinstance(pairs.element_spec[0], Data):
            return pairs
        raise ValueError(_ONE_X.format(_MOST_ROWS))

    # --- likelihood -------------------------------------------------------------------------------

    def data_log_likelihood(self, data: Data) -> tf.Tensor:
        """The log likelihood of each series, `[B]`, by the neighbours that are held, or of all."""
        return self._log_likelihood(data)

    def _log_likelihood(self, data: Data, by_x: bool = False, at_once: bool = False) -> tf.Tensor:
        data = _with_checked_series(data)
        weights = [weight.value for weight in self._process.weights]
        arguments = data, self.neighbours, weights, by_x, at_once
        return density.log_likelihood(self._process, *arguments)

    def rounding_noise(self, data: Data) -> tf.Tensor:
        """The rounding error of the eigenvalues of a covariance of neighbours, in squared units."""
        variance = tf.reduce_max(tf.math.real(self._process.marginal(data.x).k))
        size = _TO_PREDICT * self.neighbours
        return 16.0 * np.finfo(self.variable_dtype).eps * math.sqrt(size) * variance

    def parameter_covariance(
        self, verbose: int | str = "auto", *, name: str | None = None
    ) -> np.ndarray:
        """The covariance of the learned hyperparameters, as for `ExactGP`.

        It is that of an estimate from the samples that `fit` draws, not from all.
        """
        count = float(tf.reduce_sum(tf.cast(self.stored_data().keep[0], tf.float64)))
        share = min(_MOST_ROWS / count, 1.0)
        # Scores of conditional densities are uncorrelated, so that information adds up.
        return super().parameter_covariance(verbose, name=name) / share

    # --- predictions ------------------------------------------------------------------------------

    @as_it_stands
    def posterior(
        self,
        x: ArrayLike,
        *,
        observed: bool = False,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
        part: None = None,
    ) -> ComplexNormal:
        """The signal at new points given the samples nearest to each, or its prior before any.

        Args:
            x: Inputs, `[M]` or `[M, D]`.
            observed: As for `ExactGP.posterior`.
            noise_variance: As for `ExactGP.posterior`.
            noise_groups: As for `ExactGP.posterior`.
            part: None: what is near is so in the metric of the whole kernel.

        Returns:
            A distribution of `[..., M]` with `mean`, `variance`, `pseudo_variance`, `ellipses`, and
            `log_prob` of each point by itself, `[..., M]`. Covariances between points, draws and
            what takes them are errors. Before any data a `ComplexNormal` of all points together.
            Differentiable. A `tf.function` must be traced when the process has data.

        Raises:
            TypeError: Complex inputs.
            ValueError: NaN inputs or a shape that does not fit the data; a part; noise without
                `observed=True`, groups that are missing or out of range.
        """
        if part is not None:
            raise ValueError(
                f"part={part!r}: a VecchiaGP predicts the whole signal, as neighbours are those of "
                "the whole kernel: take ExactGP or SparseGP for its terms"
            )
        points = self.points(x)
        noise = self._noise_at(x, points, observed, noise_variance, noise_groups)
        if tf.executing_eagerly() and bool(self._stored.is_empty):
            return predictions.prior(self._process, points, noise)
        data = self.stored_data()
        points = flattened(checked_points(points, data), 2)[0]
        return self._posterior_given(data, points, noise, self._neighbours_at(data, points))

    def _neighbours_at(self, data: Data, points: tf.Tensor) -> tf.Tensor:
        """The numbers of the samples nearest to points `[M, D]`, int32, `[M, k]`."""
        size = tf.get_static_value(tf.shape(data.z)[1])
        count = _TO_PREDICT * self.neighbours
        count = count if size is None else min(count, int(size))

        def search(x: tf.Tensor, present: tf.Tensor, points: tf.Tensor) -> np.ndarray:
            arrays = x.numpy(), present.numpy(), points.numpy()
            return self._nearest.query(self._process.kernel, *arrays, count)

        arguments = data.x[0], data.present[0], points
        if tf.executing_eagerly():
            return tf.constant(search(*arguments))
        near = tf.py_function(search, arguments, tf.int32)
        return tf.ensure_shape(near, [points.shape[0], count])

    def _posterior_given(
        self, data: Data, points: tf.Tensor, noise: SampleNoise | None, neighbours: tf.Tensor
    ) -> ComplexNormal:
        prediction = density.predict(self._process, data, neighbours, points)
        mean = data.unpacked(self._process.plus_function(prediction.mean, points))
        moments = mean, prediction.marginal, _refuse_joint, _refuse_joint
        return PointwisePosterior(predictions.of_signal(self._process, *moments, noise))

    def call(self, inputs: Any) -> dict[str, tf.Tensor]:
        """Predicts at x, or at x given z for inputs `(x, z)`, whose loss it adds.

        Args:
            inputs: Inputs, as for `posterior`; `(x, z)`, as for `condition`; or `Data`, for
                training, which needs the loss alone.

        Returns:
            The dictionary of `predict`; of `Data`, `{"log_likelihood"}`.
        """
        if isinstance(inputs, Data):
            return self._add_loss(inputs, self._log_likelihood(inputs, at_once=True))
        if not isinstance(inputs, tuple | list):
            return as_dict(self.posterior(inputs))
        x, z = inputs
        data = self.data_of(x, z, require_targets=False, noise=self.noise_arguments())
        self._add_loss(data, self._log_likelihood(data, by_x=True))
        points = data.x[0]
        neighbours = self._neighbours_at(data, points)
        return as_dict(self._posterior_given(data, points, None, neighbours))

    # --- saving -----------------------------------------------------------------------------------

    def _served(self) -> Served:
        process, real = self._process, self.variable_dtype
        if bool(self._stored.is_empty):

            def predict_prior(state: tuple, x: tf.Tensor) -> Outputs:
                return as_dict(predictions.prior(process, self.points(x), None))

            return Served((), predict_prior, [tf.TensorSpec([None, None], real, "x")])
        data = self.stored_data()
        held_data, size = HeldData(data), data.z.shape[1]
        present = data.present[0].numpy()
        unit = tf.constant(half_distances(process.kernel, data.x[0].numpy()[present]), real)
        count = min(_TO_PREDICT * self.neighbours, int(np.sum(present)))

        def predict(arrays: Sequence[tf.Tensor], x: tf.Tensor) -> Outputs:
            data, points = held_data.of(arrays), self.points(x)
            data = data._replace(z=tf.ensure_shape(data.z, [None, size]))
            neighbours = nearest_in_graph(data, points, unit, count)
            return as_dict(self._posterior_given(data, points, None, neighbours))

        points = [tf.TensorSpec([None, data.x.shape[-1]], real, "x")]
        return Served(tuple(held_data.arrays), predict, points)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "neighbours": self.neighbours}


class PointwisePosterior(Posterior):
    """The marginal distribution of each of M points; all that takes them together is an error.

    Args:
        signal: The posterior whose marginals these are.
    """

    def __init__(self, signal: Posterior):
        vars(self).update(vars(signal))

    @as_it_stands
    def log_prob(self, value: ArrayLike) -> tf.Tensor:
        """The log density of a value of each point, by itself, real, `[..., M]`.

        Of an improper normal of variance v and pseudo-variance c, with d = z − m (Schreier &
        Scharf, 2010, §2.3):

            log p = −(v |d|² − Re(c̄ d²)) / (v² − |c|²) − ½ log(v² − |c|²) − log π.
        """
        variance, pseudo_variance = self.variance(), self.pseudo_variance()
        d = tf.convert_to_tensor(as_numbers(value, "value"), self.dtype) - self.mean()
        determinant = tf.square(variance) - squared_modulus(pseudo_variance)
        distance = variance * squared_modulus(d)
        distance -= tf.math.real(tf.math.conj(pseudo_variance) * d * d)
        return -distance / determinant - 0.5 * tf.math.log(determinant) - math.log(math.pi)

    def sample(self, sample_shape: ArrayLike = (), seed: ArrayLike | None = None) -> NoReturn:
        """An error: draws are of all points together."""
        raise ValueError(_MARGINALS_ALONE.format("draws of them together"))


def _refuse_joint() -> NoReturn:
    raise ValueError(_MARGINALS_ALONE.format("covariance between them"))


def _check_series(data: Data) -> None:
    """Raises for series that differ in inputs, noise or missing samples."""
    shared = [a for a in (data.x, *data.noise) if a is not None]
    is_shared = all(a.shape[0] in (1, None) for a in shared) or data.z.shape[0] == 1
    present = data.present
    if is_shared and tf.executing_eagerly():
        is_shared = bool(tf.reduce_all(present == present[:1]))
    if not is_shared:
        raise ValueError(
            "the series of a VecchiaGP share inputs, noise and the samples that are missing, and "
            "these do not: fit each by itself"
        )


def _with_checked_series(data: Data) -> Data:
    """Data whose series share one covariance, or an error, of a graph when it runs."""
    _check_series(data)
    if tf.executing_eagerly():
        return data
    message = "the series of a VecchiaGP must miss the same samples"
    present = data.present
    are_alike = tf.debugging.assert_equal(
        present, tf.broadcast_to(present[:1], tf.shape(present)), message
    )
    with tf.control_dependencies([are_alike]):
        return data._replace(z=tf.identity(data.z))
