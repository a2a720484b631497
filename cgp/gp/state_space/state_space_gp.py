"""StateSpaceGP: a complex Gaussian process over a line in linear time."""

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions.checks import stateless_seed
from cgp.distributions.marginals import Step
from cgp.gp.base import as_dict, check_draws
from cgp.gp.data import Data, as_data, check_points
from cgp.gp.maximum_likelihood import MaximumLikelihoodGP
from cgp.gp.posterior import Posterior
from cgp.gp.state_space import joint_covariance
from cgp.gp.state_space.discretization import DiscretizedProcess
from cgp.gp.state_space.tracker import Tracker
from cgp.gp.stored_data import StoredData
from cgp.kernels.points import as_points
from cgp.linalg import semidefinite_factor
from cgp.statespace.filtering import log_likelihood
from cgp.statespace.linear_gaussian import LinearGaussian
from cgp.statespace.sampling import posterior_sample, white
from cgp.statespace.smoothing import smooth


@keras.saving.register_keras_serializable(package="cgp")
class StateSpaceGP(MaximumLikelihoodGP):
    """A Gaussian process over a line whose cost is linear in the number of points.

    A kernel that is Markov (`kernel.is_markov`) is a linear system driven by noise, and its process
    a state-space model: likelihood, posterior and samples are those of `ExactGP`, by the filter and
    the smoother of `cgp.statespace` in O(N n³), n being the number of states of the kernel. Points
    may be in any order and spacing, and several at one place.

    The words are those of `ExactGP`; `step` takes in one sample after another.

    Args:
        kernel: A Markov kernel over one-dimensional inputs, shared with whoever else holds it.
        noise_variance: `E|n|²`, positive; in squared units of z.
        noise_pseudo_variance: `E[n²]`, as for `ExactGP`.
        mean: A mean of `cgp.means`, or None for zero; no marginalised trend.
        fixed: Names, of "noise_variance" and "noise_circularity", that training leaves alone.
        priors: TFP distributions of "noise_variance", by name.
        name: A name.
        dtype: "float64" (complex128 data) or "float32" (complex64); that of the kernel if None.

    Raises:
        TypeError: No kernel, or dtypes that differ.
        ValueError: A kernel that is not Markov: says which part is not. A marginalised mean, or a
            noise that no process can have.

    Example:
        >>> import numpy as np
        >>> import cgp
        >>> t = np.cumsum(np.random.default_rng(0).uniform(0.0, 0.2, 1000))
        >>> kernel = cgp.kernels.Matern32(1.0, 5.0) * cgp.kernels.Rotation(0.5)
        >>> gp = cgp.StateSpaceGP(kernel, noise_variance=1e-4)
        >>> gp.condition(t, np.exp(1j * np.pi * t))
        >>> ahead = gp.predict([t[-1] + 0.5])
        >>> bool(abs(ahead["mean"][0] - np.exp(1j * np.pi * (t[-1] + 0.5))) < 0.05)
        True
    """

    def __init__(
        self,
        kernel,
        noise_variance,
        noise_pseudo_variance=0.0,
        mean=None,
        *,
        fixed=(),
        priors=None,
        name=None,
        dtype=None,
        **kwargs,
    ):
        if getattr(mean, "marginalized", False):
            raise ValueError(
                "a marginalised trend has no state: give Polynomial its coefficients, or add "
                "kernels of large variance, Constant and IntegratedRandomWalk"
            )
        super().__init__(
            kernel,
            noise_variance,
            noise_pseudo_variance,
            mean,
            fixed=fixed,
            priors=priors,
            name=name,
            dtype=dtype,
            **kwargs,
        )
        kernel.markov_form()  # or an error that says why not
        self._memory = StoredData(self.variable_dtype, self._process.is_proper)
        self._is_in_graphs = False
        self._follower = Tracker(self._process, lambda: self.weights, self._series)
        self.built = True

    # --- taking data in ------------------------------------------------------------------------

    def _check(self, data: Data) -> None:
        if data.x.shape[-1] not in (1, None):
            raise ValueError(
                f"a StateSpaceGP is over a line: x must have one dimension, got {data.x.shape[-1]}"
            )
        if self.mean is not None:
            self.mean.evaluate(data.x)  # may refuse the inputs
        self.kernel.moments_diagonal(data.x)  # so may the kernel

    def _condition(self, data: Data) -> None:
        self._memory.replace(data, tf.zeros_like(self._memory.chol))
        self._follower.forget()

    _recall = _condition

    def _data(self) -> Data:
        self._take_in()
        return super()._data()

    def _take_in(self) -> None:
        """The samples that `step` has seen go to the data; of a graph, when it is made."""
        if self._follower.has_samples:
            with tf.init_scope():
                data = self._follower.together(self._memory.data)
                self._memory.replace(data, tf.zeros_like(self._memory.chol))
                self._follower.taken()

    # --- likelihood ----------------------------------------------------------------------------

    def _series(self, data: Data, x: tf.Tensor | None = None):
        """The model of data, and of new points after them, in order; and where each is.

        Args:
            data: The data.
            x: New points, `[1, M, 1]` or `[B, M, 1]`, or None.

        Returns:
            The model, observations `[B, T, 1]`, and the place of each in the order of the model,
            `[X, T]`: data first, then new points.
        """
        times, z = data.x[..., 0], data.z
        function = None if self.mean is None else self.mean.evaluate(data.x)
        if function is not None:
            z = z - function
        if x is not None:
            series = tf.maximum(tf.shape(times)[0], tf.shape(x)[0])
            times, new = (tf.broadcast_to(t, [series, tf.shape(t)[1]]) for t in (times, x[..., 0]))
            times = tf.concat([times, new], axis=-1)
            nothing = tf.fill([tf.shape(z)[0], tf.shape(new)[1]], tf.constant(np.nan, z.dtype))
            z = tf.concat([z, nothing], axis=-1)
        order = tf.argsort(times, axis=-1, stable=True)
        times = tf.gather(times, order, batch_dims=1)
        if times.shape[0] == 1:
            z = tf.gather(z, order[0], axis=-1)
            model = DiscretizedProcess(self._process).model(times[0])
        else:
            z = tf.gather(z, order, batch_dims=1)
            model = DiscretizedProcess(self._process).model(times)
        return model, z[..., None], tf.argsort(order, axis=-1)

    @staticmethod
    def _new_places(data: Data, x: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
        """The places of new points for each series, `[B, M]`."""
        series, points = tf.unstack(tf.shape(data.z))
        return tf.broadcast_to(places[:, points:], [series, tf.shape(x)[1]])

    def _log_likelihood(self, data: Data) -> tf.Tensor:
        model, z, _ = self._series(data)
        return log_likelihood(model, z)

    # --- predictions ---------------------------------------------------------------------------

    def posterior(self, x, *, observed: bool = False) -> Posterior:
        """The signal at new points given the data: between, before and beyond them.

        Args:
            x: Inputs, `[M]` or `[M, 1]`, in any order; `[..., M, 1]` where each series has its own.
            observed: Whether to add the noise of a measurement to the signal.

        Returns:
            A `ComplexNormal` of `[..., M]`, as for `ExactGP.posterior`; not differentiable. Means
            and variances take O(N + M), the covariance O(M²) more, when it is asked for, which is
            outside of graphs.

        Raises:
            TypeError: Complex inputs.
            ValueError: NaN inputs or a shape that does not fit the data.
        """
        x = as_points(x, self.variable_dtype)
        if x.shape[-1] != 1:
            raise ValueError(f"x must have one dimension, got {x.shape[-1]}")
        self._take_in()
        if tf.executing_eagerly():
            self.kernel.moments_diagonal(x)  # may refuse them
            if bool(self._memory.is_empty):
                return self._process.prior(x, observed)
            data = self._memory.data
            check_points(x, data)
        else:
            self._is_in_graphs = True
            data = self._memory.data_of_graph()
        return self._posterior(data, x if x.shape.rank == 3 else x[None], observed)

    def _posterior(self, data: Data, x: tf.Tensor, observed: bool) -> Posterior:
        model, z, places = self._series(data, x)
        found = smooth(model, z)
        new = self._new_places(data, x, places)
        means = model.form.split(tf.gather(found.smoothed_means, new, batch_dims=1))
        chols = tf.gather(found.smoothed_chols, new, batch_dims=1)
        H = _emission(model)
        mean = self.form.join(tf.linalg.matvec(H, means))[..., 0]
        rows = tf.linalg.matmul(H, chols)
        marginal = self.form.moments(tf.linalg.matmul(rows, rows, adjoint_b=True))
        marginal = marginal.map(lambda a: data.unpacked(a[..., 0, 0]))

        def joint():
            blocks = joint_covariance.covariance(H, found.smoothed_chols, found.gains, new)
            return data.unpacked(blocks)

        mean = data.unpacked(self._process.plus_function(mean, x))
        scale = tf.reduce_sum(tf.math.real(marginal.k), axis=-1)
        return self._process.distribution(mean, marginal, joint, scale, observed)

    @property
    def form(self):
        """The form in which the process is computed (see `cgp.distributions.forms`)."""
        return self._process.form

    def sample(self, x, count: int = 1, *, seed=None, observed: bool = False) -> np.ndarray:
        """Draws from the posterior, or from the prior before any data, in O(N + M) each.

        Args:
            x: Inputs, as for `posterior`.
            count: Number of draws.
            seed: Integer; None for different draws at each call.
            observed: Whether to add the noise of a measurement to the signal.

        Returns:
            Complex, `[count, ..., M]`.

        Raises:
            TypeError, ValueError: As for `posterior`; a count below 1.
        """
        check_draws(count)
        x = as_points(x, self.variable_dtype)
        self._take_in()
        self.kernel.moments_diagonal(x)  # may refuse them
        data = self._memory.data
        if bool(self._memory.is_empty):  # series of nothing
            batch = x.shape[:-2]
            x = tf.reshape(x, [-1, *x.shape[-2:]])
            nothing = tf.zeros([x.shape[0], 0], data.z.dtype)
            data = Data(
                tf.zeros([x.shape[0], 0, 1], x.dtype), nothing, tf.constant(batch, tf.int32)
            )
        else:
            check_points(x, data)
            x = x if x.shape.rank == 3 else x[None]
        model, z, places = self._series(data, x)
        states, noise = tf.unstack(tf.random.experimental.stateless_split(stateless_seed(seed), 2))
        states = posterior_sample(model, z, (count,), seed=states)
        new = self._new_places(data, x, places)
        new = tf.broadcast_to(new, [count, *new.shape])
        states = model.form.split(tf.gather(states, new, batch_dims=2))
        values = tf.linalg.matvec(_emission(model), states)
        if observed:
            root = semidefinite_factor(DiscretizedProcess(self._process).noise())
            values += tf.linalg.matvec(root, white(tf.shape(values), noise, values.dtype))
        values = self._process.plus_function(self.form.join(values)[..., 0], x)
        shape = tf.concat([[count], data.batch, tf.shape(values)[2:]], axis=0)
        return tf.reshape(values, shape).numpy()

    def call(self, inputs) -> dict[str, tf.Tensor]:
        """The dictionary of `predict`, at x, or at x given z for inputs `(x, z)`; adds the loss."""
        if not isinstance(inputs, tuple | list):
            return as_dict(self.posterior(inputs))
        x, z = inputs
        data = as_data(x, z, None, self.variable_dtype, require_targets=False)
        self._check(data)
        self.add_loss(self._loss(data, self._log_likelihood(data)))
        return as_dict(self._posterior(data, data.x, observed=False))

    # --- online --------------------------------------------------------------------------------

    def step(self, x, z, missing=None) -> Step:
        """Predicts a sample, then takes it in, at a cost that does not grow.

        Args:
            x: Its place, a number, not before that of the sample before.
            z: The observation, a complex number, or `[B]` of B series; NaN where missing.
            missing: Bool, or `[B]`: True where missing.

        Returns:
            `Step(predicted, innovation, filtered)` of NumPy numbers, or arrays `[B]`: `predicted`
            is what was known of z before it was seen, `innovation` z less its predicted mean,
            `filtered` what is known of the signal at x afterwards.

        Raises:
            TypeError: A real observation, a complex x, another precision.
            ValueError: A step back, shapes other than those of the data, an x that is not finite,
                an infinite observation. Nothing has changed then.
        """
        found = self._follower.step(self._memory.data, x, z, missing, self.variable_dtype)
        if self._is_in_graphs:  # which look at the data alone
            self._take_in()
        return found

    def save_own_variables(self, store):
        """The weights and the data."""
        self._take_in()
        super().save_own_variables(store)


def _emission(model: LinearGaussian) -> tf.Tensor:
    """H of a model whose H is the same for all series."""
    return model.H[0] if model.H.shape.rank > 2 else model.H
