"""SparseGP: a complex Gaussian process of many points, by inducing points."""

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.distributions import ComplexNormal
from cgp.distributions.marginals import Step
from cgp.gp import posterior as predictions
from cgp.gp.base import as_dict, checked_points
from cgp.gp.data import Data, empty_variable, flattened
from cgp.gp.maximum_likelihood import MaximumLikelihoodGP
from cgp.gp.means import Mean
from cgp.gp.signal_plus_noise import check_terms
from cgp.gp.sparse.bound import (
    ConditionedSparse,
    Sums,
    before_data,
    conditioned,
    log_likelihood_bound,
    unexplained_signal,
)
from cgp.gp.sparse.inducing_points import InducingPoints
from cgp.gp.sparse.sparse_cell import SparseCell
from cgp.gp.subset_checks import moved_to_shorter_scales, too_few_inducing_points
from cgp.kernels.base import Kernel
from cgp.kernels.points import as_points
from cgp.likelihoods import Likelihood
from cgp.linalg.arguments import ArrayLike, complex_dtype
from cgp.online.cell import Cell, Sample
from cgp.online.online import RunsOnline
from cgp.online.stream import Stream
from cgp.training import confirm, refresh, register_post_update
from cgp.training.hyperparameters import one_number
from cgp.training.keras_private import saved_variables
from cgp.training.optimizers import LBFGS
from cgp.training.parameters import names_of
from cgp.training.post_updates import leave_out_of_loss, set_values_of_states, values_of_states
from cgp.training.saving import Outputs, Served

_TOLERANCE = 1e-5  # of the loss, a mean over samples: of L-BFGS
_SETTLED = 1e-3  # nats a sample, of the bound when inducing points are chosen again
_NO_TREND = (
    "a marginalised trend is not of a SparseGP: give Polynomial its coefficients, or add kernels "
    "of large variance, Constant and IntegratedRandomWalk"
)


