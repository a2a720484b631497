"""The forms against plain algebra, and against the augmented form [z; z̄], which neither uses."""

import numpy as np
import pytest
import tensorflow as tf

from cgp.distributions.forms import CompositeForm, ProperForm, SecondMoments, form_of
from cgp.linalg import cholesky
from tests.reference import complex_normal as reference

N = 4


def complex_matrix(rng, *shape):
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def pair(rng, form):
    k, c = reference.random_pair(N, rng)
    return SecondMoments(tf.constant(k), None if isinstance(form, ProperForm) else tf.constant(c))


forms = pytest.mark.parametrize("form", [ProperForm(), CompositeForm()], ids=["proper", "improper"])


def test_zeros_stand_for_the_pseudo_covariance_of_a_proper_normal():
    k = tf.constant([1 + 1j, 2.0])
    np.testing.assert_array_equal(SecondMoments(k).c_or_zeros(), [0, 0])
    assert SecondMoments(k, k).c_or_zeros() is k


@forms
def test_moments_and_vectors_go_into_the_form_and_come_back(form):
    rng = np.random.default_rng(1)
    moments, z = pair(rng, form), complex_matrix(rng, 3, N)
    working = form.covariance(moments)
    assert working.shape == [N * form.multiplicity] * 2
    back = form.moments(working)
    np.testing.assert_allclose(back.k, moments.k, rtol=1e-14)
    np.testing.assert_allclose(back.c_or_zeros(), moments.c_or_zeros(), atol=1e-14)
    np.testing.assert_array_equal(form.join(form.split(z)), z)
    assert form_of(form.multiplicity == 1).scale == form.scale


@forms
def test_a_basis_acts_on_working_coefficients_as_on_complex_ones(form):
    rng = np.random.default_rng(2)
    basis, beta = complex_matrix(rng, 5, 3), complex_matrix(rng, 3)
    working = tf.linalg.matvec(form.basis(tf.constant(basis)), form.split(beta))
    np.testing.assert_allclose(form.join(working), basis @ beta, rtol=1e-13)


@forms
def test_marginals_are_the_diagonals_of_the_moments(form):
    moments = pair(np.random.default_rng(3), form)
    chol = cholesky(form.covariance(moments))
    result = form.marginal(tf.linalg.adjoint(chol))
    assert (result.c is None) == (moments.c is None)
    np.testing.assert_allclose(result.k, np.diag(moments.k), rtol=1e-13)
    np.testing.assert_allclose(result.c_or_zeros(), np.diag(moments.c_or_zeros()), atol=1e-13)


@forms
def test_a_root_in_either_form_is_one_of_the_working_covariance(form):
    rng = np.random.default_rng(4)
    for other in (ProperForm(), CompositeForm()):
        moments = pair(rng, other)
        if isinstance(form, ProperForm):
            expected = form.covariance(moments)  # which knows nothing of C
        else:
            expected = form.covariance(SecondMoments(moments.k, moments.c_or_zeros()))
        root = form.root(cholesky(other.covariance(moments)))
        np.testing.assert_allclose(root @ tf.linalg.adjoint(root), expected, atol=1e-12)


@forms
def test_white_noise_has_the_unit_working_covariance(form):
    parts = np.random.default_rng(5).normal(size=(100_000, 2 * N))
    white = form.white(tf.constant(parts)).numpy()
    size = white.shape[-1]
    assert size == N * form.multiplicity
    np.testing.assert_allclose(white.T @ white.conj() / len(white), np.eye(size), atol=0.02)
    if white.dtype.kind == "c":
        np.testing.assert_allclose(white.T @ white / len(white), 0 * np.eye(N), atol=0.02)


@forms
def test_inverted_blocks_are_each_point_given_the_others(form):
    rng = np.random.default_rng(6)
    moments, z = pair(rng, form), complex_matrix(rng, N, 2)
    k, c = moments.k.numpy(), moments.c_or_zeros().numpy()
    precision = np.linalg.inv(form.covariance(moments))
    columns = np.stack([form.split(column) for column in z.T], axis=-1)
    deviation, variances = form.invert_blocks(
        tf.constant(precision[None]), tf.constant((precision @ columns)[None])
    )
    assert (variances.c is None) == (moments.c is None)
    augmented = np.block([[k, c], [c.conj(), k.conj()]])
    for i in range(N):
        own = [i, i + N]
        rest = [j for j in range(2 * N) if j not in own]
        gain = augmented[np.ix_(own, rest)] @ np.linalg.inv(augmented[np.ix_(rest, rest)])
        left = augmented[np.ix_(own, own)] - gain @ augmented[np.ix_(rest, own)]
        error = np.concatenate([z, z.conj()])[own] - gain @ np.concatenate([z, z.conj()])[rest]
        np.testing.assert_allclose(deviation[0, i], error[0], rtol=1e-10)
        np.testing.assert_allclose(variances.k[0, i], left[0, 0], rtol=1e-10)
        np.testing.assert_allclose(variances.c_or_zeros()[0, i], left[0, 1], atol=1e-10)
