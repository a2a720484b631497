"""SparseGP: a complex Gaussian process of many points, by inducing points."""

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.distributions import ComplexNormal
from cgp.gp import posterior as predictions
from cgp.gp.base import as_dict, checked_points
from cgp.gp.data import Data, empty_variable, flattened
from cgp.gp.maximum_likelihood import MaximumLikelihoodGP
from cgp.gp.means import Mean
from cgp.gp.saved_data import HeldData
from cgp.gp.signal_plus_noise import check_terms
from cgp.gp.sparse.bound import (
    ConditionedSparse,
    Sums,
    conditioned,
    log_likelihood_bound,
)
from cgp.gp.sparse.inducing_points import InducingPoints
from cgp.kernels.base import Kernel
from cgp.linalg.arguments import ArrayLike, complex_dtype
from cgp.training import confirm, invalidate, refresh, register_post_update
from cgp.training.keras_private import saved_variables
from cgp.training.parameters import names_of
from cgp.training.post_updates import leave_out_of_loss
from cgp.training.saving import Outputs, Served

_UNEXPLAINED = 0.1  # of the variance of the signal at the data
_NO_TREND = (
    "a marginalised trend is not of a SparseGP: give Polynomial its coefficients, or add kernels "
    "of large variance, Constant and IntegratedRandomWalk"
)