@keras.saving.register_keras_serializable(package="cgp")
class SparseGP(RunsOnline, MaximumLikelihoodGP):
    """A Gaussian process of many scattered points, of any dimensions, by m inducing points.

    The values of the signal at the inducing points stand for the signal: learning N points costs
    O(N m²) a step, in memory that does not depend on N, and a prediction O(m²). A fit with a kernel
    that is real, or real under rotations, as `RBF() * Rotation()`, takes a third of the time.
    The loss is a lower bound of the log marginal likelihood (see `cgp.gp.sparse.bound`), equal to
    it where the inducing points are all data points. `log_marginal_likelihood` returns that bound;
    it has first derivatives alone. Predictions are those of `ExactGP` where inducing points are
    dense beside the length scales of the kernel, and less certain elsewhere, never more.

    Inducing points are chosen among the places of the first data, of `condition` or `fit`. `fit`
    learns hyperparameters first, chooses again where the bound gains by it, and then moves points
    and hyperparameters together. They are no hyperparameters of the process, but of its
    approximation: `parameters` leaves them out, errors of hyperparameters and draws hold them where
    they are, and `gp.inducing.numpy()` has them, `[m, D]`.

    Methods, and arguments that are not listed, are as for `ExactGP`.

    Args:
        kernel: A kernel of one signal, shared with other layers that hold it.
        mean: A mean of `cgp.means`, or None for zero; no marginalised trend.
        inducing: The number of inducing points m, fewer where there are fewer different places of
            data; or the points, `[m, D]`.
        forgetting: λ, above 0 and at most 1, of samples that `step` and `process` take in.
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

    cell: SparseCell
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
        forgetting: float = 1.0,
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
        one_number(forgetting, "forgetting")
        if np.iscomplexobj(forgetting) or not 0.0 < forgetting <= 1.0:
            raise ValueError(f"forgetting must be above 0 and at most 1, got {forgetting!r}")
        names = names_of(fixed)
        kwargs: dict[str, Any] = {"priors": priors, "name": name, "dtype": dtype}
        kwargs |= {"noise_scale": noise_scale, "trainable": trainable}
        kwargs["fixed"] = tuple(n for n in names if n != "inducing")
        super().__init__(kernel, noise_variance, noise_pseudo_variance, mean, **kwargs)
        self.forgetting = float(forgetting)
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
        self.cell = SparseCell(
            self._process,
            real,
            self._check_inputs,
            self.inducing,
            self._sources,
            self._held_factors,
            self.forgetting,
        )
        self._has_streams = tf.Variable(False, trainable=False)  # for graphs made before
        self.built = True

    @property
    def _sources(self) -> list[keras.Variable]:
        """The variables from which the factors follow."""
        return [*self._weights_of_process, *self.inducing.variables]

    def _check_inputs(self, x: np.ndarray) -> None:
        """Raises for inputs that the mean or the kernel refuses."""
        points = as_points(x, self.variable_dtype)
        if self.mean is not None:
            self.mean.evaluate(points)
        self.kernel.check_points(points)

    def compile(
        self, optimizer: Any = None, loss: None = None, metrics: None = None, **kwargs: Any
    ) -> None:
        """As for `ExactGP`; the default is `LBFGS(ftol=1e-5)`.

        The bound gains a little by ever further moves of the inducing points, without an effect on
        predictions.
        """
        optimizer = LBFGS(ftol=_TOLERANCE) if optimizer is None else optimizer
        super().compile(optimizer, loss, metrics, **kwargs)

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
    def approximation_held(self) -> Iterator[bool]:
        """A context in which L-BFGS leaves chosen inducing points where they are.

        Hyperparameters far from their optimum, at which the points were chosen, would move them to
        wrong places. They are chosen again at better ones (Burt, Rasmussen & van der Wilk, JMLR 21,
        2020, §7), and learned from there.
        """
        is_chosen = self.inducing.initial is None and self.inducing.variable.trainable
        if not (is_chosen and isinstance(self.optimizer, LBFGS)):
            yield False
            return
        with self.inducing.held():
            yield True

    def prepare_again(self, data: Data) -> bool:
        """Chooses inducing points at the present hyperparameters, if the bound gains by them."""

        def bound() -> float:
            return float(tf.reduce_sum(self.data_log_likelihood(data)))

        def bound_of_chosen() -> float:
            self.inducing.choose(self._process.kernel, data)
            return bound()

        previous_bound, points = bound(), self.inducing.numpy()
        if moved_to_shorter_scales(self, data, bound_of_chosen):
            self._forget_graphs()
            return True
        has_new_shape = self.inducing.choose(self._process.kernel, data)
        has_new_shape |= len(points) != len(self.inducing.numpy())
        gain = bound() - previous_bound
        if not gain > 0.0:
            has_new_shape |= self.inducing.replace(points)
        if has_new_shape:
            self._forget_graphs()
        return gain > _SETTLED * float(tf.reduce_sum(data.counts))

    # --- factors -------------------------------------------------------------------------------

    def _computed(self, data: Data) -> tuple[ConditionedSparse, Sums]:
        """The process given data, and the sums of these, differentiable once."""
        weights = [variable.value for variable in self._weights_of_process]
        return conditioned(self._process, data, self._points_for(data), weights)

    def _keep(self, factors: ConditionedSparse) -> None:
        self._chol.assign(factors.chol)
        self._precision_chol.assign(factors.precision_chol)
        self._vector.assign(factors.vector)

    def _factorize(self) -> None:
        """The post-gradient update: the factors of the data at the present hyperparameters."""
        if self.inducing.is_left_out:  # there are no data
            return

        def factorize() -> bool:
            self._keep(self._computed(self._stored.data)[0])
            return True

        def factorize_prior() -> bool:
            self._keep(before_data(self._process, self.inducing.value))
            return True

        # When it runs, not when it is traced: data may come later.
        tf.cond(self._stored.is_empty, factorize_prior, factorize)

    def _held_factors(self) -> ConditionedSparse:
        """The process given the stored data, by the stored factors; a graph reads them as is."""
        if tf.executing_eagerly():
            refresh(self)
        stored = map(tf.convert_to_tensor, (self._chol, self._precision_chol, self._vector))
        return ConditionedSparse(self._process.form, *stored)

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

    def _inducing_data(self, factors: ConditionedSparse, series: Any, batch: tf.Tensor) -> Data:
        """The inducing points in the place of data of so many series with these batch axes."""
        inducing = self.inducing.value[None]
        x = tf.repeat(inducing, tf.shape(factors.precision_chol)[0], axis=0)
        z = tf.zeros([series, tf.shape(x)[1]], complex_dtype(self.variable_dtype))
        return Data(x, z, batch)

    def _at_present(self) -> tuple[ConditionedSparse, Data] | None:
        """The process given data and samples, and the inducing points in the place of data.

        None before any. A graph fails where it runs with what there was not when it was made.
        """
        is_eager, stream = tf.executing_eagerly(), self.stream
        with tf.init_scope():
            is_empty = bool(self._stored.is_empty)
            has_begun = stream is not None and (stream.has_begun() or not is_eager)
        if stream is not None and has_begun:
            state = self.cell.begun(stream.current_state() if is_eager else stream.read())
            factors, streams = self.cell.posterior_of(state), stream.streams
            batch = tf.constant([] if streams is None else [streams], tf.int32)
            return factors, self._inducing_data(factors, streams or 1, batch)
        if is_empty:
            return None
        data = self._stored.data if is_eager else self._stored.data_of_graph()
        factors = self._given_data(data)
        return factors, self._inducing_data(factors, tf.shape(data.z)[0], data.batch)

    # --- data ----------------------------------------------------------------------------------

    def _streams_of_data(self) -> int | None:
        """The number of streams of samples, or of series; None for one without a batch axis."""
        if self.stream is not None:
            return self.stream.streams
        data = self._stored.data
        return None if bool(self._stored.is_empty) or data.is_single else data.z.shape[0]

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
            factors, sums = self._computed(data)
        self._stored.replace(data)
        self._keep(factors)
        self._begin_again()
        confirm(self)
        for suspicion in unexplained_signal(sums):
            warnings.warn(suspicion, RuntimeWarning, stacklevel=3)

    def suspicions(self, data: Data) -> list[str]:
        """Suspicions of a fit: inducing points too few for the data, or for their length scales."""
        sums, count = self._computed(data)[1], len(self.inducing.value)
        return [*unexplained_signal(sums), *too_few_inducing_points(self, data, count)]

    def _recall(self, data: Data) -> None:
        # Kernel weights may be loaded later: the factors have to wait. A stream has been loaded.
        self._stored.replace(data)
        values = values_of_states(self)
        values[0] = np.full_like(values[0], np.nan)
        set_values_of_states(self, values)

    def stored_data(self) -> Data:
        """The data taken in; a ValueError after samples, which are not kept."""
        with tf.init_scope():
            if self.stream is not None and self.stream.has_begun():
                raise ValueError(
                    "samples of step and process are not kept as data: give all of them, as in "
                    "log_marginal_likelihood(x, z), or condition(x, z) on them"
                )
        return super().stored_data()

    def _held_in_words(self) -> str:
        points = "not chosen yet" if self.inducing.is_left_out else len(self.inducing.numpy())
        return f"{super()._held_in_words()}; inducing points: {points}"

    def data_log_likelihood(self, data: Data) -> tf.Tensor:
        """The lower bound of the log marginal likelihood of each series, `[B]`."""
        return log_likelihood_bound(self._process, data, *self._computed(data))

    # --- online --------------------------------------------------------------------------------

    def _first_stream(
        self, cell: Cell, streams: int | None, sample: Sample | None = None
    ) -> Stream:
        stream = super()._first_stream(cell, streams, sample)
        self._has_streams.assign(True)
        return stream

    def _begin_again(self) -> None:
        """Makes streams begin from the data taken in, which may be another number of series."""
        if self.stream is not None:
            stream, self.stream = self.stream, None
            if self._streams_of_data() == stream.streams:
                self.stream = stream
                self.reset()
            else:
                stream.detach()

    def step(
        self,
        x: ArrayLike,
        z: ArrayLike,
        missing: ArrayLike | None = None,
        *,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
        likelihood: Likelihood | None = None,
        gate: float | None = None,
    ) -> Step:
        """Predicts a sample, then takes it in, in O(m²).

        The first sample goes on from the data that `condition` or `fit` has taken in. Samples are
        not kept: their effect is, until data are taken in again. With `forgetting` λ each sample
        multiplies the weight of those before it by λ (see `cgp.gp.sparse.sparse_cell`); one that is
        missing, NaN, leaves the state as it is and forgets nothing.

        Arguments, results and errors are as for `RecursiveGP.step`; a ValueError where inducing
        points are not chosen yet, and after hyperparameters have changed, until `reset`.

        Example:
            >>> import numpy as np, cgp
            >>> x, z = np.linspace(0.0, 9.0, 40), np.exp(1j * np.linspace(0.0, 9.0, 40))
            >>> gp = cgp.SparseGP(cgp.kernels.RBF(1.0, 1.5), 0.01, inducing=x[::4, None])
            >>> for place, value in zip(x, z):
            ...     step = gp.step(place, value)
            >>> bool(abs(step.filtered.mean - z[-1]) < 0.1)
            True
        """
        sample = Sample(z, x, None, noise_variance, noise_groups)
        return self._take_sample(sample, missing, likelihood, gate=gate)

    def process(
        self,
        x: ArrayLike,
        z: ArrayLike,
        missing: ArrayLike | None = None,
        *,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
        verbose: int | str = "auto",
    ) -> Step:
        """Takes in a block of samples, one after another; as for `RecursiveGP.process`.

        A sample that is NaN leaves the state as it is and forgets nothing.
        """
        samples = Sample(z, x, None, noise_variance, noise_groups)
        return self._take_block(samples, missing, verbose)

    @property
    def state(self) -> Any:
        """The state after the last sample, a named tuple `(vector, chol, coordinate)`, NumPy.

        b `[m]`, and the factor of Λ, `[m, m]`, of `cgp.gp.sparse.bound`, with a first axis of
        streams where there are several, of an improper process of the real composite; and the
        coordinate whose prior is restored next. `set_state` takes it.
        """
        return super().state

    def set_state(self, state: Any) -> None:
        """Sets the state, in the form of `state`, at the present hyperparameters."""
        self._set_state(state)

    def reset(self) -> None:
        """Forgets all samples, but not the data that `condition` or `fit` has taken in."""
        super().reset()

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
        process, present = self._process.of_terms(part), self._at_present()
        points = self._as_traced(points, present is None)
        if present is None:
            return predictions.prior(process, points, noise)
        factors, data = present
        points = flattened(checked_points(points, data), 2)
        return predictions.posterior(process, data, factors, points, noise)

    def _as_traced(self, points: tf.Tensor, is_prior: bool) -> tf.Tensor:
        """Points of predictions; a graph fails with data or samples that came after its trace."""
        if tf.executing_eagerly():
            return points
        is_later = tf.constant(False)
        if self.stream is None:
            is_later |= tf.convert_to_tensor(self._has_streams)
        if is_prior:
            is_later |= ~self._stored.is_empty
        message = "data or samples have come since this function was traced: trace it again"
        check = tf.debugging.assert_equal(is_later, False, message)
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
        factors, sums = self._computed(data)
        self._add_loss(data, log_likelihood_bound(self._process, data, factors, sums))
        at_inducing = self._inducing_data(factors, tf.shape(data.z)[0], data.batch)
        return as_dict(predictions.posterior(self._process, at_inducing, factors, data.x, None))

    # --- uncertainty of the hyperparameters ------------------------------------------------------
    # The posterior of the signal at inducing points is at its best for the data wherever they are:
    # where they lie is a choice, and not uncertain.

    def parameter_covariance(
        self, verbose: int | str = "auto", *, name: str | None = None
    ) -> np.ndarray:
        """The covariance of the learned hyperparameters, as for `ExactGP`; from the bound."""
        with self.inducing.held():
            return super().parameter_covariance(verbose, name=name)

    @property
    def variables_of_hyperparameters(self) -> list[keras.Variable]:
        """The trainable variables but for the inducing points, whose draws hold them."""
        return [v for v in self.trainable_variables if v is not self.inducing.variable]

    # --- saving --------------------------------------------------------------------------------

    def _served(self) -> Served:
        process, real = self._process, tf.as_dtype(self.variable_dtype)
        if self.inducing.is_left_out:

            def predict_prior(state: tuple, x: tf.Tensor) -> Outputs:
                return as_dict(predictions.prior(process, self.points(x), None))

            return Served((), predict_prior, [tf.TensorSpec([None, None], real, "x")])
        cell = self.cell if self.stream else self.cell.of_inducing()
        is_single = self._streams_of_data() is None

        def predict(state: Any, x: tf.Tensor) -> Outputs:
            signal = cell.predict(state, Sample(None, x))
            return (signal.map(lambda a: a[0]) if is_single else signal)._asdict()

        return self._served_with(predict, [tf.TensorSpec([None, cell.dimensions], real, "x")], cell)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, and the shape of the inducing points."""
        inducing, config = self.inducing, super().get_config()
        points = inducing.count if inducing.initial is None else inducing.initial.tolist()
        config |= {"inducing": points, "forgetting": self.forgetting}
        config["shape_of_inducing"] = list(inducing.variable.shape)
        config["streams"] = None if self.stream is None else [self.stream.streams]
        if inducing.fixed:
            config["fixed"] = [*config.get("fixed", []), "inducing"]
        return config

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> "SparseGP":
        """The model of a config, with room for the inducing points of its weights."""
        config = dict(config)
        shape, streams = config.pop("shape_of_inducing", None), config.pop("streams", None)
        model = super().from_config(config, custom_objects)
        if shape is not None:
            model.inducing.take_shape(tuple(shape))
        if streams is not None:
            model._make_room(streams[0])
        return model

    def _make_room(self, streams: int | None) -> None:
        """Makes the weights of streams, whose values come from a file."""
        self.cell = self.cell.of_inducing()
        self.stream = Stream(self.cell, streams, self)
        self._has_streams.assign(True)

    def _make_room_for(self, inducing: Any) -> None:
        """Makes the weight of inducing points as large as an array of them."""
        shape = np.shape(inducing)
        if len(shape) == 2 and self.inducing.take_shape(shape):
            self._forget_graphs()

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Sets the weights, in the order of `get_weights`, of as many inducing points as these."""
        by_weight = dict(zip(map(id, self.weights), weights, strict=False))
        self._make_room_for(by_weight.get(id(self.inducing.variable)))
        super().set_weights(weights)

    def save_own_variables(self, store: Any) -> None:
        """Saves the weights, the data, and the number of streams, for a model without any."""
        super().save_own_variables(store)
        if self.stream is not None:
            store["streams"] = np.array([self.stream.streams or 0])

    def load_own_variables(self, store: Any) -> None:
        """Loads the weights, as many inducing points as there are, and the data of a file."""
        number = [id(v) for v in saved_variables(self)].index(id(self.inducing.variable))
        if str(number) in store:
            self._make_room_for(store[str(number)])
        if self.stream is None and "streams" in store:
            self._make_room(int(np.asarray(store["streams"])[0]) or None)
        self._load_state(store, super().load_own_variables)
