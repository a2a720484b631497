"""State-space models with functions that are not linear, and Gaussian noise."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import CompositeForm, Form, ProperForm
from cgp.linalg.arguments import ArrayLike, as_flag, check_finite
from cgp.statespace.compiled import can_compile, graph_of, time_loop
from cgp.statespace.models.linear_gaussian import LinearGaussian
from cgp.statespace.models.model_base import FactoredCovariance, KeepsGraphs, as_dtype, of_one_dtype
from cgp.statespace.models.widely_linear import composite_covariance

Function = Callable[[tf.Tensor], tf.Tensor]
"""A function of working states, `[B, K, n]` -> `[B, K, m]`: K points for each member of a batch."""

_POINTS, _REACHES = 8, (0.0, 0.03, 1.0, 3.0)  # in standard deviations of the initial state
# The derivative by the conjugate counts as zero below this part of the whole derivative.
_PARTS = {tf.complex128: 1e-7, tf.complex64: 1e-3}


def _field(name: str, doc: str) -> Any:
    return property(lambda model: getattr(model.noise, name), doc=doc)


class NonlinearGaussian(KeepsGraphs):
    """A state-space model of functions that need not be linear, with Gaussian noise.

        x[t+1] = f(x[t]) + w[t],   w[t] ~ N(0, Q[t])
        z[t]   = h(x[t]) + v[t],   v[t] ~ N(0, R[t])

    The verbs of `cgp.statespace` take it as they take a `LinearGaussian`, with a `rule=` by which
    functions are linearised: `Taylor()` if None. Their results are in the form of this model: means
    complex where states or observations are, factors of the real composite `[Re; Im]`.

    The functions are of TensorFlow: they take states `[..., n]` with any number of batch axes, and
    return `[..., n]`, or `[..., m]`. They may be Keras layers, or use layers and variables; the
    likelihood has gradients by these. As in a `tf.function`, any other value is read once. The
    first call of a verb with a rule traces them, in a fraction of a second; gradients, likelihoods
    of `cgp.likelihoods` and, of small models, long series compile loops, in seconds. `replace`
    keeps both. A gradient evaluates them again: take it before their variables change, and for a
    model with variables under persistent or nested tapes set `jit_compile=False`.

    States are complex if the initial mean, Q or the initial covariance is, otherwise real;
    observations have the dtype that `observation` returns. Complex noise is proper unless it has a
    pseudo-covariance. Functions of complex states may use real and imaginary parts, moduli and
    conjugates.

    Args:
        transition: f, of `(x)`, or with `input_size` of `(x, u)`; `f(x[t], u[t])` leads to t+1.
        observation: h, of `(x)`, or of `(x, u)`.
        Q: Process noise covariance, `[n, n]`, or `[..., T, n, n]`; may be singular.
        R: Observation noise covariance, `[m, m]`, or `[..., T, m, m]`; may be singular.
        initial_mean: Mean of the state at the first observation, `[..., n]`.
        initial_covariance: Its covariance, `[..., n, n]`.
        pseudo_Q: Pseudo-covariance of the process noise, `[n, n]`, zero if None.
        pseudo_R: Pseudo-covariance of the noise of complex observations, `[m, m]`.
        initial_pseudo_covariance: Pseudo-covariance of the initial state, `[n, n]`.
        holomorphic: Whether f and h have complex derivatives, as polynomials do, and moduli,
            conjugates and real parts do not; this is checked near the initial state alone. With
            proper noise the computations are then done with n complex instead of 2n real states,
            and factors are complex `[n, n]`.
        input_size: k, the number of known inputs u; they come in the dtype of the states. A complex
            pilot of real states is two inputs, its real and imaginary part.
        jit_compile: Whether XLA compiles loops of the functions over a series; None for where it
            can and where that takes less time: for long series, or in a graph.

    Attributes:
        transition, observation, holomorphic, input_size, jit_compile: As given.
        noise: A `LinearGaussian` without F and H (they are zero), of the noise and the initial
            state; the real composite where that is used.
        form, observation_form, dtype: The attributes of `noise`.

    Raises:
        TypeError: Not functions, not numbers, or a function that returns another dtype than the
            states have; `holomorphic` with real states, or with functions that are not holomorphic.
        ValueError: Shapes that do not fit, or values that are not finite; a pseudo-covariance
            without complex values.
        NotPositiveDefiniteError: A covariance that is indefinite, or a pseudo-covariance that no
            noise of its covariance can have.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> from cgp import statespace
        >>> F = tf.constant([[1.0, 1.0], [0.0, 1.0]], tf.float64)
        >>> carrier = statespace.NonlinearGaussian(  # a phase and its rate, seen as exp(iφ)
        ...     lambda x: tf.linalg.matvec(F, x),
        ...     lambda x: tf.complex(tf.cos(x[..., :1]), tf.sin(x[..., :1])),
        ...     Q=np.diag([1e-4, 1e-6]), R=[[0.1]],
        ...     initial_mean=[0.0, 0.3], initial_covariance=np.diag([1.0, 1e-3]),
        ... )
        >>> states, z = statespace.sample(carrier, 200, seed=1)
        >>> found = statespace.filter(carrier, z, rule=statespace.SigmaPoints("cubature"))
        >>> bool(abs(found.filtered_means[-1, 0] - states[-1, 0]) < 0.3)
        True
    """

    transition: Callable[..., Any]
    observation: Callable[..., Any]
    holomorphic: bool
    input_size: int
    noise: LinearGaussian
    jit_compile: bool | None
    _improper: frozenset[str]

    def __init__(
        self,
        transition: Callable[..., Any],
        observation: Callable[..., Any],
        Q: ArrayLike,
        R: ArrayLike,
        initial_mean: ArrayLike,
        initial_covariance: ArrayLike,
        pseudo_Q: ArrayLike | None = None,
        pseudo_R: ArrayLike | None = None,
        initial_pseudo_covariance: ArrayLike | None = None,
        holomorphic: bool = False,
        input_size: int = 0,
        jit_compile: bool | None = None,
    ):
        for name, function in (("transition", transition), ("observation", observation)):
            if not callable(function):
                raise TypeError(f"{name} must be a function, got {type(function).__name__}")
        self._settle(transition=transition, observation=observation, _kept={})
        if isinstance(input_size, bool) or not isinstance(input_size, int) or input_size < 0:
            raise ValueError(f"input_size must be a whole number, 0 or more, got {input_size!r}")
        self._settle(holomorphic=as_flag(holomorphic, "holomorphic"), input_size=input_size)
        if jit_compile is not None:
            jit_compile = as_flag(jit_compile, "jit_compile")
        self._settle(jit_compile=jit_compile)
        of_states = {
            "Q": Q,
            "initial_mean": initial_mean,
            "initial_covariance": initial_covariance,
            "pseudo_Q": pseudo_Q,
            "initial_pseudo_covariance": initial_pseudo_covariance,
        }
        for name in ("Q", "initial_mean", "initial_covariance"):
            if of_states[name] is None or isinstance(of_states[name], str):
                raise TypeError(f"{name} must be an array, got {of_states[name]!r}")
        states = of_one_dtype(of_states)
        mean = states["initial_mean"]
        if mean.shape.rank < 1 or mean.shape[-1] in (0, None):
            raise ValueError(f"initial_mean must be [..., n], got shape {mean.shape}")
        has_pseudo = {"pseudo_Q", "initial_pseudo_covariance"} & set(states)
        if has_pseudo and not mean.dtype.is_complex:
            raise ValueError(
                f"the states are real and have no {', '.join(sorted(has_pseudo))}: for complex "
                "states give a complex initial_mean"
            )
        self._checked_image(mean, "transition")
        image = self._checked_image(mean, "observation")
        if image.dtype.real_dtype != mean.dtype.real_dtype:
            raise TypeError(
                f"observation must return the precision of the states, {mean.dtype.name}, got "
                f"{image.dtype.name}"
            )
        pseudo = {"Q": pseudo_Q, "R": pseudo_R, "initial_covariance": initial_pseudo_covariance}
        self._settle(_improper=frozenset(k for k, v in pseudo.items() if v is not None))
        self._settle(noise=self._noise(states, image, R, pseudo_R))
        if self.holomorphic:
            if not mean.dtype.is_complex:
                raise TypeError("holomorphic=True is for complex states, but these are real")
            for name in ("transition", "observation"):
                _check_holomorphic(self, name, mean)

    def _noise(
        self, states: dict[str, tf.Tensor], image: tf.Tensor, R: ArrayLike, pseudo_R: Any
    ) -> LinearGaussian:
        """The model of noise and initial state, with zeros for F, H and B."""
        observed, n, m = image.dtype, states["initial_mean"].shape[-1], image.shape[-1]
        noise = as_dtype(R, observed, "R")
        if self.holomorphic and (self._improper or not observed.is_complex):
            raise ValueError(
                "holomorphic=True is for functions of complex states and observations with proper "
                "noise: there are no pseudo-covariances, and no real observations"
            )
        if pseudo_R is not None and not observed.is_complex:
            raise ValueError("the observations are real and have no pseudo_R")

        def composite(covariance: tf.Tensor, pseudo: Any, name: str) -> Any:
            if not covariance.dtype.is_complex or self.holomorphic:
                return covariance
            return composite_covariance(covariance, pseudo, name)

        form, observation_form = (
            CompositeForm() if dtype.is_complex and not self.holomorphic else ProperForm()
            for dtype in (states["initial_mean"].dtype, observed)
        )
        mean = form.split(states["initial_mean"])
        rows, columns = n * form.multiplicity, m * observation_form.multiplicity
        matrices = {name: states[name] for name in ("Q", "initial_covariance")} | {"R": noise}
        for name, matrix in sorted(matrices.items()):  # Q, R and the initial covariance
            size = m if name == "R" else n
            if matrix.shape.rank < 2 or list(matrix.shape[-2:]) != [size, size]:
                raise ValueError(f"{name} must be [..., {size}, {size}], got shape {matrix.shape}")
            if tf.executing_eagerly():
                check_finite(matrix, name)
        pseudo = {"Q": states.get("pseudo_Q"), "R": pseudo_R}
        pseudo["initial_covariance"] = states.get("initial_pseudo_covariance")
        moments: dict[str, Any] = {
            "F": tf.zeros([rows, rows], mean.dtype),
            "H": tf.zeros([columns, rows], mean.dtype),
            "initial_mean": mean,
        }
        for name, matrix in sorted(matrices.items()):
            moments[name] = composite(matrix, pseudo[name], name)
        if self.input_size:
            inputs = self.input_size * form.multiplicity
            moments["B"] = tf.zeros([rows, inputs], mean.dtype)
        return LinearGaussian.from_tensors(moments, None, form, observation_form)

    def _checked_image(self, mean: tf.Tensor, name: str) -> tf.Tensor:
        """The value of a function at the initial mean, if it is of the right shape and dtype."""
        n, k, function = mean.shape[-1], self.input_size, getattr(self, name)
        dtype, size = (mean.dtype, n) if name == "transition" else (None, None)
        points = tf.reshape(mean, [-1, n])[:1] + tf.zeros([2, 3, n], mean.dtype)
        arguments = [points, tf.zeros([2, 3, k], mean.dtype)] if k else [points]
        try:
            # As a graph, which it will be part of: a graph of NumPy's functions fails here.
            graph = graph_of(lambda *arrays: function(*arrays))
            image = tf.convert_to_tensor(graph(*arguments))
        except Exception as error:
            of_inputs = f" and inputs [..., {k}]" if k else ""
            raise TypeError(
                f"{name} must be a function of TensorFlow, of states [..., {n}]{of_inputs} of "
                f"{mean.dtype.name}, but for shape {points.shape} it raises "
                f"{type(error).__name__}: {error}"
            ) from error
        expected = "[..., m]" if size is None else f"[..., {size}]"
        fits = image.shape.rank == 3 and image.shape[:2].is_compatible_with(points.shape[:2])
        if not fits or image.shape[-1] in (0, None) or size not in (None, image.shape[-1]):
            raise ValueError(
                f"{name} must return {expected} for states [..., {mean.shape[-1]}] with any batch "
                f"axes, but for {points.shape} it returned shape {image.shape}"
            )
        if dtype not in (None, image.dtype):
            raise TypeError(
                f"{name} must return the dtype of the states, {mean.dtype.name}, got "
                f"{image.dtype.name}"
            )
        return image

    # --- working values --------------------------------------------------------------------------

    def working(self, name: str, inputs: tf.Tensor | None) -> Function:
        """The transition or observation, by name, of working states, `[B, K, n]` -> `[B, K, m]`.

        The inputs are working values, `[B, k]`, or None.
        """
        function = getattr(self, name)
        form = self.form if name == "transition" else self.observation_form

        def of_working(points: tf.Tensor) -> tf.Tensor:
            arguments = [self.form.join(points)]
            if self.input_size:
                size = self.input_size * self.form.multiplicity
                shape = tf.concat([tf.shape(points)[:-1], [size]], axis=0)
                drive = tf.zeros([1, size], self.dtype) if inputs is None else inputs
                arguments.append(self.form.join(tf.broadcast_to(drive[:, None], shape)))
            return form.split(tf.convert_to_tensor(function(*arguments)))

        return of_working

    @property
    def is_compilable(self) -> bool:
        """Whether XLA may compile the functions: as `jit_compile` says, or else if it can."""
        if self.jit_compile is not None:
            return self.jit_compile
        return self.kept(can_compile, self._can_be_compiled)

    def _can_be_compiled(self) -> bool:
        points = tf.TensorSpec([1, 1, self.noise.F.shape[-1]], self.dtype)
        functions = (self.working(name, None) for name in ("transition", "observation"))
        return all(can_compile(function, points) for function in functions)

    form: Form = _field("form", "The form of the working values of states.")
    observation_form: Form = _field(
        "observation_form", "The form of the working values of observations."
    )
    dtype = _field("dtype", "The dtype of working values.")
    state_size: int = _field("state_size", "n, the number of components of the state.")
    observation_size: int = _field(
        "observation_size", "m, the number of components of an observation."
    )

    def replace(self, **changes: Any) -> "NonlinearGaussian":
        """A new model with some arguments replaced; graphs of unchanged functions are kept.

        Args:
            **changes: Arguments of the constructor by name.

        Returns:
            A new `NonlinearGaussian`; this one is unchanged.

        Raises:
            TypeError: A name that is not an argument of the constructor; and as the constructor.
            ValueError, NotPositiveDefiniteError: As the constructor.

        Example:
            >>> import tensorflow as tf
            >>> from cgp import statespace
            >>> functions, noise = (tf.sin, tf.exp), ([[0.1]], [[0.5]])
            >>> model = statespace.NonlinearGaussian(*functions, *noise, [0j], [[1.0]])
            >>> model.replace(Q=[[0.2]]).noise.Q.numpy().trace()
            np.float64(0.2)
        """
        arguments = self.arguments()
        unknown = sorted(set(changes) - set(arguments))
        if unknown:
            names = ", ".join(arguments)
            raise TypeError(f"replace knows {names}, but was given {', '.join(unknown)}")
        model = type(self)(**{**arguments, **changes})
        if self._graph_key() == model._graph_key():
            model._settle(_kept=self._kept)
        return model

    def _graph_key(self) -> tuple[Any, ...]:
        """The functions, sizes and dtypes on which the graphs of the functions depend."""
        functions = (id(self.transition), id(self.observation))
        sizes = (self.input_size, self.state_size, self.observation_size)
        dtypes = (self.noise.state_dtype, self.noise.series_dtype)
        return (*functions, *sizes, self.holomorphic, self.jit_compile, *dtypes)

    def arguments(self) -> dict[str, Any]:
        """The arguments of the constructor that make this model, by name."""
        arguments: dict[str, Any] = {"transition": self.transition, "observation": self.observation}
        for name in ("Q", "R", "initial_mean", "initial_covariance"):
            arguments[name] = self.form.join(self.noise.initial_mean)
            if name != "initial_mean":
                form = self.observation_form if name == "R" else self.form
                arguments[name], pseudo = form.moments(getattr(self.noise, name))
                key = "initial_pseudo_covariance" if len(name) > 1 else f"pseudo_{name}"
                arguments[key] = pseudo if name in self._improper else None
        flags = ("holomorphic", "input_size", "jit_compile")
        return arguments | {name: getattr(self, name) for name in flags}

    def shown(self, name: str) -> tf.Tensor:
        """A moment, such as "Q" or "initial_mean", of the noise or the initial state for users.

        It is complex, or the real composite of a covariance with a pseudo-covariance.
        """
        return getattr(self.noise, name) if name in self._improper else self.arguments()[name]

    def with_moments(self, moments: Mapping[str, tf.Tensor | FactoredCovariance]) -> Self:
        """The same functions with some moments replaced, unchecked; in the form of `shown`."""
        tensors = dict(self.noise.parts())
        for name, moment in moments.items():
            form = self.observation_form if name == "R" else self.form
            if name == "initial_mean":
                moment = form.split(moment)
            elif form.multiplicity > 1 and name not in self._improper:
                if isinstance(moment, FactoredCovariance):
                    moment = FactoredCovariance.of_factor(form.root(moment.factor))
                else:
                    moment = composite_covariance(moment, None, name)
            tensors[name] = moment
        forms = (self.form, self.observation_form)
        return self.with_noise(LinearGaussian.from_tensors(tensors, None, *forms))

    def with_noise(self, noise: LinearGaussian) -> Self:
        """The same functions with other noise or another initial state, unchecked."""
        return self._with(noise=noise)

    def starting_from(self, mean: tf.Tensor, chol: tf.Tensor) -> Self:
        """The same model with another initial mean and factor, working values."""
        return self.with_noise(self.noise.starting_from(mean, chol))

    def __repr__(self) -> str:
        states, observed = self.noise.state_dtype.name, self.noise.series_dtype.name
        return (
            f"NonlinearGaussian({self.state_size} states of {states}, {self.observation_size} "
            f"observed of {observed})"
        )


def _check_holomorphic(model: NonlinearGaussian, name: str, mean: tf.Tensor) -> None:
    """Compares the derivatives of a function by states and by their conjugates, eagerly.

    The check is local: a function that has no complex derivative only far from the initial state,
    or at other inputs than a few random ones, passes it.
    """
    if not tf.executing_eagerly():
        return
    rng, n = np.random.default_rng(0), mean.shape[-1]
    centre = np.asarray(mean).reshape(-1, n)[0]
    covariance = np.asarray(model.noise.initial_covariance)
    variance = np.diagonal(covariance, axis1=-2, axis2=-1).real.reshape(-1, n)[0]
    size = np.sqrt(variance) + 1e-3 * np.abs(centre) + 1e-9
    count = _POINTS * len(_REACHES)
    reach = np.repeat(_REACHES, _POINTS)[:, None]
    points = centre + rng.normal(size=(count, n, 2)).view(complex)[..., 0] * size * reach
    drives = rng.normal(size=(count, model.input_size, 2)).view(complex)[..., 0]
    function = model.working(name, tf.constant(drives, mean.dtype))
    by_state, by_conjugate = _derivatives(function, tf.constant(points, mean.dtype))
    with np.errstate(invalid="ignore", over="ignore"):
        gap, whole = (np.sum(np.abs(a) * size, axis=-1) for a in (by_conjugate, by_state))
        # Far from the mean a function may overflow.
        wrong = np.isfinite(gap + whole) & (gap > _PARTS[mean.dtype] * (gap + whole))
    if wrong.any():
        raise TypeError(
            f"{name} is not holomorphic: component {int(np.argwhere(wrong)[0, 1])} depends on the "
            "conjugate of the state, as moduli, real parts and conjugates do. Leave "
            "holomorphic=False"
        )


def _derivatives(function: Function, points: tf.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Wirtinger's ∂f/∂x and ∂f/∂x̄ at points `[P, n]`, each `[P, m, n]`.

    TensorFlow's gradient of a real number is twice its derivative by the conjugate.
    """
    m = function(points[:, None]).shape[-1]
    copies = points[:, None] + tf.zeros([m, 1], points.dtype)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(copies)
        components = tf.linalg.diag_part(function(copies))
        real_and_imaginary = (tf.math.real(components), tf.math.imag(components))
    by_real, by_imaginary = (
        tape.gradient(component, copies, unconnected_gradients=tf.UnconnectedGradients.ZERO).numpy()
        for component in real_and_imaginary
    )
    by_state = 0.5 * (np.conj(by_real) + 1j * np.conj(by_imaginary))
    return by_state, 0.5 * (by_real + 1j * by_imaginary)


