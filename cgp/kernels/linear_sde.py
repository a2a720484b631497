"""Linear stochastic differential equations of any matrices, and the kernels that are made of them.

These are Markov approximations of kernels that are not Markov, and a resonance that another process
drives.
"""

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.base import Combination, Constant, Kernel, Product, left_out_of_factors
from cgp.kernels.improper import Conjugate, UnaryCombination
from cgp.kernels.markov import (
    Generator,
    MarkovForm,
    emission_of_last,
    noiseless_form,
    stationary_form,
)
from cgp.kernels.rotation import Rotation
from cgp.kernels.stationary import RBF, Matern12, Periodic
from cgp.linalg.arguments import ArrayLike, as_complex, real_as
from cgp.training.parameters import Parameter

# Terms of the power series, where the norm of A times the step is at most a half.
_TERMS = 20


def linear_sde(
    generator: Generator, h: ArrayLike, stationary: ArrayLike | None = None
) -> MarkovForm:
    """The state-space form of the stationary process `z = h s`, `ds = A s dx + dβ`.

    Transition and process noise, `F(x) = exp(A x)` and `Q(x) = ∫₀ˣ F(u) W F(u)ᴴ du`, come from
    their power series over a step short enough, and from there by doubling (scaling and squaring:
    Higham, *Functions of Matrices*, 2008, ch. 10): `F(2x) = F(x)²`, `Q(2x) = F(x) Q(x) F(x)ᴴ +
    Q(x)`. Each step has as many doublings as it needs, and it is `F − 1` that is doubled, so that
    slow states keep their digits beside fast ones, and short steps beside long ones.

    Args:
        generator: The drift A, whose eigenvalues have negative real parts, and the diffusion W,
            Hermitian and positive semidefinite; `[n, n]`, of any dtype; the form has A's dtype.
        h: The emission, `[n]`, real or complex.
        stationary: The covariance of the state, `[n, n]`, where it is known: the solution P of the
            Lyapunov equation `A P + P Aᴴ + W = 0`.

    Raises:
        ValueError: Shapes that do not fit; eagerly also a process without a stationary covariance,
            or a diffusion that is no covariance.

    Example:
        A kernel in its `markov_form` alone: a damped oscillator driven by white noise,
        `z'' = −(2π frequency)² z − 2 damping z' + noise`, whose state is `(z', z)`.

        >>> import math, keras, tensorflow as tf
        >>> import cgp
        >>> from cgp.kernels import Generator, Kernel, linear_sde
        >>> from cgp.training import POSITIVE
        >>> @keras.saving.register_keras_serializable(package="mine")
        ... class Oscillator(Kernel):
        ...     is_real = True
        ...
        ...     def __init__(self, frequency=1.0, damping=0.1, **kwargs):
        ...         super().__init__(**kwargs)
        ...         values = {"frequency": (frequency, POSITIVE), "damping": (damping, POSITIVE)}
        ...         self.declare_parameters(values)
        ...
        ...     def markov_form(self):
        ...         square = (2 * math.pi * self.frequency.value) ** 2
        ...         damping, zero = self.damping.value, tf.zeros_like(square)
        ...         A = tf.stack([[-2 * damping, -square], [tf.ones_like(square), zero]])
        ...         W = tf.stack([[4 * damping * square, zero], [zero, zero]])  # of unit variance
        ...         return linear_sde(Generator(A, W), [0.0, 1.0])
        >>> kernel = Oscillator(0.5)
        >>> kernel.covariance([0.0, 1.0]).numpy().real.round(4)
        array([[ 1.    , -0.9048],
               [-0.9048,  1.    ]])
        >>> gp = cgp.StateSpaceGP(kernel, noise_variance=0.01)
        >>> gp.condition([0.0, 1.0, 2.0], [1j, -1j, 1j])
        >>> gp.predict([3.0])["mean"].round(2)
        array([0.-0.9j])
    """
    if not isinstance(generator, Generator):
        raise TypeError(f"generator must be a cgp.kernels.Generator(A, W), got {generator!r}")
    A, W, h, P = _checked(generator, h, stationary)

    def discretized(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        size = tf.reduce_max(tf.reduce_sum(tf.abs(tf.stop_gradient(A)), axis=-1))
        reach = tf.maximum(2.0 * size * step, 1.0)
        doublings = tf.math.ceil(tf.math.log(reach) / math.log(2.0))
        short = step * 0.5**doublings
        E, Q = _series(A, W, size, short)
        identity = tf.eye(A.shape[-1], dtype=A.dtype)

        def double(k: tf.Tensor, E: tf.Tensor, Q: tf.Tensor) -> tuple[tf.Tensor, ...]:
            F = identity + E
            spread = tf.linalg.matmul(F, tf.linalg.matmul(Q, F, adjoint_b=True))
            doubles = (k < doublings)[..., None, None]
            E = tf.where(doubles, 2.0 * E + tf.linalg.matmul(E, E), E)
            return k + 1, E, tf.where(doubles, spread + Q, Q)

        count = tf.reduce_max(doublings)
        _, E, Q = tf.while_loop(lambda k, *_: k < count, double, (tf.zeros_like(count), E, Q))
        return identity + E, Q

    return stationary_form(discretized, P, h, Generator(A, W))


def decays(A: tf.Tensor) -> bool:
    """Whether all eigenvalues of a drift have negative real parts, eagerly."""
    return bool(np.all(np.linalg.eigvals(A.numpy()).real < 0.0))


def _tensor(a: ArrayLike) -> tf.Tensor:
    return a if tf.is_tensor(a) else tf.convert_to_tensor(np.asarray(a))  # a list as float64


def _checked(
    generator: Generator, h: ArrayLike, stationary: ArrayLike | None
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """The matrices A, W, h and P as complex tensors of the precision of A, or an error."""
    A = as_complex(_tensor(generator.A))
    n = A.shape[-1]

    def like_A(a: ArrayLike, name: str, shape: list[int | None]) -> tf.Tensor:
        a = _tensor(a)
        if a.shape.as_list() != shape:
            raise ValueError(f"{name} must have shape {shape}, got {a.shape}")
        return a if a.dtype == A.dtype else as_complex(tf.cast(a, A.dtype.real_dtype))

    if A.shape.rank != 2 or A.shape[0] != n:
        raise ValueError(f"the drift A must be a matrix [n, n], got shape {A.shape}")
    W, h = like_A(generator.W, "the diffusion W", [n, n]), like_A(h, "the emission h", [n])
    P = None if stationary is None else like_A(stationary, "the covariance of the state", [n, n])
    if tf.executing_eagerly() and np.all(np.isfinite(A)) and np.all(np.isfinite(W)):
        tolerance = 1e3 * np.finfo(A.dtype.real_dtype.as_numpy_dtype).eps * np.max(np.abs(W))
        gap = np.max(np.abs(W - tf.linalg.adjoint(W)))
        if gap > tolerance or np.min(np.linalg.eigvalsh(W)) < -tolerance:
            raise ValueError(
                f"the diffusion W must be Hermitian and positive semidefinite, got {W.numpy()}"
            )
        if not decays(A):
            raise ValueError(
                "the process has no stationary covariance: the eigenvalues of the drift A must "
                f"have negative real parts, got {np.linalg.eigvals(A)}. Give a MarkovForm of its "
                "own to a process that is not stationary"
            )
    return A, W, h, _lyapunov(A, W) if P is None else P


def _series(
    A: tf.Tensor, W: tf.Tensor, size: tf.Tensor, step: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """`F − 1` and Q over short steps, `[...]`.

    The derivatives of Q at 0 are L[1] = W, L[k+1] = A L[k] + L[k] Aᴴ. Powers are taken of
    `A / size` and of `size · step`, so that none overflows or underflows.
    """
    A = A / real_as(size, A.dtype)
    short, reach = (real_as(a, A.dtype)[..., None, None] for a in (step, size * step))
    power, derivative, scale = A, W, tf.ones_like(reach)
    E, Q = tf.zeros_like(reach * A), tf.zeros_like(reach * A)
    for k in range(1, _TERMS):
        Q += scale * short * derivative
        scale = scale * reach
        E += scale * power
        power = tf.linalg.matmul(A, power) / (k + 1.0)
        half = tf.linalg.matmul(A, derivative)
        derivative = (half + tf.linalg.adjoint(half)) / (k + 1.0)
    return E, Q


def _lyapunov(A: tf.Tensor, W: tf.Tensor) -> tf.Tensor:
    """The solution P of the Lyapunov equation `A P + P Aᴴ + W = 0`."""
    n = A.shape[-1]
    identity = tf.linalg.LinearOperatorIdentity(n, dtype=A.dtype)
    full = tf.linalg.LinearOperatorFullMatrix
    # For the rows of P one after the other: (A ⊗ I + I ⊗ Ā) vec P = −vec W.
    by_A = tf.linalg.LinearOperatorKronecker([full(A), identity]).to_dense()
    by_adjoint = tf.linalg.LinearOperatorKronecker([identity, full(tf.math.conj(A))]).to_dense()
    solution = tf.linalg.solve(by_A + by_adjoint, -tf.reshape(W, [-1, 1]))
    P = tf.reshape(solution, [n, n])
    return 0.5 * (P + tf.linalg.adjoint(P))


@keras.saving.register_keras_serializable(package="cgp.kernels")
class MarkovApproximation(UnaryCombination):
    """A Markov approximation of a kernel that is not Markov, for `StateSpaceGP`.

    Its covariance is the approximate one, in `ExactGP` too.

    - `Periodic`: `order` harmonics of either sign, weighted by Bessel functions,
      `I_j(ℓ⁻²) e^{−ℓ⁻²}` (Solin & Särkkä, AISTATS 2014); 2 order + 1 states. The error is the share
      of the higher harmonics in the variance.
    - `RBF`: the reciprocal of its spectral density, truncated after `order` terms of its power
      series (Hartikainen & Särkkä, MLSP 2010), at the same variance; `order` states. For orders 1
      to 8 the error is at most 0.42, 0.14, 0.053, 0.022, 0.0095, 0.0043, 0.0020 and 0.00092 of it.

    Args:
        kernel: A `Periodic` or an `RBF` over one-dimensional inputs. Its parameters are shared.
        order: Harmonics of a `Periodic`, at least 1; states of an `RBF`, 1 to 8.
        name: A name.
        dtype: The dtype of the kernel.

    Raises:
        TypeError: Another kernel.
        ValueError: Another order, or several dimensions.

    Example:
        >>> from cgp.kernels import MarkovApproximation, Periodic
        >>> kernel = MarkovApproximation(Periodic(lengthscale=1.0), order=5)
        >>> print(f"{kernel.error():.1e}")
        1.8e-05
    """

    def __init__(
        self,
        kernel: Kernel,
        order: int = 6,
        *,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(kernel, name=name, dtype=dtype, **kwargs)
        if not isinstance(kernel, RBF | Periodic):
            raise TypeError(f"an RBF or a Periodic can be approximated, got {kernel!r}")
        scale = kernel.lengthscale if isinstance(kernel, RBF) else kernel.frequency
        if scale.numpy().ndim:
            several = f"{kernel!r} is over several dimensions"
            raise ValueError(f"{several}: a state-space form is over one")
        limit = 8 if isinstance(kernel, RBF) else 1000
        whole = isinstance(order, int | np.integer) and not isinstance(order, bool)
        if not whole or not 1 <= order <= limit:
            raise ValueError(f"order must be a whole number from 1 to {limit}, got {order!r}")
        self.order, self.is_markov = int(order), True

    def markov_form(self) -> MarkovForm:
        """The state-space form."""
        kernel = self.kernel
        if isinstance(kernel, RBF):
            return _rbf(self.order, kernel.variance.value, kernel.lengthscale.value)
        numbers = kernel.variance.value, kernel.lengthscale.value, kernel.frequency.value
        return _periodic(self.order, *numbers)

    def error(self) -> float:
        """The largest error of its covariance, as a share of the variance.

        For an `RBF`, among lags up to ten length scales.
        """
        kernel, variance = self.kernel, float(self.kernel.variance)
        if isinstance(kernel, RBF):
            lags = float(kernel.lengthscale) * np.linspace(0.0, 10.0, 1001)
        else:
            lags = np.linspace(0.0, 0.5, 501) / float(kernel.frequency)
        approximation, exact = (k.covariance(lags, [0.0]).numpy() for k in (self, kernel))
        return float(np.max(np.abs(approximation - exact)) / variance)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "order": self.order}

    def __repr__(self) -> str:
        return f"MarkovApproximation({self.kernel!r}, order={self.order})"


def _periodic(
    order: int, variance: tf.Tensor, lengthscale: tf.Tensor, frequency: tf.Tensor
) -> MarkovForm:
    """The form of a sum of rotations, one state for each harmonic of either sign."""
    numbers = np.arange(-order, order + 1)
    rate = 2.0 * math.pi * frequency * tf.constant(numbers, frequency.dtype)
    import tensorflow_probability as tfp  # here: importing it takes seconds

    share = tfp.math.bessel_ive(
        tf.constant(np.abs(numbers), lengthscale.dtype), 1.0 / lengthscale**2
    )
    P = tf.linalg.diag(as_complex(variance * share))

    def transition(step: tf.Tensor) -> tf.Tensor:
        angle = step[..., None] * rate
        return tf.linalg.diag(tf.complex(tf.cos(angle), tf.sin(angle)))

    drift = tf.linalg.diag(tf.complex(tf.zeros_like(rate), rate))
    return noiseless_form(transition, P, tf.ones([len(numbers)], P.dtype), drift)


def _rbf(order: int, variance: tf.Tensor, lengthscale: tf.Tensor) -> MarkovForm:
    """The form of a cascade of first-order systems, one state for each stable pole.

    In units of the length scale the spectral density is `S(ω) ∝ 1 / Σ_k (ω²/2)ᵏ/k!`; the cascade
    has its poles in the left half plane of s = iω.
    """
    from scipy.linalg import solve_continuous_lyapunov  # here: importing it takes long

    series = np.zeros(2 * order + 1)
    series[::2] = [(-0.5) ** k / math.factorial(k) for k in range(order + 1)]  # of s = iω
    roots = np.roots(series[::-1])
    poles = roots[roots.real < 0]
    poles = poles[np.lexsort([poles.imag, -np.abs(poles.imag)])]  # each next to its conjugate
    A = np.diag(poles) + np.diag(np.abs(poles[1:]), k=-1)
    W = np.zeros([order, order])
    W[0, 0] = 1.0
    P = solve_continuous_lyapunov(A, -W)
    scale = 1.0 / P[-1, -1].real

    variance, inverse = as_complex(variance), as_complex(1.0 / lengthscale)
    dtype = variance.dtype
    A, W, P = (tf.constant(a, dtype) for a in (A, scale * W, scale * P))
    generator = Generator(inverse * A, variance * inverse * W)
    return linear_sde(generator, emission_of_last(order, dtype), variance * P)


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Driven(Combination):
    """A damped rotation driven by another process, as a cascade.

        dp/dx = s (p − χ),   s = −1/lengthscale + i2π frequency

    p is the signal, χ the excitation: a process of the given kernel, independent of earlier p. The
    Earth's pole follows its excitation in this way (Munk & MacDonald, *The Rotation of the Earth*,
    1960). Slow changes of χ pass through as they are; near the frequency they resonate.

    Args:
        resonance: `Matern12(...) * Rotation(...)`, of the length scale and the frequency in s.
            Its variance is a gain: keep it fixed at 1, as the excitation has a variance too.
        excitation: The kernel of χ: Markov and stationary; sums and products are fine. Not `White`,
            which has no effect in a differential equation. An improper excitation, as by winds and
            tides along an ellipse, makes an improper process.
        name: A name.
        dtype: The dtype of the kernels.

    Raises:
        TypeError: No kernels.
        ValueError: A resonance or an excitation of another kind.

    Example:
        >>> from cgp.kernels import Driven, Matern12, Rotation
        >>> resonance = Matern12(1.0, lengthscale=20.0, fixed="variance") * Rotation(0.84)
        >>> wobble = Driven(resonance, excitation=Matern12(0.01, lengthscale=0.1))
        >>> print(f"{wobble.covariance([0.0]).numpy().real.item():.3f}")
        0.435
    """

    arguments = ("resonance", "excitation")

    def __init__(
        self,
        resonance: Kernel,
        excitation: Kernel,
        *,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        super().__init__([resonance, excitation], name=name, dtype=dtype, **kwargs)
        pole, _ = self._pole(self.resonance)
        if not pole.numpy().real < 0.0:
            raise ValueError(
                f"the resonance must be damped, a Matern12 times a Rotation, got {self.resonance!r}"
            )
        if not decays(self._excitation_form()[0].A):
            raise ValueError(
                f"the excitation must forget its past, but a part of {self.excitation!r} does not: "
                "multiply it by a Matern12"
            )
        self.is_real, self.is_markov = False, True
        self.is_proper = self.excitation.is_proper

    @property
    def resonance(self) -> Kernel:
        """The kernel with the length scale and the frequency of the resonance."""
        return self.parts[0]

    @property
    def excitation(self) -> Kernel:
        """The kernel of the driving process."""
        return self.parts[1]

    def _pole(self, kernel: Kernel) -> tuple[tf.Tensor, tf.Tensor]:
        """The pole s of a resonance, and its gain in power."""
        if isinstance(kernel, Product):
            poles, gains = zip(*map(self._pole, kernel.parts), strict=True)
            return tf.add_n(poles), tf.reduce_prod(tf.stack(gains))
        if isinstance(kernel, Conjugate):
            pole, gain = self._pole(kernel.kernel)
            return tf.math.conj(pole), gain
        unit_gain = tf.ones([], self.variable_dtype)
        if isinstance(kernel, Matern12) and kernel.is_markov:
            return as_complex(-1.0 / kernel.lengthscale.value), kernel.variance.value
        if isinstance(kernel, Rotation) and kernel.is_markov:
            rate = 2.0 * math.pi * kernel.frequency.value
            return tf.complex(tf.zeros_like(rate), rate), unit_gain
        if isinstance(kernel, Constant):
            return as_complex(0.0 * unit_gain), kernel.variance.value
        raise ValueError(
            f"the resonance must be a product of a Matern12 and a Rotation, got {kernel!r}"
        )

    def _excitation_form(self) -> tuple[Generator, MarkovForm]:
        """The differential equation of the excitation, and its form."""
        form = self.excitation.markov_form()
        if form.generator is None or not form.is_stationary:
            raise ValueError(
                f"the excitation must be a stationary process in continuous time, but "
                f"{self.excitation!r} is not"
            )
        return form.generator, form

    def markov_form(self) -> MarkovForm:
        """The state-space form of the cascade.

        The state holds the state s of the excitation, `χ = h s + g conj(s)`, and p. For an improper
        χ it holds p in two parts: the part driven by h s, and the conjugate of the part driven by
        g conj(s), which is linear in s, with the conjugates of pole, gain and g.
        """
        pole, gain = self._pole(self.resonance)
        (A, W), form = self._excitation_form()
        gain = as_complex(tf.sqrt(gain))
        poles, drives = [pole], [-pole * gain * form.h]
        if form.h_conj is not None:
            poles.append(tf.math.conj(pole))
            drives.append(tf.math.conj(-pole * gain * form.h_conj))
        count = len(poles)
        driven = tf.concat([tf.stack(drives), tf.linalg.diag(tf.stack(poles))], axis=1)
        A = tf.concat([tf.pad(A, [[0, 0], [0, count]]), driven], axis=0)
        W = tf.pad(W, [[0, count], [0, count]])
        last = emission_of_last(A.shape[-1], A.dtype)
        if form.h_conj is None:
            return linear_sde(Generator(A, W), last)
        return linear_sde(Generator(A, W), tf.roll(last, -1, axis=0))._replace(h_conj=last)

    def scale_parameters(self) -> list[Parameter] | None:
        """The parameters of the excitation that scale all moments."""
        return self.excitation.scale_parameters()

    def left_out(self) -> list[Parameter]:
        """The hyperparameters without a value, except the gain beside a variance with a value."""
        return left_out_of_factors(self.parts)

    def shares(self, power: float, is_selected: Callable[[Parameter], bool]) -> list[float]:
        """The shares of the power: all for the excitation, whose variance scales the signal."""
        return [1.0, power]

    def __repr__(self) -> str:
        return f"Driven({self.resonance!r}, {self.excitation!r})"
