"""One sample after another by inducing points, against all at once and a reference."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import RBF, Rotation, WidelyLinear
from cgp.online.cell import Sample
from tests.gp.problems import NOISE, NOISE_PSEUDO, Problem, complex_normals
from tests.long_cases import long_except
from tests.reference import kernels
from tests.reference import sparse as reference


def _proper(x1, x2):
    k = kernels.rbf(x1, x2, 1.3, 2.0) * kernels.rotation(x1, x2, 0.2)
    return k, np.zeros_like(k)


def _improper(x1, x2):
    return kernels.widely_linear(*_proper(x1, x2), 0.4 - 0.3j)


# One term each, as what a kernel is changes nothing in a step but the time to trace it.
PROPER = Problem("proper", RBF(1.3, 2.0) * Rotation(0.2), _proper, 0.0)
IMPROPER = Problem("improper", WidelyLinear(PROPER.kernel, 0.4 - 0.3j), _improper, NOISE_PSEUDO)
PROBLEMS = {problem.name: problem for problem in (PROPER, IMPROPER)}
INDUCING = np.linspace(0.0, 10.0, 6)[:, None]
AT = np.array([0.7, 4.4, 11.0])


@pytest.fixture(params=["proper", pytest.param("improper", marks=pytest.mark.long)])
def either(request):
    """The proper process, and the improper one where drivers repeat what a step has shown."""
    return PROBLEMS[request.param]


@pytest.fixture(params=PROBLEMS)
def problem(request):
    return PROBLEMS[request.param]


def samples(count, seed=0):
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(0.0, 10.0, (count, 1)), complex_normals(rng, count)
    z[7] = np.nan
    return x, z, rng.uniform(0.0, 0.4, count)


def sparse(problem, **arguments):
    pseudo, mean = problem.noise_pseudo_variance, cgp.means.Constant(0.3 - 0.1j)
    arguments = {"inducing": INDUCING, "mean": mean, **arguments}
    return cgp.SparseGP(problem.kernel, NOISE, pseudo, **arguments)


def assert_same_predictions(gp, other):
    moments = gp.predict(AT)
    for name, moment in other.predict(AT).items():
        np.testing.assert_allclose(moments[name], moment, atol=1e-11)


@pytest.mark.parametrize(
    ("name", "begin", "count"),
    long_except(
        [("proper", 20, 60), ("proper", 0, 400), ("improper", 20, 400)], ("proper", 20, 60)
    ),
)
@pytest.mark.filterwarnings("ignore:the inducing points leave")
def test_are_samples_one_after_another_those_of_one_batch(name, begin, count):
    problem = PROBLEMS[name]
    x, z, known = samples(count)
    batch, gp = sparse(problem), sparse(problem)
    batch.condition(x, z, noise_variance=known)
    if begin:
        gp.condition(x[:begin], z[:begin], noise_variance=known[:begin])
    for t in range(begin, begin + 15):
        gp.step(x[t], z[t], noise_variance=known[t])
    last = slice(begin + 15, None)
    gp.process(x[last], z[last], noise_variance=known[last], verbose=0)
    expected = batch.state
    scale = np.abs(expected.chol).max()
    np.testing.assert_allclose(gp.state.chol, expected.chol, atol=1e-12 * scale)
    np.testing.assert_allclose(gp.state.vector, expected.vector, rtol=1e-11, atol=1e-10)
    assert_same_predictions(gp, batch)


@pytest.mark.parametrize(("name", "forgetting"), [("proper", 1.0), ("improper", 0.9)])
def test_is_a_block_by_the_compiled_core_like_one_by_tensorflow(name, forgetting):
    problem = PROBLEMS[name]
    x, z, known = samples(12)
    of_groups = {"noise_variance": [NOISE, 0.3 * NOISE], "inducing": INDUCING}
    of_groups |= {"noise_pseudo_variance": problem.noise_pseudo_variance}
    gp = cgp.SparseGP(
        problem.kernel, **of_groups, mean=cgp.means.Constant(0.3 - 0.1j), forgetting=forgetting
    )
    groups = np.arange(12, dtype=np.int32) % 2
    step = gp.process(x, z, noise_variance=known, noise_groups=groups, verbose=0)

    sample = Sample(z, x, noise_variance=known, group=groups).map(lambda a: tf.constant(a[None]))
    state, expected = gp.cell.scan(gp.cell.initial_state(1), sample)
    for after, of_tensorflow in zip(gp.state, state, strict=True):
        np.testing.assert_allclose(after, of_tensorflow[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(step.innovation, expected.innovation[0], atol=1e-12)
    for name in ("predicted", "filtered"):
        for field, a in getattr(step, name)._asdict().items():
            of_tensorflow = getattr(getattr(expected, name), field)[0]
            np.testing.assert_allclose(a, of_tensorflow, atol=1e-12, err_msg=f"{name} {field}")


def test_is_each_prediction_that_of_the_textbook(problem):
    x, z, _ = samples(12)
    gp, pair = sparse(problem, mean=None), problem.pair
    for t in range(12):
        step = gp.step(x[t], z[t])
        noise, pseudo = NOISE * np.ones(t), problem.noise_pseudo_variance * np.ones(t)
        of_points = pair(INDUCING, INDUCING), pair(INDUCING, x[:t])
        at = pair(INDUCING, x[t : t + 1]), pair(x[t : t + 1], x[t : t + 1])
        mean, k, c = reference.posterior(z[:t], *of_points, noise, pseudo, *at)
        np.testing.assert_allclose(step.predicted.mean, mean[0], atol=1e-9)
        np.testing.assert_allclose(step.predicted.variance, k[0, 0].real + NOISE, atol=1e-9)
        expected = c[0, 0] + problem.noise_pseudo_variance
        np.testing.assert_allclose(step.predicted.pseudo_variance, expected, atol=1e-9)
        assert np.isnan(step.innovation) == (t == 7)


def test_does_forgetting_divide_weights_and_restore_the_prior():
    x, z, _ = samples(60)
    x, z = np.delete(x, 7, axis=0), np.delete(z, 7)
    problem = PROPER
    gp = sparse(problem, mean=None, forgetting=0.9)
    gp.process(x, z, verbose=0)
    k_uu, k_xu = (problem.pair(a, INDUCING)[0] for a in (INDUCING, x))
    chol = np.linalg.cholesky(k_uu)
    rows = np.conj(np.linalg.solve(chol, np.conj(k_xu.T)).T) / np.sqrt(NOISE)
    precision, vector = reference.forgotten(rows, z / np.sqrt(NOISE), 0.9)
    state = gp.state
    np.testing.assert_allclose(state.chol @ np.conj(state.chol.T), precision, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(state.vector, vector, rtol=1e-9, atol=1e-9)
    assert state.coordinate == 59 % len(INDUCING)


def test_does_the_prior_last_where_no_samples_come(either):
    problem = either
    gp = sparse(problem, mean=None, forgetting=0.95)
    rng = np.random.default_rng(0)
    gp.process(0.1 * rng.uniform(size=(500, 1)), complex_normals(rng, 500), verbose=0)
    prior = problem.pair(AT[2:, None], AT[2:, None])[0][0, 0].real
    far = gp.predict(AT[2:])["variance"][0]
    size = len(INDUCING) * (1 if problem is PROPER else 2)
    assert 0.9 * prior < far < prior / 0.95**size


def test_leaves_a_missing_sample_the_state_as_it_was():
    gp = sparse(IMPROPER, forgetting=0.9)
    gp.step(1.0, 0.5j)
    before = gp.state
    step = gp.step(2.0, np.nan)
    assert np.isnan(step.innovation)
    assert step.predicted.variance > step.filtered.variance
    for a, b in zip(gp.state, before, strict=True):
        np.testing.assert_array_equal(a, b)


# --- streams, drivers and files -------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the inducing points leave")
def test_do_streams_go_on_from_series_like_each_alone(either, eager_functions):
    x, z, _ = samples(22)
    series = np.stack([z, 1j * z + 0.2])
    gp = sparse(either)
    gp.condition(x[:20], series[:, :20])
    for t in (20, 21):
        gp.step(x[t], series[:, t])
    for i in range(2):
        alone = sparse(either)
        alone.condition(x, series[i])
        for name, moment in alone.predict(AT).items():
            np.testing.assert_allclose(gp.predict(AT)[name][i], moment, atol=1e-11)
    with pytest.raises(ValueError, match="batch axis of 2"):
        gp.step(0.0, 1j)


@pytest.mark.filterwarnings("ignore:the inducing points leave")
def test_does_each_key_of_a_bank_go_on_from_the_data(either):
    x, z, _ = samples(24)
    gp = sparse(either)
    gp.condition(x[:10], z[:10])
    bank = cgp.Bank(gp)
    alone = sparse(either)
    alone.condition(x[:10], z[:10])
    for t in range(10, 14):
        both = bank.update(["a", "b"], np.array([z[t], 2.0 * z[t]]), np.stack([x[t], x[t]]))
        step = alone.step(x[t], z[t])
        np.testing.assert_allclose(both.predicted.mean[0], step.predicted.mean, atol=1e-12)
        np.testing.assert_allclose(both.filtered.variance[1], step.filtered.variance, atol=1e-12)


@pytest.mark.long
def test_is_a_layer_like_the_process():
    x, z, _ = samples(20)
    gp = sparse(IMPROPER)
    outputs = cgp.layers.Recursive(gp)((tf.constant(x[None]), tf.constant(z[None])))
    step = gp.process(x, z, verbose=0)
    np.testing.assert_allclose(outputs["predicted_mean"][0], step.predicted.mean, atol=1e-12)
    np.testing.assert_allclose(outputs["filtered_variance"][0], step.filtered.variance, atol=1e-12)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:the inducing points leave")
def test_does_an_exported_model_go_on(tmp_path, either):
    x, z, _ = samples(20)
    gp = sparse(either)
    gp.condition(x[:12], z[:12])
    gp.step(x[12], z[12])
    gp.export(tmp_path, verbose=False)
    served = tf.saved_model.load(str(tmp_path))
    for t in range(13, 16):
        result = served.step(x=tf.constant(x[t, 0]), z=tf.constant(z[t]))
        step = gp.step(x[t], z[t])
        np.testing.assert_allclose(result["predicted_mean"], step.predicted.mean, atol=1e-12)
    mean = served.predict(x=tf.constant(AT[:, None]))["mean"]
    np.testing.assert_allclose(mean, gp.predict(AT)["mean"], atol=1e-12)


@pytest.mark.filterwarnings("ignore:the inducing points leave")
def test_does_a_saved_model_go_on(tmp_path, either, eager_functions):
    x, z, _ = samples(30)
    gp = sparse(either, inducing=7, forgetting=0.99)
    gp.condition(x[:15], z[:15])
    gp.step(x[15], z[15])
    gp.save(tmp_path / "gp.keras")
    gp.save_weights(tmp_path / "gp.weights.h5")
    fresh = sparse(either, inducing=7, forgetting=0.99)
    fresh.load_weights(tmp_path / "gp.weights.h5")
    for other in (cgp.load_model(tmp_path / "gp.keras"), fresh):
        assert_same_predictions(other, gp)
        copy = sparse(either, inducing=gp.inducing.numpy(), forgetting=0.99)
        copy.set_state(gp.state)
        for t in (16, 17):
            results = [model.step(x[t], z[t]).predicted.mean for model in (other, copy)]
            np.testing.assert_allclose(*results, atol=1e-11)


@pytest.mark.filterwarnings("ignore:the inducing points leave")
@pytest.mark.filterwarnings("ignore:after this fit the inducing points")  # of noise alone
def test_begin_samples_again_with_new_data_and_by_reset(eager_functions):
    problem = PROPER
    x, z, _ = samples(21)
    gp, batch = sparse(problem), sparse(problem)
    batch.condition(x[:20], z[:20])
    gp.condition(x[:20], z[:20])
    gp.step(x[20], z[20])
    gp.reset()
    assert_same_predictions(gp, batch)
    gp.step(x[20], z[20])
    gp.condition(x[:20], z[:20])
    assert_same_predictions(gp, batch)
    gp.condition(x[:20], np.stack([z[:20]] * 3))
    assert gp.step(x[20], np.stack([z[20]] * 3)).innovation.shape == (3,)
    gp.compile("sgd")
    gp.fit(x[:20], z[:20], epochs=1, verbose=0)
    assert np.ndim(gp.step(x[20], z[20]).innovation) == 0


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:the inducing points leave")
def test_is_a_graph_of_predictions_told_of_samples():
    problem = PROPER
    x, z, _ = samples(30)
    gp = sparse(problem)
    gp.condition(x[:20], z[:20])
    function = tf.function(lambda a: gp(a)["mean"])
    at = tf.constant(AT[:, None])
    np.testing.assert_allclose(function(at), gp.predict(AT)["mean"], atol=1e-12)
    gp.step(x[20], z[20])
    with pytest.raises(tf.errors.InvalidArgumentError, match="trace it again"):
        function(at)
    again = tf.function(lambda a: gp(a)["mean"])
    for t in (21, 22):
        np.testing.assert_allclose(again(at), gp.predict(AT)["mean"], atol=1e-12)
        gp.step(x[t], z[t])
    gp.reset()
    np.testing.assert_allclose(again(at), gp.predict(AT)["mean"], atol=1e-12)


# --- refusals ------------------------------------------------------------------------------------


def stepped(**arguments):
    gp = sparse(PROPER, **arguments)
    gp.step(1.0, 0.5j)
    return gp


def changed():
    gp = stepped()
    gp.noise_variance.assign(0.3)
    gp.step(0.0, 1j)


def differentiated():
    gp = stepped()
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(gp.posterior(AT).variance())
    tape.gradient(value, gp.noise_variance.variable.value)


REFUSED = {
    "no points": (
        lambda: cgp.SparseGP(RBF(1.0, 1.0), 0.1).step(0.0, 1j), ValueError,
        r"inducing points are not chosen yet: condition\(x, z\) on some data first"),
    "forgetting of everything": (
        lambda: stepped(forgetting=0.0), ValueError, "forgetting must be above 0.*got 0.0"),
    "forgetting that is complex": (
        lambda: stepped(forgetting=1j), ValueError, "forgetting must be above 0 and at most 1"),
    "other dimensions": (
        lambda: stepped().step([0.0, 1.0], 1j), ValueError, "as many dimensions.* 1, got"),
    "other dimensions of a first sample": (
        lambda: sparse(PROPER).step([0.0, 1.0], 1j), ValueError,
        "as many dimensions as the inducing points, 1, got 2"),
    "other hyperparameters": (changed, ValueError, "the hyperparameters have changed"),
    "gradients after samples": (
        differentiated, NotImplementedError, r"have no gradient by hyperparameters.*fit\(x, z\)"),
    "the likelihood of samples": (
        lambda: stepped().log_marginal_likelihood(), ValueError, "not kept as data: give all"),
    "a real sample": (lambda: stepped().step(0.0, 1.0), TypeError, "complex"),
    "a state of another size": (
        lambda: stepped().set_state(stepped(inducing=INDUCING[:3]).state), ValueError,
        "vector of a state must be"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_is_what_it_cannot_do_refused(case, eager_functions):
    call, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        call()


def test_do_outliers_and_gates_count_less(eager_functions):
    x, _, _ = samples(30)
    gp = cgp.SparseGP(RBF(1.0, 2.0) * Rotation(0.1), 0.05, inducing=INDUCING)
    gp.condition(x, np.exp(0.2j * np.pi * x[:, 0]))
    before = gp.predict(AT)["mean"]
    step = gp.step(5.0, 50.0 + 0j, gate=0.999)
    assert step.outside_gate
    np.testing.assert_allclose(gp.predict(AT)["mean"], before, atol=1e-12)
    gp.step(5.0, 50.0 + 0j, likelihood=cgp.likelihoods.StudentT(4.0))
    assert np.abs(gp.predict(AT)["mean"] - before).max() < 0.2