def simulated(
    model: NonlinearGaussian, start: tf.Tensor, noise: tf.Tensor, inputs: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """States `x[t+1] = f(x[t]) + w[t]` from noise w, working values, and the observations of them.

    Inputs are broadcast against `[..., T, k]`, or None. The last w is not used.
    """
    shape, n = tf.shape(noise), noise.shape[-1]
    flat = tf.reshape(noise, tf.concat([[-1], shape[-2:]], axis=0))
    drives = tf.zeros([*[1] * (noise.shape.rank - 1), 0], model.dtype) if inputs is None else inputs
    drives = tf.broadcast_to(drives, tf.concat([shape[:-1], tf.shape(drives)[-1:]], axis=0))
    drives = tf.reshape(drives, tf.concat([[-1], tf.shape(drives)[-2:]], axis=0))
    run = functools.partial(_run, model)
    if tf.executing_eagerly():
        run = model.kept(simulated, lambda: graph_of(functools.partial(_run, model)))
    path, observed = run(tf.reshape(start, [-1, n]), flat, drives)
    return tf.reshape(path, shape), tf.reshape(
        observed, tf.concat([shape[:-1], tf.shape(observed)[-1:]], axis=0)
    )


def _run(
    model: NonlinearGaussian, start: tf.Tensor, noise: tf.Tensor, inputs: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """`simulated` with one batch axis."""
    steps = tf.shape(noise)[1]

    def step(t: tf.Tensor, x: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        following = model.working("transition", inputs[:, t])(x[:, None])[:, 0]
        return [x], following + noise[:, t]

    [path], _ = time_loop(step, start, [(start.dtype, start.shape)], steps)
    path = tf.experimental.numpy.moveaxis(path, 0, 1)
    drives = tf.reshape(inputs, [-1, inputs.shape[-1]])
    points = tf.reshape(path, [-1, 1, path.shape[-1]])
    observed = model.working("observation", drives)(points)
    return path, tf.reshape(observed, [-1, steps, observed.shape[-1]])


def white(shape: tf.Tensor, seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """White noise of unit variance, real or proper complex."""
    real = dtype.real_dtype
    if not dtype.is_complex:
        return tf.random.stateless_normal(shape, seed, dtype=real)
    normals = tf.random.stateless_normal(tf.concat([shape, [2]], axis=0), seed, dtype=real)
    return tf.cast(0.5**0.5, dtype) * tf.complex(normals[..., 0], normals[..., 1])
