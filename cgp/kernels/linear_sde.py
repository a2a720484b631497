"""Linear stochastic differential equations of any matrices, as state-space forms."""

import math

import numpy as np
import tensorflow as tf

from cgp.kernels.markov import (
    Generator,
    MarkovForm,
    stationary_form,
)
from cgp.linalg.arguments import ArrayLike, as_complex, real_as

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
        return discretize(Generator(A, W), step)

    return stationary_form(discretized, P, h, Generator(A, W))


def discretize(generator: Generator, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Transition F and process noise Q of a differential equation over steps `[...]`.

    By power series and doubling (see `linear_sde`); the drift need not be stable.

    Args:
        generator: The drift A and the diffusion W, complex, `[n, n]`; A is not zero.
        step: Real, not negative, in units of x.

    Returns:
        F and Q, `[..., n, n]`.
    """
    A, W = generator
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
