import functools

import numpy as np
import pytest
import tensorflow as tf

from cgp.distributions import ComplexNormal
from cgp.linalg import NotPositiveDefiniteError, cholesky, to_composite
from tests.long_cases import long_except
from tests.reference import complex_normal as reference

N = 4


def complex_vector(rng, *shape):
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def moments(n, rng, proper):
    covariance, pseudo = reference.random_pair(n, rng)
    return complex_vector(rng, n), covariance, np.zeros_like(pseudo) if proper else pseudo


def normal(mean, covariance, pseudo, proper):
    return ComplexNormal.from_covariance(mean, covariance, None if proper else pseudo)


both = pytest.mark.parametrize("proper", [True, False], ids=["proper", "improper"])


@both
@pytest.mark.parametrize("n", [1, 2, 5])
def test_log_prob_and_entropy_are_those_of_the_augmented_form(proper, n):
    rng = np.random.default_rng(n)
    mean, k, c = moments(n, rng, proper)
    p = normal(mean, k, c, proper)
    z = complex_vector(rng, n)
    assert p.is_proper == proper
    np.testing.assert_allclose(p.log_prob(z), reference.log_prob(z, mean, k, c), rtol=1e-11)
    np.testing.assert_allclose(p.entropy(), reference.entropy(k, c), rtol=1e-11)


def test_proper_log_prob_has_no_half():
    z = np.array([1.0 + 2.0j])
    p = ComplexNormal.from_covariance(np.zeros(1, complex), [[5.0 + 0j]])
    np.testing.assert_allclose(p.log_prob(z), -np.log(np.pi) - np.log(5.0) - 1.0, rtol=1e-14)


def test_an_improper_normal_of_zero_pseudo_covariance_is_the_proper_one():
    rng = np.random.default_rng(3)
    mean, k, c = moments(N, rng, True)
    z = complex_vector(rng, N)
    proper, improper = normal(mean, k, c, True), normal(mean, k, c, False)
    assert proper.is_proper
    assert not improper.is_proper
    np.testing.assert_allclose(improper.log_prob(z), proper.log_prob(z), rtol=1e-12)
    np.testing.assert_allclose(improper.entropy(), proper.entropy(), rtol=1e-12)
    np.testing.assert_allclose(improper.covariance(), proper.covariance(), atol=1e-12)
    np.testing.assert_allclose(improper.variance(), proper.variance(), atol=1e-12)
    np.testing.assert_allclose(improper.pseudo_covariance(), np.zeros([N, N]), atol=1e-13)


def test_turning_z_and_the_pseudo_covariance_leaves_the_density_alone():
    rng = np.random.default_rng(4)
    mean, k, c = moments(N, rng, False)
    z, turn = complex_vector(rng, N), np.exp(0.7j)
    turned = normal(turn * mean, k, turn**2 * c, False)
    np.testing.assert_allclose(
        turned.log_prob(turn * z), normal(mean, k, c, False).log_prob(z), rtol=1e-12
    )


@both
def test_moments_are_those_it_was_made_of(proper):
    mean, k, c = moments(N, np.random.default_rng(5), proper)
    p = normal(mean, k, c, proper)
    np.testing.assert_array_equal(p.mean(), mean)
    np.testing.assert_allclose(p.covariance(), k, atol=1e-12)
    np.testing.assert_allclose(p.pseudo_covariance(), c, atol=1e-12)
    np.testing.assert_allclose(p.variance(), np.diag(k).real, atol=1e-12)
    np.testing.assert_allclose(p.pseudo_variance(), np.diag(c), atol=1e-12)
    assert p.variance().dtype == tf.float64
    assert p.pseudo_variance().dtype == tf.complex128
    assert (p.dtype, p.batch_shape, p.event_shape) == (tf.complex128, [], [N])
    assert ("improper" in repr(p)) == (not proper)


@both
def test_samples_have_the_moments(proper):
    mean, k, c = moments(3, np.random.default_rng(6), proper)
    draws = normal(mean, k, c, proper).sample(200_000, seed=1).numpy()
    d = draws - mean
    scale = np.abs(k).max() / np.sqrt(len(d))  # of the error of a sample covariance
    np.testing.assert_allclose(draws.mean(0), mean, atol=5 * np.sqrt(k.real.max() / len(d)))
    np.testing.assert_allclose(np.einsum("si,sj->ij", d, d.conj()) / len(d), k, atol=6 * scale)
    np.testing.assert_allclose(np.einsum("si,sj->ij", d, d) / len(d), c, atol=6 * scale)
    # The bound bites: a wrong conjugate would stand out.
    assert np.abs(k - k.conj()).max() > 50 * scale


