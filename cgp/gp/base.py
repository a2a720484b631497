"""The base class of the Gaussian processes: hyperparameters, predictions, serialisation."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions import ComplexNormal
from cgp.distributions.marginals import Marginals
from cgp.gp.data import Data, as_data, check_labels, check_pair
from cgp.gp.means import Mean
from cgp.gp.noise import NoiseArguments, SampleNoise, is_left_out, noise_parameters
from cgp.gp.outputs import points_of_outputs
from cgp.gp.posterior import PosteriorOfOutputs
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.kernels.base import Kernel
from cgp.kernels.points import as_points
from cgp.likelihoods import Likelihood
from cgp.linalg.arguments import ArrayLike, check_whole, complex_dtype
from cgp.training import Model, register_post_update
from cgp.training.hyperparameters import Row, notebook_table, one_number, parameter_rows
from cgp.training.optimizers import LBFGS
from cgp.training.parameters import (
    Parameter,
    Parameterized,
    complex_from_config,
    named_parameters,
    names_of,
    values_by_name,
)
from cgp.training.saving import from_registered_config


class GaussianProcess(Parameterized, Model):
    """A Gaussian process of a complex signal, observed in noise: `z = f(x) + n`.

    A subclass takes data in, computes `posterior`, and adds the loss of data in `call((x, z))`.
    Arguments as for `ExactGP`.
    """

    _noise_floor = 1e-10
    """The approximate noise variance fitted to data without noise, as a share of `E|z|²`."""
    optimizer: Any  # of Keras
    _noise_may_follow_signal = False
    """Whether it takes `noise_fraction`, for which it needs all data at once."""
    _data_by_point = False
    """Whether the working coordinates of data come point after point (see `SignalPlusNoise`)."""

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
        if not isinstance(kernel, Kernel):
            raise TypeError(f"kernel must be one of cgp.kernels, got {kernel!r}")
        if mean is not None and not isinstance(mean, Mean):
            raise TypeError(f"mean must be one of cgp.means or None, got {mean!r}")
        if mean is not None and mean.outputs != kernel.outputs:
            of_mean, of_kernel = (
                f"of {layer.outputs} outputs" if layer.outputs else "of one signal"
                for layer in (mean, kernel)
            )
            remedy = (
                f"a mean of each is cgp.means.Outputs([...]), a list of {kernel.outputs}"
                if kernel.outputs
                else f"{mean!r} is for a kernel such as Coregionalized"
            )
            raise ValueError(f"mean is {of_mean}, and the kernel {of_kernel}: {remedy}")
        fixed = names_of(fixed)
        left_out = {
            "noise_variance": is_left_out(noise_variance),
            "noise_scale": noise_scale is None,
            "noise_fraction": noise_fraction is None,
        }
        for parameter_name in fixed:
            if left_out.get(parameter_name):
                raise ValueError(f"{parameter_name} is fixed, but was left out: give it a value")
        one_number(0.0 if noise_fraction is None else noise_fraction, "noise_fraction")
        if noise_fraction != 0.0 and (likelihood is not None or not self._noise_may_follow_signal):
            raise ValueError(
                f"noise_fraction={noise_fraction}: noise that follows the signal is normal, and of "
                "ExactGP and StateSpaceGP, which take all data at once"
            )
        super().__init__(name=name, dtype=dtype or kernel.variable_dtype, **kwargs)
        for layer in (kernel, mean):
            if layer is not None and layer.variable_dtype != self.variable_dtype:
                raise TypeError(
                    f"the model is {self.variable_dtype}, but {layer!r} is {layer.variable_dtype}"
                )
        # XLA needs static numbers of points, and of series that share a covariance.
        self.supports_jit = False
        self.kernel, self.mean = kernel, mean
        of_noise = noise_variance, noise_pseudo_variance, noise_scale, noise_fraction
        self.declare_parameters(noise_parameters(*of_noise), fixed, priors)
        self._noise_prior_is_given = "noise_variance" in dict(priors or {})
        self.has_weak_prior = not self._noise_prior_is_given and self.noise_variance.initial is None
        shape = tuple(self.noise_variance.variable.shape)
        self._group_count = shape[0] if shape else None  # of groups with a noise variance each
        parameters = self.named_hyperparameters().values()
        self._with_priors = tuple(p for p in parameters if p.prior is not None)
        self._process = SignalPlusNoise(
            kernel,
            mean,
            self.noise_variance,
            getattr(self, "noise_circularity", None),
            getattr(self, "noise_scale", None),
            getattr(self, "noise_fraction", None),
            by_point=self._data_by_point,
            likelihood=checked_likelihood(likelihood, noise_pseudo_variance),
        )

    def posterior(
        self,
        x: ArrayLike,
        *,
        observed: bool = False,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
    ) -> ComplexNormal:
        """The posterior of the signal at new points; each subclass documents its arguments."""
        raise NotImplementedError

    def rounding_noise(self, data: Data) -> tf.Tensor | float:
        """The rounding error of the eigenvalues of a covariance that is factorised, else 0."""
        return 0.0

    def prepare(self, data: Data) -> None:
        """Prepares what depends on the first data and on started hyperparameters; here nothing."""

    def arranged(self, data: Data) -> Data:
        """The data as the present hyperparameters arrange them for a fit; here as they are."""
        return data

    def undone_on_error(self) -> contextlib.AbstractContextManager[None]:
        """A context that restores what `prepare` has changed if it raises."""
        return contextlib.nullcontext()

    def approximation_held(self) -> contextlib.AbstractContextManager[bool]:
        """A context in which what approximates the process is not learned; true where it has such.

        A fit from several starts descends in it, and renews the approximation by `prepare_again`.
        """
        return contextlib.nullcontext(False)

    def prepare_again(self, data: Data) -> bool:
        """Prepares again at learned hyperparameters; returns whether the loss has gained by it."""
        return False

    def suspicions(self, data: Data) -> list[str]:
        """Suspicions about a fit of this kind of process, in words; none by default."""
        return []

    def noise_arguments(
        self, noise_variance: ArrayLike | None = None, noise_groups: ArrayLike | None = None
    ) -> NoiseArguments:
        """The noise arguments of a method, with the number of groups of the model."""
        return NoiseArguments(noise_variance, noise_groups, self._group_count, self.kernel.outputs)

    def data_of(self, x: Any, z: Any, missing: Any = None, **arguments: Any) -> Data:
        """Data of the model; arguments as for `as_data`."""
        real, outputs = self.variable_dtype, self.kernel.outputs
        return as_data(x, z, missing, real, outputs=outputs, **arguments)

    def inputs(self, x: Any) -> Any:
        """New inputs as tensors, as a user gives them: points `[..., M, D]`."""
        return as_points(x, self.variable_dtype)

    def points(self, x: ArrayLike) -> tf.Tensor:
        """New inputs as points of the kernel, `[..., M, D]`, those of all outputs side by side."""
        points, outputs = as_points(x, self.variable_dtype), self.kernel.outputs
        return points if outputs is None else points_of_outputs(points, outputs)

    def of_outputs(self, posterior: ComplexNormal) -> ComplexNormal:
        """The posterior at `points`, by outputs where the kernel has some."""
        outputs = self.kernel.outputs
        return posterior if outputs is None else PosteriorOfOutputs(posterior, outputs)

    def moments_of(self, posterior: ComplexNormal) -> dict[str, tf.Tensor]:
        """The dictionary of `predict`, of a posterior at `points`."""
        return as_dict(self.of_outputs(posterior))

    def _noise_at(
        self, x: Any, points: tf.Tensor, observed: bool, noise_variance: Any, noise_groups: Any
    ) -> SampleNoise | None:
        """The noise of observations at new inputs, as points `[..., M, D]`; None for the signal."""
        arguments = self.noise_arguments(noise_variance, noise_groups)
        check_labels(x, noise=arguments)
        return arguments.of_points(observed, points.shape[-2], self.variable_dtype)

    def compile(
        self, optimizer: Any = None, loss: None = None, metrics: None = None, **kwargs: Any
    ) -> None:
        """Chooses the optimizer, as Keras's `compile` does. The likelihood is the loss.

        Args:
            optimizer: `cgp.optimizers.LBFGS()` if None, or a Keras optimizer.
            loss: None.
            metrics: None: score predictions with `cgp.metrics`.
            **kwargs: `run_eagerly`, `jit_compile`, `steps_per_execution`, as in Keras.

        Raises:
            ValueError: A loss or metrics.
        """
        if loss is not None or metrics is not None:
            raise ValueError(
                "loss and metrics must be None: the likelihood is the loss of a Gaussian process; "
                "score its predictions with cgp.metrics"
            )
        if kwargs.get("jit_compile") is True:
            raise ValueError("jit_compile must not be True: XLA wants to know the sizes of data")
        super().compile(LBFGS() if optimizer is None else optimizer, **kwargs)
        self._optimized_shapes = self._shapes()

    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(variable.shape) for variable in self.trainable_variables)

    def match_optimizer(self) -> None:
        """Restarts the optimizer if a hyperparameter has become a vector since `compile`.

        The optimizer keeps a state of the shape of each variable, and another process that shares
        the kernel may have changed one.
        """
        if self.compiled and self._optimized_shapes != self._shapes():
            self._optimized_shapes = self._shapes()
            if self.optimizer.built:
                self.optimizer = type(self.optimizer).from_config(self.optimizer.get_config())

    def compile_from_config(self, config: dict) -> None:
        """Compiles a loaded model."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def train_on_batch(self, x: Any, y: Any = None, **kwargs: Any) -> Any:
        """Keras's `train_on_batch`, for x and z, as for `fit`, or for a pair `(x, z)`."""
        check_labels(x, y)
        return super().train_on_batch(x if y is None else (x, y), **kwargs)

    def test_on_batch(self, x: Any, y: Any = None, **kwargs: Any) -> Any:
        """Keras's `test_on_batch`, for x and z, as for `fit`, or for a pair `(x, z)`."""
        check_labels(x, y)
        return super().test_on_batch(x if y is None else (x, y), **kwargs)

    # --- hyperparameters -----------------------------------------------------------------------

    @property
    def observation_model(self) -> SignalPlusNoise:
        """The signal plus its noise, whose covariances and densities all methods compute."""
        return self._process

    @property
    def noise_is_by_output(self) -> bool:
        """Whether each of several outputs has a noise variance of its own."""
        return self._process.noise_is_by_output

    def _named_layers(self) -> list[tuple[str, Parameterized]]:
        means = [] if self.mean is None else self.mean.named_layers()
        return [("", self), *self.kernel.named_layers(), *means]

    def named_hyperparameters(self) -> dict[str, Parameter]:
        """The hyperparameters, by the names that `parameters` gives them."""
        return named_parameters(self._named_layers())

    @property
    def variables_of_hyperparameters(self) -> list[keras.Variable]:
        """The trainable variables, without those of an approximation such as inducing points."""
        return self.trainable_variables

    def _watch(self, update: Callable[[], None], state_is_weights: bool) -> None:
        """Registers the update of a state that follows from the covariances of observations."""
        variables = self._process.weights
        self._watched = {id(v) for v in variables}
        register_post_update(self, variables, update, state_is_weights=state_is_weights)

    def parameters(self) -> dict[str, np.ndarray]:
        """The hyperparameters by name: constrained values, each shared one once.

        A hyperparameter that was left out, and that no fit has initialised yet, is NaN.
        """
        return values_by_name(self.named_hyperparameters(), self._process.left_out())

    # --- predictions ---------------------------------------------------------------------------

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Keras's `__call__`, on x or on the pair (x, z), eagerly and of symbolic tensors.

        Raises:
            TypeError: Complex values in the place of x.
            ValueError: Labels of x and z that differ, which Keras would drop.
        """
        check_pair(inputs)
        if isinstance(inputs, tuple | list) and len(inputs) == 2:
            check_labels(*inputs)
        return super().__call__(inputs, *args, **kwargs)

    def compute_output_spec(self, inputs: Any) -> dict[str, keras.KerasTensor]:
        """The shapes and dtypes that `call` returns in a functional model."""
        shape = self._output_shape(inputs)
        real, complex_ = self.variable_dtype, complex_dtype(self.variable_dtype).name
        dtypes = {"mean": complex_, "variance": real, "pseudo_variance": complex_}
        return {name: keras.KerasTensor(shape, dtype) for name, dtype in dtypes.items()}

    def _output_shape(self, inputs: Any) -> tuple[int | None, ...]:
        """The shape of the moments that `call` returns, of x or of the pair (x, z)."""
        is_pair = isinstance(inputs, tuple | list)
        return inputs[1].shape if is_pair else inputs.shape[: max(len(inputs.shape) - 1, 1)]

    def predict(  # type: ignore[override]
        self,
        x: ArrayLike,
        *,
        observed: bool = False,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
        verbose: int | str = 0,
    ) -> dict[str, np.ndarray]:
        """Mean and variances at new points; arguments and errors as for `posterior`.

        `verbose` is an argument of Keras's `predict`, without effect here.

        Returns:
            NumPy arrays `[..., M]`: "mean", complex; "variance", `E|f − mean|²`, real;
            "pseudo_variance", `E[(f − mean)²]`, complex.
        """
        if not tf.executing_eagerly():
            raise RuntimeError(
                "predict returns NumPy arrays, and a tf.function has none: take posterior(x) there"
            )
        noise = self.noise_arguments(noise_variance, noise_groups)
        return self._predicted(x, observed, noise)._asdict()

    def _predicted(self, x: ArrayLike, observed: bool, noise: NoiseArguments) -> Marginals:
        """The moments of `predict`, which a subclass may compute without a posterior."""
        posterior = self._posterior_of_values(x, observed, noise)
        return Marginals(*(moment.numpy() for moment in as_dict(posterior).values()))

    def _posterior_of_values(
        self, x: ArrayLike, observed: bool, noise: NoiseArguments
    ) -> ComplexNormal:
        """The posterior, which a subclass may compute without gradients."""
        arguments = {"noise_variance": noise.variance, "noise_groups": noise.group}
        return self.posterior(x, observed=observed, **arguments)

    def sample(
        self,
        x: ArrayLike,
        count: int = 1,
        *,
        seed: int | None = None,
        observed: bool = False,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
    ) -> np.ndarray:
        """Draws from the posterior, or from the prior before any data.

        Arguments are as for `posterior`; `count` is the number of draws, and `seed` an integer, or
        None for different draws at each call. Draws of a `StateSpaceGP` take O(N + M) each.

        Returns:
            Complex, `[count, ..., M]`.

        Raises:
            TypeError, ValueError: As for `posterior`; a count below 1.
        """
        if not tf.executing_eagerly():
            raise RuntimeError("draws are NumPy arrays: call sample outside of a tf.function")
        check_whole(count, "count")
        noise = self.noise_arguments(noise_variance, noise_groups)
        return self._draws(x, count, seed, observed, noise).numpy()

    def _draws(
        self, x: ArrayLike, count: int, seed: int | None, observed: bool, noise: NoiseArguments
    ) -> tf.Tensor:
        """Draws from the posterior, `[count, ..., M]`."""
        return self._posterior_of_values(x, observed, noise).sample(count, seed=seed)

    def __repr__(self) -> str:
        arguments = [self.kernel, *self.own_parameters, *([self.mean] if self.mean else [])]
        return f"{type(self).__name__}({', '.join(map(repr, arguments))})"

    def _repr_html_(self) -> str:
        rows = [Row("kernel", repr(self.kernel))]
        if self.mean is not None:
            rows.append(Row("mean", repr(self.mean)))
        rows += [*parameter_rows(self._named_layers()), Row("data", self._held_in_words())]
        return notebook_table(type(self).__name__, rows)

    def _held_in_words(self) -> str:
        """The number of data that the process has taken in, in words."""
        raise NotImplementedError

    # --- serialisation -------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, complex numbers as [re, im]."""
        config = self.parameters_config()
        config.pop("complex", None)
        quotient = config.pop("noise_circularity", [0.0, 0.0])
        variance = config["noise_variance"]
        if variance is None and self._group_count:  # it was left out for each group
            config["noise_variance"] = [None] * self._group_count
        variance = 0.0 if variance is None else np.ravel(variance)[0]
        serialize = keras.saving.serialize_keras_object
        if self._noise_prior_is_given and self.noise_variance.prior is None:
            config["priors"] = {**config.get("priors", {}), "noise_variance": None}
        return {
            **config,
            "kernel": serialize(self.kernel),
            "noise_pseudo_variance": [number * variance for number in quotient],
            "mean": None if self.mean is None else serialize(self.mean),
            "name": self.name,
            "dtype": self.variable_dtype,
            "trainable": self.trainable,
        }

    @classmethod
    def from_config(cls, config: dict, custom_objects: dict | None = None) -> "GaussianProcess":
        """Makes the model that `get_config` describes."""
        revive = keras.saving.deserialize_keras_object
        arguments = {**config, **{name: revive(config[name]) for name in ("kernel", "mean")}}
        if "noise_pseudo_variance" in config:
            pseudo_variance = config["noise_pseudo_variance"]
            arguments["noise_pseudo_variance"] = complex_from_config(pseudo_variance)
        if isinstance(config.get("likelihood"), Mapping):
            arguments["likelihood"] = from_registered_config(config["likelihood"])
        return cls(**arguments)


