"""Markov kernels of one's own: in one file, and of one process in both of their forms."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import (
    RBF,
    Conjugate,
    Generator,
    Kernel,
    MarkovForm,
    Matern12,
    Matern32,
    RandomWalk,
    Rotation,
    WidelyLinear,
    linear_sde,
)
from tests.kernels import damped_oscillator
from tests.kernels.damped_oscillator import DampedOscillator

X = np.array([0.0, 0.3, 0.4, 1.1, 2.0, 2.2, 3.1])
Z = np.exp(1.9j * X) + 0.2 * np.cos(7.0 * X)
NEW = np.array([0.9, 3.5])


def test_a_markov_kernel_is_one_file_of_under_60_lines():
    assert len(Path(damped_oscillator.__file__).read_text().splitlines()) < 60
    kernel = DampedOscillator()
    assert (kernel.is_markov, kernel.is_proper, kernel.is_real) == (True, True, True)
    # by what the class implements, and not in the class of one that does not
    assert not Kernel.is_markov
    assert not RBF.is_markov


def test_its_covariance_follows_from_its_state_space_form():
    kernel = DampedOscillator(1.7, 0.4, 0.3)
    lag = np.abs(X[:, None] - X[None, :])
    beta = np.sqrt((0.8 * np.pi) ** 2 - 0.3**2)
    expected = 1.7 * np.exp(-0.3 * lag) * (np.cos(beta * lag) + 0.3 / beta * np.sin(beta * lag))
    np.testing.assert_allclose(kernel.covariance(X), expected, atol=1e-13)
    np.testing.assert_allclose(kernel.moments_diagonal(X).k, np.full(7, 1.7), rtol=1e-13)
    single = DampedOscillator(1.7, 0.4, 0.3, dtype="float32").covariance(X)
    assert single.dtype == tf.complex64
    np.testing.assert_allclose(single, expected, atol=1e-5)


@pytest.mark.parametrize("epochs", [0, pytest.param(3, marks=pytest.mark.long)])
def test_exact_and_state_space_processes_of_it_fit_and_predict_alike(epochs):
    found = []
    for process in (cgp.ExactGP, cgp.StateSpaceGP):
        kernel = DampedOscillator(1.0, 0.3, 0.2) * Rotation(0.05)
        gp = process(kernel, noise_variance=0.02)
        if epochs:
            gp.compile(optimizer=cgp.optimizers.LBFGS())
            gp.fit(X, Z, epochs=epochs, verbose=0)
        else:
            gp.condition(X, Z)
        values = np.array([float(v) for v in gp.parameters().values()])
        found.append([values, gp.log_marginal_likelihood(X, Z), *gp.predict(NEW).values()])
    for exact, state_space in zip(*found, strict=True):
        np.testing.assert_allclose(state_space, exact, rtol=1e-6, atol=1e-9)


class Ellipse(Kernel):
    """A rotation and its conjugate with a weight, in its own MarkovForm: an improper process."""

    is_proper = False

    def markov_form(self):
        form = (Matern12() * Rotation(0.3)).markov_form()
        return form._replace(h_conj=tf.constant([0.4 + 0.2j], form.h.dtype))


def test_the_pseudo_covariance_follows_too():
    inner = Matern12() * Rotation(0.3)
    expected = WidelyLinear(inner, 0.4 + 0.2j)
    for kernel, other in ((Ellipse(), expected), (Conjugate(Ellipse()), Conjugate(expected))):
        np.testing.assert_allclose(kernel.covariance(X), other.covariance(X), atol=1e-14)
        pseudo = kernel.pseudo_covariance(X)
        np.testing.assert_allclose(pseudo, other.pseudo_covariance(X), atol=1e-14)


def test_the_moments_of_improper_forms_are_those_of_their_kernels():
    turning = Matern32(1.0, 2.0) * Rotation(0.3)
    improper = WidelyLinear(turning, 0.4 + 0.2j)
    for kernel in (
        improper,
        Conjugate(improper),
        WidelyLinear(improper, 0.5j),
        improper + turning,
        RandomWalk(2.0, start=-1.0) * improper,
    ):
        k, c = kernel.markov_form().moments(tf.constant(X[:, None]), tf.constant(X[None, :]))
        np.testing.assert_allclose(k, kernel.covariance(X), atol=1e-12)
        np.testing.assert_allclose(c, kernel.pseudo_covariance(X), atol=1e-12)


# Two forms that disagree


class Wrong(Matern12):
    """The moments of one kernel and the form of another."""

    calls = 0
    scale, by, other = 2.0, 1.0, None

    def moments(self, x1, x2):
        k, _ = super().moments(self.by * x1, self.by * x2)
        return self.scale * k, self.other if self.other is None else self.other * tf.cast(
            k, tf.complex128
        )

    def markov_form(self):
        self.calls += 1
        return super().markov_form()


def wrong(**attributes) -> Wrong:
    return type("Wrong", (Wrong,), attributes)()


USES = {
    "exact": lambda kernel: cgp.ExactGP(kernel, 0.1).condition(X, Z),
    "exact likelihood": lambda kernel: cgp.ExactGP(kernel, 0.1).log_marginal_likelihood(X, Z),
    "state space": lambda kernel: cgp.StateSpaceGP(kernel, 0.1).condition(X, Z),
    "state-space likelihood": lambda kernel: cgp.StateSpaceGP(kernel, 0.1).log_marginal_likelihood(
        X, Z
    ),
    "state-space prior": lambda kernel: cgp.StateSpaceGP(kernel, 0.1).predict(X),
    "state-space step": lambda kernel: cgp.StateSpaceGP(kernel, 0.1).step(0.0, 1j),
    "covariance": lambda kernel: kernel.covariance(X),
    "diagonal": lambda kernel: kernel.moments_diagonal(X),
    "in a sum": lambda kernel: cgp.StateSpaceGP(
        kernel * Rotation(0.1) + Matern32(1.0, 1.0), 0.1
    ).condition(X, Z),
}


@pytest.mark.parametrize("use", USES)
def test_two_forms_that_disagree_are_an_error_at_first_use(use):
    with pytest.raises(
        ValueError, match=r"Wrong\(.*of two processes.*covariance between x = .*2.* by moments, 1"
    ):
        USES[use](wrong())


def test_it_is_told_by_lags_as_by_variances():
    for x in (X, [0.0, 1e-3], [5.0, 5.0, 5.0], 1e6 + X):
        with pytest.raises(ValueError, match=r"of two processes.*leave out moments"):
            wrong(scale=1.0, by=1.5).covariance(x)
    with pytest.raises(ValueError, match=r"the pseudo-covariance between"):
        wrong(scale=1.0, other=0.5, is_proper=False, is_real=False).covariance(X)
    turning = (Matern12() * Rotation(0.3)).markov_form()
    flagged = {"is_real": True, "markov_form": lambda self: turning}
    with pytest.raises(ValueError, match="of two processes"):
        type("Turning", (Kernel,), flagged)().covariance(X)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_two_forms_that_agree_are_compared_once(dtype):
    kernel = type("Right", (Wrong,), {"scale": 1.0})(1.0, 0.7, dtype=dtype)
    x = 1e3 * np.arange(2000.0)
    for _ in range(3):
        kernel.covariance(X)
        (kernel + Matern32(dtype=dtype)).moments_diagonal(x)
    assert kernel.calls == 1


@pytest.mark.parametrize("use", ["state space", "covariance"])
def test_a_form_that_is_improper_must_be_flagged(use):
    with pytest.raises(TypeError, match=r"Odd\(\) returns a pseudo-covariance.*is_proper = False"):
        USES[use](type("Odd", (Ellipse,), {"is_proper": True})())


def test_a_kernel_without_either_says_so():
    with pytest.raises(NotImplementedError, match=r"Empty\(\) must implement moments, or else mar"):
        type("Empty", (Kernel,), {})().covariance(X)


def test_inputs_of_several_dimensions_are_refused():
    with pytest.raises(ValueError, match=r"DampedOscillator\(.*needs inputs of one dimension, got"):
        DampedOscillator().covariance(np.ones((3, 2)))


A, W = np.array([[-1.0, 0.0], [1.0, -1.0]]), np.diag([1.0, 0.0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Generator(A[0], W), [0.0, 1.0]), r"drift A must be a matrix \[n, n\], got shape \(2,\)"),
        ((Generator(A, W[:1]), [0.0, 1.0]), r"diffusion W must have shape \[2, 2\], got \(1, 2\)"),
        ((Generator(A, W), [1.0]), r"emission h must have shape \[2\], got \(1,\)"),
        ((Generator(A, W), [0.0, 1.0], [1.0]), r"covariance of the state must have shape \[2, 2\]"),
        ((Generator(-A, W), [0.0, 1.0]), r"no stationary covariance.*negative real parts, got"),
        ((Generator(0.0 * A, W), [0.0, 1.0]), "no stationary covariance"),
        ((Generator(A, -W), [0.0, 1.0]), "W must be Hermitian and positive semidefinite"),
        ((Generator(A, W + 1j * A), [0.0, 1.0]), "W must be Hermitian"),
    ],
)
def test_an_equation_that_describes_no_process_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        linear_sde(*arguments)


def test_real_and_complex_matrices_of_any_kind_make_one_form():
    by_lists = linear_sde(Generator(A.tolist(), W.tolist()), [0.1, 1.0])
    by_tensors = linear_sde(Generator(tf.constant(A), tf.constant(W + 0j)), np.array([0.1, 1.0]))
    assert isinstance(by_lists, MarkovForm)
    assert by_lists.size == 2
    x = tf.constant(X)
    for a, b in zip(by_lists.discretize(x, x), by_tensors.discretize(x, x), strict=True):
        assert a.dtype == tf.complex128
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(by_lists.h, [0.1, 1.0])
    np.testing.assert_allclose(by_lists.covariance(x[0]), [[0.5, 0.25], [0.25, 0.25]], atol=1e-15)