@both
@pytest.mark.parametrize("sample_shape", [(), 0, 3, (3,), (2, 3), np.int64(3)], ids=str)
@pytest.mark.parametrize("batch", [(), (2,), (5, 2)])
def test_samples_and_their_log_prob_have_the_shapes_of_tfp(proper, sample_shape, batch):
    rng = np.random.default_rng(7)
    mean, k, c = moments(N, rng, proper)
    mean = mean + complex_vector(rng, *batch, 1)
    k, c = (np.broadcast_to(a, (*batch, N, N)) for a in (k, c))
    p = normal(mean, k, c, proper)
    draws = p.sample(sample_shape, seed=2)
    lead = tuple(np.atleast_1d(sample_shape)) if np.size(sample_shape) else ()
    assert draws.shape == (*lead, *batch, N)
    assert p.log_prob(draws).shape == (*lead, *batch)
    assert p.batch_shape == batch


def test_the_same_seed_draws_the_same():
    p = ComplexNormal(np.zeros(2, complex), np.eye(2, dtype=complex))
    np.testing.assert_array_equal(p.sample(3, seed=4), p.sample(3, seed=4))
    assert not np.allclose(p.sample(3, seed=4), p.sample(3, seed=5))
    np.testing.assert_array_equal(p.sample(3, seed=4), p.sample(3, seed=tf.constant([0, 4])))
    assert not np.allclose(p.sample(3), p.sample(3))
    drawn = tf.function(lambda: p.sample(3))
    assert not np.allclose(drawn(), drawn())


@both
def test_a_batch_is_a_loop(proper):
    rng = np.random.default_rng(8)
    each = [moments(N, rng, proper) for _ in range(6)]
    mean, k, c = (np.stack(a).reshape(2, 3, *a[0].shape) for a in zip(*each, strict=True))
    z = complex_vector(rng, 7, 2, 3, N)
    p = normal(mean, k, c, proper)
    log_prob, variance = p.log_prob(z).numpy(), p.variance().numpy()
    for i in np.ndindex(2, 3):
        one = normal(mean[i], k[i], c[i], proper)
        np.testing.assert_allclose(variance[i], one.variance(), rtol=1e-12)
        np.testing.assert_allclose(p.entropy()[i], one.entropy(), rtol=1e-12)
        for s in range(7):
            np.testing.assert_allclose(log_prob[(s, *i)], one.log_prob(z[(s, *i)]), rtol=1e-11)


@both
def test_batch_axes_of_mean_and_factor_broadcast(proper):
    rng = np.random.default_rng(9)
    _, k, c = moments(N, rng, proper)
    mean = complex_vector(rng, 3, N)
    shared = normal(mean, k, c, proper)
    spread = normal(mean[0], np.stack([k, k, k]), np.stack([c, c, c]), proper)
    for p in (shared, spread):
        assert p.batch_shape == [3]
        assert p.mean().shape == p.variance().shape == p.pseudo_variance().shape == [3, N]
        assert p.covariance().shape == p.pseudo_covariance().shape == [3, N, N]
        assert p.entropy().shape == p.log_prob(mean[1]).shape == [3]
        assert p.sample(2, seed=1).shape == [2, 3, N]
    z = complex_vector(rng, 5, 3, N)
    expected = [[reference.log_prob(z[i, j], mean[j], k, c) for j in range(3)] for i in range(5)]
    np.testing.assert_allclose(shared.log_prob(z), expected, rtol=1e-11)


@pytest.mark.parametrize("proper1", [True, False])
@pytest.mark.parametrize("proper2", [True, False])
def test_kl_divergence_is_that_of_the_augmented_form(proper1, proper2):
    rng = np.random.default_rng(10)
    first, second = moments(N, rng, proper1), moments(N, rng, proper2)
    p, q = normal(*first, proper1), normal(*second, proper2)
    expected = reference.kl_divergence(*first, *second)
    np.testing.assert_allclose(p.kl_divergence(q), expected, rtol=1e-11)
    np.testing.assert_allclose(p.kl_divergence(p), 0.0, atol=1e-13)
    assert float(p.kl_divergence(q)) > 0