def checked_likelihood(
    likelihood: Likelihood | None, noise_pseudo_variance: complex
) -> Likelihood | None:
    """The likelihood of a process, or None for normal noise; raises for an invalid one."""
    if likelihood is None:
        return None
    if not isinstance(likelihood, Likelihood):
        raise TypeError(f"likelihood must be one of cgp.likelihoods, got {likelihood!r}")
    if not likelihood.is_for_processes:
        raise ValueError(
            f"{likelihood!r} is for filters, as cgp.statespace.filter: see its documentation"
        )
    if noise_pseudo_variance != 0:
        raise ValueError(
            f"noise_pseudo_variance must be 0 with {likelihood!r}, whose noise is circular, got "
            f"{noise_pseudo_variance!r}"
        )
    return likelihood


def as_dict(posterior: ComplexNormal) -> dict[str, tf.Tensor]:
    """Mean, variance and pseudo-variance of each point, by name, as `predict` returns them."""
    return {name: getattr(posterior, name)() for name in Marginals._fields}


def checked_points(x: tf.Tensor, data: Data, outputs: int | None = None) -> tf.Tensor:
    """New points, checked against the data; a graph checks the batch axes alone, when it runs."""
    if not tf.executing_eagerly():
        return _with_checked_batch_axes(x, data)
    if x.shape[-1] != data.x.shape[-1]:
        dimensions, shape = data.x.shape[-1], x.shape
        if outputs is not None:
            dimensions, shape = dimensions - 1, x[..., ::outputs, :-1].shape
        raise ValueError(
            f"x must have as many dimensions as the data, {dimensions}, got shape {shape}"
        )
    batch = data.batch.numpy().tolist()
    shared = data.x.shape[0] == 1 and batch != [1]
    if x.shape.rank > 2 and (shared or x.shape[:-2].as_list() != batch):
        batched = "" if shared else f", or {[*batch, 'M', 'D']}"
        raise ValueError(f"x must be [M] or [M, D]{batched} for these data, got shape {x.shape}")
    return x


def _with_checked_batch_axes(x: tf.Tensor, data: Data) -> tf.Tensor:
    axes = tf.shape(x)[:-2]
    if axes.shape[0] == 0:  # None where the rank is not known
        return x
    fits = tf.equal(tf.size(axes), tf.size(data.batch))
    fits &= tf.equal(tf.reduce_prod(axes), tf.reduce_prod(data.batch))
    message = "x must be [M, D], or have the batch axes of the data,", data.batch, "got", axes
    check = tf.debugging.Assert(tf.logical_or(tf.equal(tf.size(axes), 0), fits), message)
    with tf.control_dependencies([check]):
        return tf.identity(x)