@keras.saving.register_keras_serializable(package="cgp")
class SparseGP(MaximumLikelihoodGP):
    """A Gaussian process of many scattered points, of any dimensions, by m inducing points.

    The values of the signal at the inducing points stand for the signal: learning N points costs
    O(N m²) a step, in memory that does not depend on N, and a prediction O(m²). The loss is a lower
    bound of the log marginal likelihood (see `cgp.gp.sparse.bound`), which is equal to it where
    the inducing points are all data points. `log_marginal_likelihood` returns that bound; it has
    first derivatives alone. Predictions are those of `ExactGP` where inducing points are dense
    beside the length scales of the kernel, and less certain elsewhere, never more.

    Inducing points are chosen among the places of the first data, of `condition` or `fit`, and
    stay; `fit` moves them with the hyperparameters. They are no hyperparameters of the process, but
    of its approximation: `parameters` leaves them out, errors of hyperparameters and draws hold
    them where they are, and the array `inducing` has them.

    Methods, and arguments that are not listed, are as for `ExactGP`.

    Args:
        kernel: A kernel of one signal, shared with other layers that hold it.
        mean: A mean of `cgp.means`, or None for zero; no marginalised trend.
        inducing: The number of inducing points m, fewer where there are fewer different places of
            data; or the points, `[m, D]`.
        fixed: Names of hyperparameters not to train, "noise_variance" or "noise_circularity", and
            "inducing" for inducing points that stay where they are.

    Raises:
        TypeError: Not a kernel, dtypes that differ, or inducing points that are not real.
        ValueError: A kernel of outputs, a marginalised trend, a number of inducing points below 1.

    Example:
        >>> import numpy as np
        >>> import cgp
        >>> x = np.random.default_rng(0).uniform(0.0, 3.0, (500, 2))
        >>> kernel = cgp.kernels.RBF(1.0, 1.0) * cgp.kernels.Rotation([0.5, 0.2])
        >>> gp = cgp.SparseGP(kernel, noise_variance=1e-2, inducing=60)
        >>> gp.condition(x, np.exp(2j * np.pi * x @ [0.5, 0.2]))
        >>> mean = gp.predict([[1.0, 1.5]])["mean"]
        >>> bool(abs(mean[0] - np.exp(1.6j * np.pi)) < 0.05)
        True
    """

    likelihood = "bound"  # what it learns from, beside the "exact" one of others
    _noise_floor = 5e-10  # as of ExactGP: the precision of the inducing points has to have a factor
    _noise_may_follow_signal = False

    def __init__(
        self,
        kernel: Kernel,
        noise_variance: ArrayLike | None = None,
        noise_pseudo_variance: complex = 0.0,
        mean: Mean | None = None,
        *,
        noise_scale: float | None = 1.0,
        inducing: ArrayLike = 256,
        fixed: str | Iterable[str] = (),
        priors: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str | None = None,
        trainable: bool = True,
    ):
        if getattr(mean, "marginalized", False):
            raise ValueError(_NO_TREND)
        if getattr(kernel, "outputs", None) is not None:
            raise ValueError(
                f"a SparseGP is of one signal, and {kernel!r} of {kernel.outputs}: take ExactGP, "
                "or StateSpaceGP over a line"
            )
        names = names_of(fixed)
        kwargs: dict[str, Any] = {"priors": priors, "name": name, "dtype": dtype}
        kwargs |= {"noise_scale": noise_scale, "trainable": trainable}
        kwargs["fixed"] = tuple(n for n in names if n != "inducing")
        super().__init__(kernel, noise_variance, noise_pseudo_variance, mean, **kwargs)
        self.inducing = InducingPoints(self, inducing, "inducing" in names)
        for variable in self.inducing.variables:  # where TensorFlow's checkpoints look
            setattr(self, f"_{variable.name}", variable)
        real = self.variable_dtype
        working = complex_dtype(real) if self._process.is_proper else real
        # L, the factor of Λ, and b of `cgp.gp.sparse.bound`.
        self._chol, self._precision_chol, self._vector = (
            empty_variable(3, working) for _ in range(3)
        )
        of_mean = [] if mean is None else mean.weights
        self._weights_of_process = [*self._process.weights, *of_mean]
        update = self._factorize
        register_post_update(self, self._sources, update, state_is_weights=False)
        leave_out_of_loss(self)
        self.built = True

    @property
    def _sources(self) -> list[keras.Variable]:
        """The variables from which the factors follow."""
        return [*self._weights_of_process, *self.inducing.variables]

    # --- inducing points -----------------------------------------------------------------------

    def prepare(self, data: Data) -> None:
        """Chooses the inducing points for the first data."""
        if self.inducing.is_left_out and self.inducing.choose(self._process.kernel, data):
            self._forget_graphs()

    def undone_on_error(self) -> contextlib.AbstractContextManager[None]:
        """A context that restores the inducing points if it raises."""
        return self.inducing.undone_on_error()

    def _forget_graphs(self) -> None:
        """Drops Keras's compiled functions, which have inducing points of another number."""
        self.train_function = self.test_function = None
        self.match_optimizer()

    def _points_for(self, data: Data) -> tf.Tensor:
        """The inducing points, `[m, D]`; before any are chosen, those chosen for the data."""
        if not self.inducing.is_left_out:
            return self.inducing.value
        if tf.executing_eagerly():
            return tf.constant(self.inducing.chosen(self._process.kernel, data))
        raise ValueError(
            "inducing points are not chosen yet when this function is traced: condition(x, z) or "
            "fit(x, z) before, or give them, as in inducing=x[::10]"
        )

    @contextlib.contextmanager
    def _inducing_held(self) -> Iterator[None]:
        """A context in which inducing points are not learned."""
        variable = self.inducing.variable
        was = variable.trainable
        variable.trainable = False
        try:
            yield
        finally:
            variable.trainable = was

    # --- factors -------------------------------------------------------------------------------

    def _computed(self, data: Data) -> tuple[ConditionedSparse, Sums]:
        """The process given data, and the sums of these, differentiable once."""
        weights = [variable.value for variable in self._weights_of_process]
        return conditioned(self._process, data, self._points_for(data), weights)

    def _keep(self, given: ConditionedSparse) -> None:
        self._chol.assign(given.chol)
        self._precision_chol.assign(given.precision_chol)
        self._vector.assign(given.vector)

    def _factorize(self) -> None:
        """The post-gradient update: the factors of the data at the present hyperparameters."""

        def factorize() -> bool:
            self._keep(self._computed(self._stored.data)[0])
            return True

        if not self.inducing.is_left_out:  # otherwise there are no data
            # When it runs, not when it is traced: data may come later.
            tf.cond(self._stored.is_empty, lambda: False, factorize)

    def _given_data(self, data: Data) -> ConditionedSparse:
        """The process given the stored data, by the stored factors; differentiable.

        Only gradients need the data: the sums are computed when one is asked for.
        """
        refresh(self)
        stored = tuple(map(tf.convert_to_tensor, (self._chol, self._precision_chol, self._vector)))
        sources = [variable.value for variable in self._sources]
        check_unchanged = self._process.while_unchanged(lambda: stored[0])

        @tf.custom_gradient
        def factors(*_: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Callable]:
            def backward(*bars: tf.Tensor) -> list[tf.Tensor]:
                check_unchanged()
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(sources)
                    _, *computed = self._computed(data)[0]
                zero = tf.UnconnectedGradients.ZERO
                return tape.gradient(computed, sources, list(bars), zero)

            return tuple(map(tf.identity, stored)), backward

        return ConditionedSparse(self._process.form, *factors(*map(tf.convert_to_tensor, sources)))

    def _inducing_data(self, data: Data, given: ConditionedSparse) -> Data:
        """The inducing points in the place of data, under the axes of these."""
        inducing = self._points_for(data)[None]
        groups, series = tf.shape(given.precision_chol)[0], tf.shape(data.z)[0]
        x = tf.repeat(inducing, groups, axis=0)
        return Data(x, tf.zeros([series, tf.shape(x)[1]], data.z.dtype), data.batch)

    # --- data ----------------------------------------------------------------------------------

    def check_data(self, data: Data) -> None:
        """Raises for data that kernel or mean refuse, or that are no values of the signal."""
        if not data.is_of_values:
            raise ValueError(
                "derivatives and exposures are not taken by a SparseGP: ExactGP takes observed, "
                "and over a line widths"
            )
        if self._process.basis(data.x) is not None:
            raise ValueError(_NO_TREND)
        super().check_data(data)
        if not self.inducing.is_left_out and data.x.shape[-1] != self.inducing.variable.shape[-1]:
            raise ValueError(
                f"x has {data.x.shape[-1]} dimensions, and the inducing points have "
                f"{self.inducing.variable.shape[-1]}: those of a SparseGP stay with its first data"
            )

    def _condition(self, data: Data) -> None:
        # The factors first: where they fail nothing has been replaced.
        with self.undone_on_error():
            self.prepare(data)
            given, sums = self._computed(data)
        self._stored.replace(data)
        self._keep(given)
        confirm(self)
        for suspicion in _of_few_points(sums):
            warnings.warn(suspicion, RuntimeWarning, stacklevel=3)

    def suspicions(self, data: Data) -> list[str]:
        """Suspicions of a fit: inducing points that do not cover the data."""
        return _of_few_points(self._computed(data)[1])

    def _recall(self, data: Data) -> None:
        # Kernel weights may be loaded later: the factors have to wait.
        self._stored.replace(data)
        invalidate(self)

    def _held_in_words(self) -> str:
        points = "not chosen yet" if self.inducing.is_left_out else len(self.inducing.numpy())
        return f"{super()._held_in_words()}; inducing points: {points}"

    def data_log_likelihood(self, data: Data) -> tf.Tensor:
        """The lower bound of the log marginal likelihood of each series, `[B]`."""
        return log_likelihood_bound(self._process, data, *self._computed(data))

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
    ) -> ComplexNormal:
        """The signal at new points given the data, or its prior before any.

        Arguments, results and errors are as for `ExactGP.posterior`. Moments at M points take
        O(M m²), whatever the number of data.
        """
        points = self.points(x)
        check_terms(self.kernel, part, observed)
        noise = self._noise_at(x, points, observed, noise_variance, noise_groups)
        process = self._process.of_terms(part)
        with tf.init_scope():
            is_empty = bool(self._stored.is_empty)
        if is_empty:
            return predictions.prior(process, self._before_data(points), noise)
        data = self._stored.data if tf.executing_eagerly() else self._stored.data_of_graph()
        points = flattened(checked_points(points, data), 2)
        given = self._given_data(data)
        return predictions.posterior(
            process, self._inducing_data(data, given), given, points, noise
        )

    def _before_data(self, points: tf.Tensor) -> tf.Tensor:
        """Points of predictions before any data; a graph fails where it runs with data."""
        if tf.executing_eagerly():
            return points
        message = "there were no data when this function was traced: trace it again"
        check = tf.debugging.assert_equal(self._stored.is_empty, True, message)
        with tf.control_dependencies([check]):
            return tf.identity(points)

    def call(self, inputs: Any) -> dict[str, tf.Tensor]:
        """Predicts at x, or at x given z for inputs `(x, z)`, whose loss it adds.

        Args:
            inputs: Inputs, as for `posterior`; `(x, z)`, as for `condition`; or `Data`, for
                training, which needs the loss alone.

        Returns:
            The dictionary of `predict`; of `Data`, `{"log_likelihood"}`.
        """
        if isinstance(inputs, Data):
            return self._add_loss(inputs, self.data_log_likelihood(inputs))
        if not isinstance(inputs, tuple | list):
            return as_dict(self.posterior(inputs))
        x, z = inputs
        data = self.data_of(x, z, require_targets=False, noise=self.noise_arguments())
        given, sums = self._computed(data)
        self._add_loss(data, log_likelihood_bound(self._process, data, given, sums))
        at_inducing = self._inducing_data(data, given)
        return as_dict(predictions.posterior(self._process, at_inducing, given, data.x, None))

    # --- uncertainty of the hyperparameters ------------------------------------------------------
    # The posterior of the signal at inducing points is at its best for the data wherever they are:
    # where they lie is a choice, and not uncertain.

    def parameter_covariance(
        self, verbose: int | str = "auto", *, name: str | None = None
    ) -> np.ndarray:
        """The covariance of the learned hyperparameters, as for `ExactGP`; from the bound."""
        with self._inducing_held():
            return super().parameter_covariance(verbose, name=name)

    @property
    def variables_of_hyperparameters(self) -> list[keras.Variable]:
        """The trainable variables but for the inducing points, whose draws hold them."""
        return [v for v in self.trainable_variables if v is not self.inducing.variable]

    # --- saving --------------------------------------------------------------------------------

    def _served(self) -> Served:
        process, real = self._process, tf.as_dtype(self.variable_dtype)
        if bool(self._stored.is_empty):

            def predict_prior(state: tuple, x: tf.Tensor) -> Outputs:
                return as_dict(predictions.prior(process, self.points(x), None))

            return Served((), predict_prior, [tf.TensorSpec([None, None], real, "x")])
        data = self._stored.data
        given = self._given_data(data)
        held_data = HeldData(self._inducing_data(data, given))

        def predict(state: tuple, x: tf.Tensor) -> Outputs:
            *arrays, chol, precision_chol, vector = state
            given = ConditionedSparse(process.form, chol, precision_chol, vector)
            data, points = held_data.of(arrays), flattened(self.points(x), 2)
            return as_dict(predictions.posterior(process, data, given, points, None))

        specs = [tf.TensorSpec([None, data.x.shape[-1]], real, "x")]
        return Served((*held_data.arrays, *given[1:]), predict, specs)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, and the shape of the inducing points."""
        inducing, config = self.inducing, super().get_config()
        points = inducing.count if inducing.initial is None else inducing.initial.tolist()
        config |= {"inducing": points, "shape_of_inducing": list(inducing.variable.shape)}
        if inducing.fixed:
            config["fixed"] = [*config.get("fixed", []), "inducing"]
        return config

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> "SparseGP":
        """The model of a config, with room for the inducing points of its weights."""
        config = dict(config)
        shape = config.pop("shape_of_inducing", None)
        model = super().from_config(config, custom_objects)
        if shape is not None:
            model.inducing.take_shape(tuple(shape))
        return model

    def load_own_variables(self, store: Any) -> None:
        """Loads the weights, as many inducing points as there are, and the data of a file."""
        number = [id(v) for v in saved_variables(self)].index(id(self.inducing.variable))
        if str(number) in store:
            shape = np.shape(store[str(number)])
            if len(shape) == 2 and self.inducing.take_shape(shape):
                self._forget_graphs()
        super().load_own_variables(store)


def _of_few_points(sums: Sums) -> list[str]:
    """The suspicion that inducing points leave much of the signal at the data unexplained."""
    shares = 1.0 - np.real(np.trace(sums.gram, axis1=-2, axis2=-1)) / np.asarray(sums.signal)
    if not shares.max() > _UNEXPLAINED:
        return []
    return [
        f"the inducing points leave {shares.max():.0%} of the variance of the signal at the data "
        "unexplained, and predictions are that uncertain: take more, as in inducing=1000, or a "
        "kernel of longer length scales with its short part in the noise"
    ]