@both
def test_ellipses_hold_their_probability(proper):
    mean, k, c = moments(2, np.random.default_rng(11), proper)
    p = normal(mean, k, c, proper)
    e = p.ellipses(0.8)
    turned = (p.sample(100_000, seed=3) - e.center) * tf.exp(tf.complex(0.0 * e.angle, -e.angle))
    inside = (np.real(turned) / e.semi_major) ** 2 + (np.imag(turned) / e.semi_minor) ** 2 <= 1
    np.testing.assert_allclose(np.mean(inside, axis=0), 0.8, atol=0.006)
    if proper:
        np.testing.assert_array_equal(e.semi_major, e.semi_minor)
        np.testing.assert_array_equal(e.angle, [0.0, 0.0])


def test_ellipses_are_the_principal_axes_of_each_component():
    mean, k, c = moments(3, np.random.default_rng(12), False)
    e = normal(mean, k, c, False).ellipses(0.95)
    for j in range(3):
        v, w = k[j, j].real, c[j, j]
        plane = 0.5 * np.array([[v + w.real, w.imag], [w.imag, v - w.real]])
        values, vectors = np.linalg.eigh(plane)
        radii = np.sqrt(5.991464547107979 * values)  # the 0.95 quantile of chi-squared, 2 d.o.f.
        np.testing.assert_allclose([e.semi_minor[j], e.semi_major[j]], radii, rtol=1e-10)
        axis = [np.cos(e.angle[j]), np.sin(e.angle[j])]
        np.testing.assert_allclose(abs(axis @ vectors[:, 1]), 1.0, rtol=1e-12)


@both
def test_the_further_words_of_tfp_mean_what_they_say(proper):
    rng = np.random.default_rng(23)
    mean, k, c = moments(N, rng, proper)
    mean = mean + complex_vector(rng, 3, 1)
    p = normal(mean, k, c, proper)
    np.testing.assert_array_equal(p.mode(), mean)
    deviation = np.broadcast_to(np.sqrt(np.diag(k).real), [3, N])
    np.testing.assert_allclose(p.stddev(), deviation, rtol=1e-12)
    z = complex_vector(rng, 3, N)
    density = [np.exp(reference.log_prob(z[i], mean[i], k, c)) for i in range(3)]
    np.testing.assert_allclose(p.prob(z), density, rtol=1e-10)
    unknown = [tf.TensorSpec([None, None], tf.complex128)]
    shapes = tf.function(
        lambda mean: (
            (q := normal(mean, k, c, proper)).batch_shape_tensor(),
            q.event_shape_tensor(),
        ),
        input_signature=unknown,
    )
    for batch, event in (shapes(mean), (p.batch_shape_tensor(), p.event_shape_tensor())):
        assert (list(batch), list(event)) == ([3], [N])


def test_finite_numbers_are_taken_whose_sum_is_not():
    p = ComplexNormal(np.array([1e308, 1e308j]), np.diag([1e150, 1e150]) + 0j)
    np.testing.assert_array_equal(p.mean(), [1e308, 1e308j])


@both
def test_a_value_of_a_larger_batch_is_taken(proper):
    rng = np.random.default_rng(24)
    mean, k, c = moments(N, rng, proper)
    p = normal(mean[None], k[None], c[None], proper)
    z = complex_vector(rng, 5, 3, N)
    np.testing.assert_allclose(p.log_prob(z), normal(mean, k, c, proper).log_prob(z), rtol=1e-12)


@both
def test_single_precision_stays_single(proper):
    rng = np.random.default_rng(13)
    mean, k, c = moments(N, rng, proper)
    z = complex_vector(rng, N)
    p = normal(*(a.astype(np.complex64) for a in (mean, k, c)), proper)
    log_prob = p.log_prob(z.astype(np.complex64))
    assert log_prob.dtype == p.variance().dtype == p.entropy().dtype == tf.float32
    assert p.sample(seed=1).dtype == p.pseudo_variance().dtype == tf.complex64
    assert p.ellipses().angle.dtype == tf.float32
    np.testing.assert_allclose(log_prob, reference.log_prob(z, mean, k, c), rtol=2e-4)


