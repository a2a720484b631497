"""Kernels of several outputs: moments between pairs of a point and an output."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from cgp.kernels import (
    RBF,
    Conjugate,
    Coregionalized,
    Driven,
    EllipticalOU,
    Matern12,
    Matern32,
    Matern52,
    Outputs,
    RandomWalk,
    Rotation,
    WidelyLinear,
)

T = np.array([0.0, 0.7, 2.0, 2.3])
GAINS = np.array([1.0, 0.5j, -0.3 + 0.2j])
TWO = np.array([[0.1 - 0.2j, 2.0], [1.0, 0.0], [0.3j, 0.5 + 1j]])  # the reference is output 1
POINTS = np.stack(np.meshgrid(T, np.arange(3.0), indexing="ij"), axis=-1).reshape(-1, 2)


def source():
    return Matern32(2.0, 1.5) * Rotation(0.3)


def improper():
    return WidelyLinear(source(), 0.4j)


def moments(kernel, points=POINTS):
    return kernel.covariance(points).numpy(), kernel.pseudo_covariance(points).numpy()


@pytest.mark.parametrize("make", [source, improper], ids=["proper", "improper"])
def test_are_gains_conjugated_in_the_covariance_and_not_in_the_pseudo_covariance(make):
    k, c = moments(make(), T)
    K, C = moments(Coregionalized(make(), 3, mixing=GAINS))
    np.testing.assert_allclose(K, np.kron(k, np.outer(GAINS, GAINS.conj())), rtol=0, atol=1e-14)
    np.testing.assert_allclose(C, np.kron(c, np.outer(GAINS, GAINS)), rtol=0, atol=1e-14)


def test_do_several_sources_add_up():
    K, C = moments(Coregionalized(source(), 3, rank=2, reference=1, mixing=TWO))
    expected = np.kron(moments(source(), T)[0], TWO @ TWO.conj().T)
    np.testing.assert_allclose(K, expected, rtol=0, atol=1e-14)
    assert not C.any()


@pytest.mark.parametrize("shared", [False, True], ids=["different", "one kernel"])
def test_are_outputs_independent(shared):
    kernels = [Matern12(0.5, 1.0), WidelyLinear(Matern12(0.2, 3.0), 0.5), Matern52(0.1, 2.0)]
    kernels = kernels[1:2] * 3 if shared else kernels
    K, C = moments(Outputs(kernels))
    for p, kernel in enumerate(kernels):
        block = np.zeros((3, 3))
        block[p, p] = 1.0
        k, c = moments(kernel, T)
        K, C = K - np.kron(k, block), C - np.kron(c, block)
    np.testing.assert_allclose(K, 0, atol=1e-14)
    np.testing.assert_allclose(C, 0, atol=1e-14)


MARKOV = {
    "one source": lambda: Coregionalized(source(), 3, mixing=GAINS),
    "two sources": lambda: Coregionalized(source(), 3, rank=2, reference=1, mixing=TWO),
    "improper": lambda: Coregionalized(improper(), 3, mixing=GAINS),
    "ellipse": lambda: Coregionalized(EllipticalOU(1.0, 2.0, 0.2, 0.3), 3, mixing=GAINS),
    "walk": lambda: Coregionalized(RandomWalk(0.5, start=-1.0), 3, mixing=GAINS),
    "driven": lambda: Coregionalized(
        Driven(Matern12(1.0, 9.0) * Rotation(0.2), Matern12(0.1, 0.5)), 3, mixing=GAINS
    ),
    "independent": lambda: Outputs([source(), improper(), Matern12(1.0, 2.0)]),
    "a sum": lambda: (
        Coregionalized(source() + Matern12(1.0, 1.0), 3, mixing=GAINS)
        + Outputs([Matern12(1.0, 2.0)] * 3)
    ),
    "scaled and turned": lambda: 0.5 * Coregionalized(source(), 3, mixing=GAINS) * Rotation(0.1),
    "widely linear outside": lambda: WidelyLinear(Coregionalized(source(), 3, mixing=GAINS), 0.3j),
    "conjugate": lambda: Conjugate(Coregionalized(source(), 3, mixing=GAINS)),
}


@pytest.mark.parametrize("make", MARKOV.values(), ids=MARKOV)
def test_has_the_markov_form_the_moments_of_the_kernel(make):
    kernel = make()
    assert kernel.outputs == 3
    assert kernel.is_markov
    form = kernel.markov_form()
    g = np.zeros_like(form.h) if form.h_conj is None else np.asarray(form.h_conj)
    h, x = np.asarray(form.h), tf.constant(T)
    s = form.covariance_of(x[:, None], x[None, :], tf.eye(form.size, dtype=form.h.dtype)).numpy()
    K = np.einsum("pi,abij,qj->apbq", h, s, h.conj())
    K = K + np.einsum("pi,abij,qj->apbq", g, s.conj(), g.conj())
    C = np.einsum("pi,abij,qj->apbq", h, s, g) + np.einsum("pi,abij,qj->apbq", g, s.conj(), h)
    for actual, expected in zip((K, C), moments(kernel), strict=True):
        np.testing.assert_allclose(actual.reshape(12, 12), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("reference", [0, 2])
def test_is_a_mixing_matrix_any_of_its_form(rank, reference):
    rng = np.random.default_rng(rank)
    order = [reference, *(p for p in range(4) if p != reference)]
    gains = np.tril(rng.normal(size=(4, rank)) + 1j * rng.normal(size=(4, rank)))
    gains[np.arange(rank), np.arange(rank)] = [1.0, *rng.uniform(0.1, 2.0, rank - 1)]
    mixing = np.empty_like(gains)
    mixing[order] = gains
    kernel = Coregionalized(RBF(1.0, 1.0), 4, rank=rank, reference=reference, mixing=mixing)
    np.testing.assert_allclose(kernel.mixing.numpy(), mixing, rtol=1e-14)
    assert kernel.mixing.variable.shape == (2 * 4 * rank - rank * rank - 1,)
    # All real weights, and each moves the covariance.
    raw = tf.Variable(kernel.mixing.variable.value)
    with tf.GradientTape() as tape:
        a = kernel.mixing.constrained(raw)
        b = tf.linalg.matmul(a, a, adjoint_b=True)
        parts = tf.reshape(tf.stack([tf.math.real(b), tf.math.imag(b)]), [-1])
    jacobian = tape.jacobian(parts, raw)
    assert np.linalg.matrix_rank(jacobian) == raw.shape[0]


def test_is_a_kernel_of_outputs_saved_with_its_gains_and_sharing():
    shared = Matern12(0.5, 1.0)
    kernel = Coregionalized(source() + shared, 3, reference=1, name="mode", fixed="mixing")
    kernel += Outputs([shared, Matern12(0.2, 3.0), shared])
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(kernel))
    assert repr(again) == repr(kernel)
    assert (again.parts[0].rank, again.parts[0].reference, again.outputs) == (1, 1, 3)
    assert again.parts[1].kernels[0] is again.parts[1].kernels[2]
    assert [*again.parameters()] == [*kernel.parameters()]
    assert "mode.mixing" in kernel.parameters()


def test_can_gains_be_assigned_and_given_a_prior():
    import tensorflow_probability as tfp

    prior = tfp.distributions.Normal(np.float64(0.0), np.float64(1.0))
    kernel = Coregionalized(RBF(1.0, 1.0), 2, mixing=[1.0, 1.0], priors={"mixing": prior})
    before = float(kernel.mixing.log_prior())
    kernel.mixing.assign([[1.0], [1.0 + 2j]])
    assert before - float(kernel.mixing.log_prior()) == pytest.approx(2.0)
    with pytest.raises(ValueError, match=r"mixing must be \[2, 1\], 1 for the reference, output 0"):
        kernel.mixing.assign([[2.0], [1.0]])


REFUSED = {
    "outputs inside": (
        lambda: Coregionalized(Coregionalized(RBF(), 3), 3),
        "Coregionalized is made of kernels of one signal, but Coregionalized.* has 3 outputs",
    ),
    "an approximation of outputs": (
        lambda: Driven(Matern12(1.0, 1.0), Outputs([RBF(), RBF()])),
        "Driven is made of kernels of one signal, but Outputs",
    ),
    "two in a product": (
        lambda: Coregionalized(RBF(), 3) * Outputs([RBF()] * 3),
        "one factor of a product may have outputs",
    ),
    "different outputs in a sum": (
        lambda: Coregionalized(RBF(), 3) + Outputs([RBF()] * 2),
        "a sum must have the same outputs, but Coregionalized.* has 3 and Outputs.* has 2",
    ),
    "a term without outputs": (
        lambda: Coregionalized(RBF(), 3) + RBF(name="drift"),
        r"RBF.* has none: put the term without outputs into Coregionalized\(..., outputs=3\)",
    ),
    "more sources than outputs": (
        lambda: Coregionalized(RBF(), 3, rank=4),
        "rank must be at most the number of outputs, 3, got 4",
    ),
    "improper sources": (
        lambda: Coregionalized(WidelyLinear(RBF(), 0.1), 3, rank=2),
        "rank must be 1 for an improper kernel, got 2",
    ),
    "a reference that is no output": (
        lambda: Coregionalized(RBF(), 3, reference=3),
        "reference must be an output, 0 to 2, got 3",
    ),
    "gains of another size": (
        lambda: Coregionalized(RBF(), 3, mixing=[1.0, 2.0]),
        r"mixing must be \[3, 1\], a gain of each output for each source, got shape \(2,\)",
    ),
    "a reference gain": (
        lambda: Coregionalized(RBF(), 3, mixing=[2.0, 1.0, 1.0]),
        r"divide it by mixing\[0\], and multiply the variance of the kernel by abs\(mixing\[0\]\)",
    ),
    "a full mixing matrix": (
        lambda: Coregionalized(RBF(), 2, rank=2, mixing=[[1.0, 1.0], [1.0, 1.0]]),
        "lower trapezoidal from there, with a positive diagonal.* Cholesky factor",
    ),
    "one output": (lambda: Outputs([RBF()]), "at least two outputs, got one"),
    "points without an output": (
        lambda: Coregionalized(RBF(1.0, 1.0), 3, mixing=GAINS).covariance([0.0, 1.0]),
        r"points of a kernel of 3 outputs are \[..., D \+ 1\], the last coordinate the number",
    ),
    "an output that is none": (
        lambda: Outputs([RBF(1.0, 1.0)] * 2).covariance([[0.0, 2.0]]),
        "0 to 1, got shape .* and the number 2",
    ),
    "a spectrum": (
        lambda: Outputs([Matern12(1.0, 1.0)] * 2).spectral_density([0.1]),
        "has a spectrum for each output: take that of a kernel inside",
    ),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
