"""ExactGP: a complex Gaussian process with a dense covariance."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.distributions import ComplexNormal
from cgp.distributions.marginals import Marginals
from cgp.gp import line
from cgp.gp import posterior as predictions
from cgp.gp.base import as_dict, checked_points
from cgp.gp.data import Data, as_line, empty_variable, flattened
from cgp.gp.maximum_likelihood import MaximumLikelihoodGP
from cgp.gp.means import Mean
from cgp.gp.noise import NoiseArguments
from cgp.gp.outputs import by_outputs
from cgp.gp.posterior import Posterior
from cgp.gp.sampling.laplace_average import averaged_posterior
from cgp.gp.saved_data import HeldData
from cgp.gp.signal_plus_noise import check_terms
from cgp.gp.site_approximation import SiteApproximation
from cgp.kernels.base import Kernel
from cgp.kernels.points import as_points
from cgp.likelihoods import Likelihood
from cgp.linalg import cholesky, stored_cholesky
from cgp.linalg.arguments import ArrayLike, as_flag, complex_dtype, nan
from cgp.training import confirm, invalidate, refresh
from cgp.training.keras_private import in_stateless_scope
from cgp.training.post_updates import is_left_out_of_loss, leave_out_of_loss
from cgp.training.saving import Outputs, Served, registered_config

_MOST_COVARIANCES = 2_000_000  # between samples of a line and new points, at once


@keras.saving.register_keras_serializable(package="cgp")
class ExactGP(MaximumLikelihoodGP):
    """A Gaussian process of a complex signal, observed in noise, with a dense covariance.

    The signal is `f ~ GP(mean, kernel)`, the data `z = f(x) + n`. Learning N points costs O(N³) a
    step and O(N²) memory, but O(N²) and O(N) over a regular line, as described below. A signal is
    proper if its kernel and its noise are, and is then computed in complex
    matrices; an improper one in real matrices of twice the size (see `cgp.distributions.forms`).

    Data are given to `condition`, or to `fit`, which learns the hyperparameters too. The factor of
    their covariance is stored for all predictions, and recomputed after each gradient step and
    whenever a hyperparameter has changed in another way. Before any data the posterior is the
    prior.

    Samples at equal steps of x have a Toeplitz covariance where the kernel is stationary and
    proper and the noise is common. From 256 samples on it is taken as such, with the same results
    (see `cgp.gp.line`): 1e4 samples take a tenth of a second a step. Samples of a line may be
    missing, NaN, up to a quarter of them and 3000, the same in all series; each adds a vector of N
    elements. Likelihoods of a line have first derivatives alone, and none by x: give x as a tensor
    where one is asked for.

    A kernel of P outputs (`cgp.kernels.Coregionalized`, `cgp.kernels.Outputs`) is of P signals at
    once: z is then `[..., N, P]`, NaN where an output is missing, and so are predictions. One noise
    variance is of all outputs, `[P]` of each.

    As a layer, `gp(x)` returns the dictionary of `predict`, and `gp((x, z))` the same at x given z.
    The latter adds its loss, the negative log marginal likelihood per point, to the loss of the
    enclosing model; gradients pass to x, z and the hyperparameters.

    Args:
        kernel: A kernel. Models that are given the same kernel share its hyperparameters.
        noise_variance: `E|n|²`, positive; in squared units of z. Left out, it is initialised at the
            first `fit` with the floor of the periodogram of the data, and has a weak prior that
            keeps it from zero (see `cgp.gp.starts.log_weak_prior`). `[G]` for a learned variance of
            each of G groups of samples, as of eras or sensors, `[None] * G` if left out: data then
            come with `noise_groups`.
        noise_pseudo_variance: `E[n²]`, complex, at most `noise_variance` in modulus, of the first
            group if there are several. Zero, the default, stays zero: the noise is circular.
            Another value is learned, as its ratio to the noise variance, the circularity quotient,
            one number for all groups.
        mean: A mean of `cgp.means`, or None for zero.
        noise_scale: What the known part of the noise, `noise_variance` of `fit`, is multiplied by.
            1, the default, takes it as it is. None learns one factor for all samples, initialised
            from the data; another number is learned from there. The learned noise variance is
            still added. Where the known part is alike for all samples, the two cannot be told
            apart: fix the one, as in `fixed="noise_variance"`, with a small value.
        noise_fraction: The deviation of noise that follows the signal, over `|f|`, as 0.01 for 1 %
            of the reading: `E|n|² = noise_variance + noise_fraction² E|f|²`, circular. 0, the
            default, is none. None learns it, initialised from the data. `fit` renews E|f|² at the
            samples until it settles, `condition` computes it from the data, and predictions with
            `observed=True` from the posterior (see `cgp.gp.signal_power`). Gradients take it as
            constant; so do leave-one-out predictions and forecasts, which have it from all data.
            Once hyperparameters have been assigned, `condition` again.
        likelihood: None for data that are the signal plus normal noise, else a likelihood of
            `cgp.likelihoods`. Posterior and log marginal likelihood are then approximate: the
            posterior is the normal distribution nearest to the true one, the likelihood is from
            expectation propagation for `OneBit` and a lower bound for others. They take some ten to
            a hundred times as long. `observed=True` adds normal noise of the noise variance.
        fixed: Names of hyperparameters not to train, "noise_variance", "noise_scale",
            "noise_fraction" or "noise_circularity".
        priors: TFP distributions of "noise_variance", by name; `{"noise_variance": None}` for no
            prior where it is left out.
        name: A name.
        dtype: "float64" (complex128 data) or "float32" (complex64); as the kernel if None.

    Raises:
        TypeError: No kernel, or dtypes that differ.
        ValueError: A noise that no process can have.

    Example:
        >>> import numpy as np
        >>> import cgp
        >>> t = np.linspace(0.0, 4.0, 9)
        >>> kernel = cgp.kernels.RBF(1.0, 1.0) * cgp.kernels.Rotation(0.5)
        >>> gp = cgp.ExactGP(kernel, noise_variance=1e-4)
        >>> gp.condition(t, np.exp(1j * np.pi * t))
        >>> mean = gp.predict([1.25])["mean"]
        >>> bool(abs(mean[0] - np.exp(1.25j * np.pi)) < 0.01)
        True
    """

    _noise_floor = 5e-10  # the covariance of all data has to have a Cholesky factor

    def __init__(
        self,
        kernel: Kernel,
        noise_variance: ArrayLike | None = None,
        noise_pseudo_variance: complex = 0.0,
        mean: Mean | None = None,
        *,
        noise_scale: float | None = 1.0,
        noise_fraction: float | None = 0.0,
        likelihood: Likelihood | None = None,
        fixed: str | Iterable[str] = (),
        priors: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        kwargs |= {"fixed": fixed, "priors": priors, "name": name, "dtype": dtype}
        kwargs |= {"noise_scale": noise_scale, "noise_fraction": noise_fraction}
        moments = noise_variance, noise_pseudo_variance, mean
        super().__init__(kernel, *moments, likelihood=likelihood, **kwargs)
        self.likelihood, real = likelihood, self.variable_dtype
        # `[G, n, n]`; of a line the first column of the inverse, `[1, n, 1]`.
        self._factor = empty_variable(3, complex_dtype(real) if self._process.is_proper else real)
        self._sites = SiteApproximation(self._process, self._stored, self._at_samples)
        self._watch(self._factorize, state_is_weights=False)
        leave_out_of_loss(self)
        self.built = True

    # --- the factor of the data ----------------------------------------------------------------

    def _factorize(self) -> None:
        """The post-gradient update: the factor of the data at the present hyperparameters."""

        def factorize() -> bool:
            data = self._sites.renew() if self._sites.are_needed else self._stored.data
            if tf.executing_eagerly() or not self._process.is_toeplitz:
                factor = self._process.factor(data)
            else:
                factor = tf.cond(
                    self._stored.is_line,
                    lambda: self._process.factor(self._stored.graph_of_line(data)),
                    lambda: self._process.factor(data),
                )
            self._factor.assign(factor)
            return True

        # When it runs, not when it is traced: data may come later.
        tf.cond(self._stored.is_empty, lambda: False, factorize)

    def _covariance_and_factor(self, data: Data) -> tuple[tf.Tensor, tf.Tensor]:
        """The covariance of data, and its factor: the stored one if these data are stored.

        No gradient passes through the factor.
        """
        covariance = self._process.covariance(data)
        # The stored factor belongs to the weights, not to the values of a stateless scope or of
        # the steps of a line search.
        is_of_weights = not (in_stateless_scope() or is_left_out_of_loss(self))
        if data.noise.total_variance is not None or not is_of_weights:
            return covariance, cholesky(tf.stop_gradient(covariance))
        refresh(self)

        def stored_factor() -> tf.Tensor:
            # Cut or padded to the shape that it has where the data are stored: XLA compiles the
            # branch that is not taken too, and requires shapes that fit.
            shape = tf.shape(covariance)
            missing = tf.maximum(shape - tf.shape(self._factor), 0)
            padded = tf.pad(self._factor, tf.stack([tf.zeros_like(missing), missing], axis=-1))
            return padded[: shape[0], : shape[1], : shape[2]]

        def computed_factor() -> tf.Tensor:
            return cholesky(tf.stop_gradient(covariance))

        is_stored = self._stored.holds(data) & ~self._stored.is_line
        chol = tf.cond(is_stored, stored_factor, computed_factor)
        return covariance, tf.ensure_shape(chol, covariance.shape)

    def _differentiable_factor(self, data: Data) -> tf.Tensor:
        """The stored factor of the stored data, through which gradients reach the hyperparameters.

        Only gradients need the covariance: it is computed when one is asked for.
        """
        refresh(self)
        weights = [weight.value for weight in self._process.weights]
        if data.on_line is not None:  # they reach them by the covariance
            return self._factor[:1, :, :1]
        stored = self._stored_cholesky(data)
        covariance = self._process.while_unchanged(lambda: self._process.covariance(data))

        @tf.custom_gradient
        def factor(*weights_of_process: tf.Tensor) -> tuple[tf.Tensor, Callable]:
            def backward(chol_bar: tf.Tensor) -> list[tf.Tensor]:
                with tf.GradientTape() as tape:
                    tape.watch(weights)
                    chol = stored_cholesky(stored, covariance())
                return tape.gradient(chol, weights, chol_bar, tf.UnconnectedGradients.ZERO)

            return tf.identity(stored), backward

        return factor(*map(tf.convert_to_tensor, weights))

    def _stored_cholesky(self, data: Data) -> tf.Tensor:
        """The stored factor; in a graph of no line that runs with one, the factor computed."""
        if tf.executing_eagerly() or not self._process.is_toeplitz:
            return tf.convert_to_tensor(self._factor)
        return tf.cond(
            self._stored.is_line,
            lambda: cholesky(self._process.covariance(data)),
            lambda: tf.convert_to_tensor(self._factor),
        )

    def _check_watched(self) -> None:
        """Raises if the kernel made weights at its first use, later than updates are registered."""
        late = [v.path for v in self._process.weights if id(v) not in self._watched]
        if late:
            raise ValueError(
                f"the kernel has made the weights {late} when it was first used, too late to be "
                "watched: build the layers inside it in its constructor"
            )

    # --- taking data in ------------------------------------------------------------------------

    def data_of(self, x: Any, z: Any, missing: Any = None, **arguments: Any) -> Data:
        """Data of the model, on a line if their covariance is Toeplitz, as for `as_data`."""
        data = super().data_of(x, z, missing, **arguments)
        # By the x of a tensor a gradient may be asked for, which a line does not have.
        return data if isinstance(x, tf.Tensor) else self._on_line(data)

    def _on_line(self, data: Data) -> Data:
        return as_line(data) if self._process.is_toeplitz and tf.executing_eagerly() else data

    def check_data(self, data: Data) -> None:
        """Raises for data that kernel or mean refuse."""
        super().check_data(data)
        if self.mean is not None and tf.executing_eagerly():
            self.mean.check_determined(data.x, data.keep.numpy(), data.functional)

    def _condition(self, data: Data) -> None:
        # The factor first: where it fails nothing has been replaced.
        normal = self._sites.find(data).data if self._sites.are_needed else data
        factor = self._process.factor(normal)
        self._check_watched()
        if self._sites.are_needed:
            self._sites.keep(normal)
        self._stored.replace(data)
        self._factor.assign(factor)
        confirm(self)

    def data_log_likelihood(self, data: Data) -> tf.Tensor:
        """The log marginal likelihood of each series, `[B]`, by the factor of their covariance."""
        if data.on_line is not None:
            column = line.first_column(self._process, data)
            return line.log_likelihood(self._process, data, column)
        if self._process.noise_is_of_samples:
            return self._process.log_likelihood(data, *self._covariance_and_factor(data))
        data, correction = self._sites.find(data)
        factor = self._covariance_and_factor(data)
        return self._process.log_likelihood(data, *factor) + correction

    def rounding_noise(self, data: Data) -> tf.Tensor:
        """The rounding error of the eigenvalues of the covariance of data, in squared units.

        `[P]` of outputs with noise of their own, whose units may differ.
        """
        # From random errors of the elements, some units in the last place each. Whether a matrix
        # with smaller eigenvalues has a factor is chance.
        variances = tf.math.real(self._process.marginal(data.x).k)
        if self.noise_is_by_output:
            variances = by_outputs(variances, self.kernel.outputs)
        variance = tf.reduce_max(variances, axis=[0, 1])
        size = tf.cast(tf.shape(data.z)[-1], variance.dtype)
        return 16.0 * np.finfo(self.variable_dtype).eps * tf.sqrt(size) * variance

    def _at_samples(self, normal: Data) -> Posterior:
        """The signal at the samples of normal data, without gradient."""
        conditioned = predictions.condition(self._process, normal, self._process.factor(normal))
        return predictions.posterior(self._process, normal, conditioned, normal.x, None)

    def _normal(self, data: Data) -> Data:
        """The data stored, or the normal data that stand for them under a likelihood."""
        refresh(self)
        return self._sites.of_stored(data)

    # --- predictions ---------------------------------------------------------------------------

    @as_it_stands
    def posterior(
        self,
        x: ArrayLike,
        *,
        observed: bool = False,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
        part: Kernel | None = None,
        uncertain: bool = False,
    ) -> ComplexNormal:
        """The signal at new points given the data, or its prior before any.

        Args:
            x: Inputs, `[M]` or `[M, D]`; `[..., M, D]` where each series has its own.
            observed: Whether to add the noise of a measurement to the signal.
            noise_variance: The known part of that noise, a number or `[M]`; the learned noise
                variance is added to it. None for none.
            noise_groups: The groups of the measurements, an integer or `[M]`, for a model of
                several groups.
            part: A term of a kernel that is a sum, the same object, or the sum `a + b` of some of
                its terms; its process is predicted, without the mean. None for the whole signal.
            uncertain: Whether hyperparameters are uncertain too. The posterior is then averaged
                over them by Laplace's approximation, at the maximum with weak priors that is
                nearest to the present values, which it moves to even where they were not fitted;
                fixed ones stay (see `cgp.gp.sampling.laplace_average`). For few data, a hundred or
                less, or much noise, where regions are too narrow otherwise. The first call takes
                some tens of evaluations of the gradient. Not for a part.

        Returns:
            A `ComplexNormal` of `[..., M]`: `mean`, `variance`, `pseudo_variance`, `covariance`,
            `pseudo_covariance`, `sample`, `log_prob`, `ellipses`. Differentiable. A `tf.function`
            must be traced when the process has data. Of P outputs moments and samples are
            `[..., M, P]`, covariances of all values `[..., M P, M P]`, the outputs of a point side
            by side, and `output_covariance()` is of the outputs of each point, `[..., M, P, P]`.

        Raises:
            TypeError: Complex inputs.
            ValueError: NaN inputs or a shape that does not fit the data; before any data, a
                marginalised trend, which has no prior. A part that is no term of the kernel. Noise
                without `observed=True`, groups that are missing or out of range.
        """
        points = self.points(x)
        check_terms(self.kernel, part, observed)
        noise = self._noise_at(x, points, observed, noise_variance, noise_groups)
        if as_flag(uncertain, "uncertain"):
            return averaged_posterior(self, x, part, observed, noise_variance, noise_groups)
        process = self._process.of_terms(part)
        if tf.executing_eagerly():
            if bool(self._stored.is_empty):
                return self.of_outputs(predictions.prior(process, points, noise))
            data = self._normal(self._stored.data)
        else:
            data = self._normal(self._stored.data_of_graph())
        points = flattened(checked_points(points, data, self.kernel.outputs), 2)
        conditioned = predictions.condition(self._process, data, self._differentiable_factor(data))
        posterior = predictions.posterior(process, data, conditioned, points, noise)
        return self.of_outputs(posterior)

    def _predicted(self, x: ArrayLike, observed: bool, noise: NoiseArguments) -> Marginals:
        points = as_points(x, self.variable_dtype)
        samples = int(tf.shape(self._stored.z)[-1]) if self._stored.is_line else 0
        if points.shape.rank != 2 or samples * points.shape[0] <= _MOST_COVARIANCES:
            return super()._predicted(x, observed, noise)
        # Of a long line the covariances with all points would take more memory than all else.
        self._noise_at(x, points, observed, noise.variance, noise.group)  # raises for all at once
        size = max(1, _MOST_COVARIANCES // samples)
        blocks = []
        for first in range(0, points.shape[0], size):
            block = slice(first, first + size)
            blocks.append(super()._predicted(points[block], observed, noise.between(block)))
        return Marginals(*(np.concatenate(a, axis=-1) for a in zip(*blocks, strict=True)))

    def call(self, inputs: Any) -> dict[str, tf.Tensor]:
        """Predicts at x, or at x given z for inputs `(x, z)`, whose loss it adds.

        Args:
            inputs: Inputs, as for `posterior`; `(x, z)`, as for `condition`; or `Data`, for
                training, which needs the loss alone.

        Returns:
            The dictionary of `predict`; of `Data`, `{"log_likelihood"}`.
        """
        process = self._process
        if isinstance(inputs, Data):
            return self._add_loss(inputs, self.data_log_likelihood(inputs))
        if isinstance(inputs, tuple | list):
            x, z = inputs
            noise = self.noise_arguments()
            data = self.data_of(x, z, require_targets=False, noise=noise)
            data, correction = self._sites.find(data)
            if data.on_line is not None:
                column, factor = line.first_column(process, data), process.factor(data)
                log_likelihood = line.log_likelihood(process, data, column)
            else:
                covariance, chol = self._covariance_and_factor(data)
                log_likelihood = process.log_likelihood(data, covariance, chol) + correction
                factor = stored_cholesky(chol, covariance)
            self._add_loss(data, log_likelihood)
            conditioned = predictions.condition(process, data, factor)
            at_data = predictions.posterior(process, data, conditioned, data.x, None)
            return self.moments_of(at_data)
        x = self.points(inputs)
        if tf.executing_eagerly() or process.basis(x) is not None:
            return as_dict(self.posterior(inputs))
        # Outside of the branches: the gradient of a branch needs the shapes of variables.
        data = self._stored.on_line_as_traced(self._normal(self._stored.data))
        x = checked_points(x, data, self.kernel.outputs)
        conditioned = predictions.condition(process, data, self._differentiable_factor(data))

        def posterior() -> dict[str, tf.Tensor]:
            points = flattened(x, 2)
            at_points = predictions.posterior(process, data, conditioned, points, None)
            return self.moments_of(at_points)

        def prior() -> dict[str, tf.Tensor]:
            return self.moments_of(predictions.prior(process, x, None))

        return tf.cond(self._stored.is_empty, prior, posterior)

    def loo(self) -> dict[str, np.ndarray]:
        """Leave-one-out predictions: each target predicted by the others of its series.

        All of them follow from one inverse of the covariance, O(N³).

        Returns:
            The dictionary of `predict`, for observations with the noise of each, at the inputs of
            the data, `[..., N]`; NaN where the target is missing.

        Raises:
            ValueError: No data; a marginalised trend that one of the points alone determines.
        """
        if self._process.likelihood is not None:
            raise ValueError(
                f"loo is of data in normal noise, and these have {self._process.likelihood!r}: "
                "predict samples that were kept aside"
            )
        data = self.stored_data()
        if self.mean is not None:
            present = data.keep.numpy()
            self.mean.check_determined(data.x, present, data.functional, leave_out=True)
        refresh(self)
        factor = tf.convert_to_tensor(self._factor)
        conditioned = predictions.condition(self._process, data, factor)
        deviation, moments = conditioned.leave_one_out()
        k, c = moments
        mean = data.unpacked(data.z - data.vectors(deviation))
        zero = tf.zeros_like(mean)  # to give variances that series share to each of them
        variance = tf.math.real(data.spread(k) + zero)
        marginals = Marginals(mean, variance, zero if c is None else data.spread(c) + zero)
        present = data.unpacked(data.present)
        return marginals.map(
            lambda a: by_outputs(tf.where(present, a, nan(a.dtype)), self.kernel.outputs).numpy()
        )._asdict()

    # --- saving --------------------------------------------------------------------------------

    def _served(self) -> Served:
        is_empty = bool(self._stored.is_empty)
        data = None if is_empty else self._normal(self._stored.data)
        refresh(self)
        process, factor = self._process, tf.convert_to_tensor(self._factor)
        dimensions = None if data is None else data.x.shape[-1] - bool(self.kernel.outputs)
        points = [tf.TensorSpec([None, dimensions], factor.dtype.real_dtype, "x")]
        if data is None:

            def predict_prior(state: tuple, x: tf.Tensor) -> Outputs:
                return self.moments_of(predictions.prior(process, self.points(x), None))

            return Served((), predict_prior, points)
        held_data = HeldData(data)

        def predict(state: tuple, x: tf.Tensor) -> Outputs:
            *arrays, factor = state
            data = held_data.of(arrays)
            conditioned = predictions.condition(process, data, factor)
            x = flattened(self.points(x), 2)
            return self.moments_of(predictions.posterior(process, data, conditioned, x, None))

        return Served((*held_data.arrays, factor), predict, points)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "likelihood": registered_config(self._process.likelihood)}

    def _recall(self, data: Data) -> None:
        # Kernel weights may be loaded later: the factor has to wait.
        self._stored.replace(self._on_line(data))
        invalidate(self)