@pytest.mark.parametrize(
    ("proper", "jit"),
    [
        pytest.param(False, False, id="improper-graph", marks=pytest.mark.long),
        pytest.param(False, True, id="improper-xla", marks=pytest.mark.long),
        pytest.param(True, False, id="proper-graph", marks=pytest.mark.long),
        pytest.param(True, True, id="proper-xla", marks=pytest.mark.long),
    ],
)
def test_graph_equals_eager(proper, jit):
    rng = np.random.default_rng(14)
    mean, k, c = moments(N, rng, proper)
    z = complex_vector(rng, 3, N)

    def everything(mean, k, c, z):
        p = normal(mean, k, c, proper)
        q = normal(mean, 2 * k, c, not proper)
        return (
            p.log_prob(z), p.entropy(), p.kl_divergence(q), p.sample((2, 2), seed=5), p.variance(),
            p.pseudo_variance(), p.covariance(), p.pseudo_covariance(), *p.ellipses(),
        )  # fmt: skip

    compiled = tf.function(everything, jit_compile=jit)
    arguments = [tf.constant(a) for a in (mean, k, c, z)]
    for ours, eager in zip(compiled(*arguments), everything(*arguments), strict=True):
        np.testing.assert_allclose(ours, eager, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("proper", long_except([True, False], False))
def test_a_graph_of_unknown_sizes_works(proper):
    rng = np.random.default_rng(15)
    mean, k, c = moments(N, rng, proper)
    z = complex_vector(rng, 3, 2, N)
    vector, matrix = (
        tf.TensorSpec([None, None], tf.complex128),
        tf.TensorSpec([None] * 3, "complex128"),
    )

    @tf.function(input_signature=[vector, matrix, matrix, tf.TensorSpec([None] * 3, "complex128")])
    def log_prob_and_sample(mean, k, c, z):
        p = normal(mean, k, c, proper)
        return p.log_prob(z), p.sample(3, seed=1)

    log_prob, draws = log_prob_and_sample([mean, mean], k[None], c[None], z)
    p = normal(mean, k, c, proper)
    np.testing.assert_allclose(log_prob, p.log_prob(z), rtol=1e-12)
    assert draws.shape == [3, 2, N]


@both
@pytest.mark.parametrize("what", ["log_prob", "entropy", "kl_divergence", "kl_of_other", "sample"])
def test_gradients_agree_with_central_differences(proper, what):
    rng = np.random.default_rng(16)
    mean, k, c = moments(N, rng, proper)
    k += 5 * np.eye(N)  # far enough from singular for the differences to be accurate
    other = normal(*moments(N, rng, not proper), not proper)
    z, weights = complex_vector(rng, N), complex_vector(rng, 6, N)

    def loss(mean, k, c):
        p = normal(mean, k, c, proper)
        if what == "log_prob":
            return p.log_prob(z)
        if what == "entropy":
            return p.entropy()
        if what == "kl_divergence":
            return p.kl_divergence(other)
        if what == "kl_of_other":
            return other.kl_divergence(p)
        return tf.reduce_sum(tf.math.real(weights * p.sample(6, seed=7) ** 2))

    values = [tf.constant(a) for a in (mean, k, c)]
    with tf.GradientTape() as tape:
        tape.watch(values)
        y = loss(*values)
    gradients = tape.gradient(y, values, unconnected_gradients="zero")
    dm = complex_vector(rng, N)
    dk, dc = reference.random_pair(N, rng)
    if proper:
        dc = np.zeros_like(dc)
    analytic = sum(
        np.sum(np.real(np.conj(g) * d)) for g, d in zip(gradients, (dm, dk, dc), strict=True)
    )
    step = 1e-5
    ahead = loss(mean + step * dm, k + step * dk, c + step * dc)
    behind = loss(mean - step * dm, k - step * dk, c - step * dc)
    np.testing.assert_allclose(analytic, (ahead - behind) / (2 * step), rtol=1e-7)


def test_gradients_reach_the_factor_and_the_mean():
    rng = np.random.default_rng(17)
    mean, k, _ = moments(N, rng, True)
    z = complex_vector(rng, N)
    loc, chol = tf.constant(mean), cholesky(k)
    with tf.GradientTape() as tape:
        tape.watch([loc, chol])
        y = ComplexNormal(loc, chol).log_prob(z)
    by_loc, by_chol = tape.gradient(y, [loc, chol])
    np.testing.assert_allclose(by_loc, 2 * np.linalg.solve(k, z - mean), rtol=1e-10)
    direction = np.tril(complex_vector(rng, N, N))
    np.fill_diagonal(direction, np.diag(direction).real)
    step = 1e-6
    ahead, behind = (ComplexNormal(loc, chol + s * direction).log_prob(z) for s in (step, -step))
    analytic = np.sum(np.real(np.conj(by_chol) * direction))
    np.testing.assert_allclose(analytic, (ahead - behind) / (2 * step), rtol=1e-7)


# Singular covariances.


@both
def test_a_singular_normal_has_moments_and_samples_but_no_density(proper):
    # Improper and singular: every component lies on a line of the plane.
    k = np.exp(1j * np.subtract.outer(np.arange(3.0), np.arange(3.0)))
    line = np.exp(1j * np.arange(3.0))
    c = np.outer(line, line)
    p = ComplexNormal.from_covariance(np.zeros(3, complex), k, None if proper else c)
    np.testing.assert_allclose(p.covariance(), k, atol=1e-14)
    np.testing.assert_allclose(p.pseudo_covariance(), 0 * c if proper else c, atol=1e-14)
    draws = p.sample(4, seed=1).numpy()
    np.testing.assert_allclose(draws / line, draws[:, :1] * np.ones(3), atol=1e-14)
    semi_minor = p.ellipses().semi_minor.numpy()
    np.testing.assert_allclose(semi_minor > 1e-6, np.full(3, proper))
    q = ComplexNormal(np.zeros(3, complex), np.eye(3, dtype=complex))
    for density in (lambda: p.log_prob(line), p.entropy, lambda: q.kl_divergence(p)):
        with pytest.raises(NotPositiveDefiniteError, match="no density exists"):
            density()
        with pytest.raises(tf.errors.InvalidArgumentError, match="no density exists"):
            tf.function(density)()
    with pytest.raises(NotPositiveDefiniteError, match="no density exists"):
        p.kl_divergence(q)
    assert np.isnan(tf.function(p.log_prob, jit_compile=True)(line))


class Late(ComplexNormal):
    """As a posterior may be: cheap marginals at once, the covariance on demand."""

    def __init__(self, mean, k, c, proper):
        self.moments, self.proper, self.asked = (mean, k, c), proper, 0

    @property
    def is_proper(self):
        return self.proper

    def mean(self):
        return tf.constant(self.moments[0])

    def variance(self):
        return tf.constant(np.diag(self.moments[1]).real)

    def pseudo_variance(self):
        return tf.constant(np.diag(self.moments[2]))

    def covariance(self):
        self.asked += 1
        return tf.constant(self.moments[1])

    def pseudo_covariance(self):
        return tf.constant(self.moments[2])


@both
def test_a_subclass_may_leave_its_covariance_for_later(proper):
    rng = np.random.default_rng(21)
    mean, k, c = moments(N, rng, proper)
    z = complex_vector(rng, 2, N)
    late, p = Late(mean, k, c, proper), normal(mean, k, c, proper)
    assert (late.dtype, late.batch_shape, late.event_shape) == (tf.complex128, [], [N])
    for ours, theirs in zip(late.ellipses(), p.ellipses(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert repr(late) == repr(p)
    assert late.asked == 0
    # A graph first: what it traces must not be kept for the eager calls that follow.
    np.testing.assert_allclose(tf.function(late.log_prob)(z), p.log_prob(z), rtol=1e-12)
    np.testing.assert_allclose(late.log_prob(z), p.log_prob(z), rtol=1e-12)
    asked = late.asked
    np.testing.assert_allclose(late.sample(2, seed=1), p.sample(2, seed=1), rtol=1e-12)
    np.testing.assert_allclose(late.entropy(), p.entropy(), rtol=1e-12)
    np.testing.assert_allclose(late.kl_divergence(p), 0.0, atol=1e-12)
    assert late.asked == asked


# Errors.

Z, K = np.zeros(2, complex), np.eye(2, dtype=complex)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: ComplexNormal(np.zeros(2), K), TypeError, "loc must be complex64 or complex128"),
        (lambda: ComplexNormal(0j, K), ValueError, "loc must be a vector"),
        (lambda: ComplexNormal(Z, K.astype("complex64")), TypeError, "got complex64"),
        (lambda: ComplexNormal(Z, np.eye(4, dtype="float32")), TypeError, "got float32"),
        (lambda: ComplexNormal(Z, np.eye(3, dtype=complex)), ValueError, r"\[\.\.\., 2, 2\]"),
        (lambda: ComplexNormal(Z, np.eye(2)), ValueError, r"\[\.\.\., 4, 4\]"),
        (lambda: ComplexNormal(Z, K[0]), ValueError, "must be a matrix"),
        (lambda: ComplexNormal(Z, K + 1j), ValueError, "lower triangular"),
        (lambda: ComplexNormal(Z, -K), ValueError, "real diagonal"),
        (lambda: ComplexNormal(Z, 1j * K), ValueError, "real diagonal"),
        (lambda: ComplexNormal(Z * np.nan, K), ValueError, "loc .* NaN"),
        (lambda: ComplexNormal(Z, K * np.nan), ValueError, "chol .* NaN"),
        (lambda: ComplexNormal(np.zeros([3, 2], complex), np.stack([K, K])), ValueError, "batch"),
        (lambda: ComplexNormal.from_covariance(Z, np.eye(2)), TypeError, "got float64"),
        (lambda: ComplexNormal.from_covariance(Z, np.triu(K + 1j)), ValueError, "Hermitian"),
        (lambda: ComplexNormal.from_covariance(Z, K, 1j * K[:, ::-1] * [[1], [-1]]), ValueError,
         "pseudo_covariance must be symmetric"),
        (lambda: ComplexNormal.from_covariance(Z, K, np.eye(3) + 0j), ValueError, r"2, 2\].*3, 3"),
        (lambda: ComplexNormal.from_covariance(Z, K, K * np.nan), ValueError, "pseudo_cov.*NaN"),
        (lambda: ComplexNormal.from_covariance(Z, -K), NotPositiveDefiniteError, "indefinite"),
        (lambda: ComplexNormal.from_covariance(Z, K, 1.01j * K), NotPositiveDefiniteError,
         "no process has this covariance and pseudo-covariance.* -0.005"),
        (lambda: ComplexNormal(Z, K).log_prob(np.zeros(2)), TypeError, "value must be complex"),
        (lambda: ComplexNormal(Z, K).log_prob(Z.astype("complex64")), TypeError, "complex128, got"),
        (lambda: ComplexNormal(Z, K).log_prob(np.zeros(3, complex)), ValueError, r"\[\.\.\., 2\]"),
        (lambda: ComplexNormal(Z, K).log_prob(Z * np.nan), ValueError, "value .* NaN"),
        (lambda: ComplexNormal(np.stack([Z] * 3), K).log_prob(np.stack([Z] * 4)), ValueError,
         r"batch axes .* value \(4, 2\), mean \(3, 2\)"),
        (lambda: ComplexNormal(np.stack([Z] * 3), K).kl_divergence(
            ComplexNormal(np.stack([Z] * 4), K)), ValueError, r"batch axes .* \(3, 2\).* \(4, 2\)"),
        (lambda: ComplexNormal(Z, K).sample(2.5), ValueError, "sample_shape must be whole.* 2.5"),
        (lambda: ComplexNormal(Z, K).sample(-1), ValueError, "not negative, got -1"),
        (lambda: ComplexNormal(Z, K).sample([2, -1]), ValueError, r"got \[2, -1\]"),
        (lambda: ComplexNormal(Z, K).sample(seed=0.5), ValueError, "one integer or two, got float"),
        (lambda: ComplexNormal(Z, K).sample(seed=[1, 2, 3]), ValueError, "one integer or two"),
        (lambda: ComplexNormal(Z, K).ellipses(95), ValueError, "probability"),
        (lambda: ComplexNormal(Z, K).kl_divergence(3), TypeError, "got int"),
        (lambda: ComplexNormal(Z, K).kl_divergence(ComplexNormal(Z[:1], K[:1, :1])), ValueError,
         "event shape"),
    ],
)  # fmt: skip
def test_bad_input_is_named(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_as_much_pseudo_covariance_as_a_process_can_have_is_accepted():
    k, _ = reference.random_pair(N, np.random.default_rng(22))
    real = k.real.astype(complex)  # a real signal: C = K
    p = ComplexNormal.from_covariance(np.zeros(N, complex), real, real)
    np.testing.assert_allclose(np.imag(p.sample(5, seed=1)), np.zeros([5, N]), atol=1e-14)
    np.testing.assert_allclose(
        tf.linalg.matmul(p.chol, p.chol, adjoint_b=True), to_composite(real, real), atol=1e-12
    )


def test_a_doubled_point_is_drawn_the_same_twice():
    k = functools.reduce(np.kron, [np.ones([2, 2]), np.array([[2.0, 1j], [-1j, 2.0]])])
    draws = ComplexNormal.from_covariance(np.zeros(4, complex), k).sample(5, seed=1).numpy()
    np.testing.assert_allclose(draws[:, :2], draws[:, 2:], atol=1e-12)
