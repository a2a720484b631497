"""Processes of several outputs: dense = state space = one sample at a time, with gaps."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.gp.starts import candidates, start_left_out
from cgp.kernels import (
    RBF,
    Coregionalized,
    Matern12,
    Matern32,
    Matern52,
    Outputs,
    Rotation,
    WidelyLinear,
)
from cgp.kernels.data_scales import DataScales
from tests.gp.differences import assert_are_differences
from tests.long_cases import long_except
from tests.reference import gaussian_process as dense

P, GAINS = 3, np.array([1.0, 0.5j, -0.3 + 0.2j])
RNG = np.random.default_rng(0)
T = np.sort(RNG.uniform(0.0, 10.0, 14))
T[5] = T[4]  # two samples at one place
Z = RNG.normal(size=(14, P)) + 1j * RNG.normal(size=(14, P))
Z[RNG.uniform(size=Z.shape) < 0.2] = np.nan
Z[8] = np.nan
NEW = np.array([2.0, -1.0, 12.0, T[3]])
NOISES = [0.1, 0.2, 0.3]
KINDS = [cgp.ExactGP, cgp.StateSpaceGP]
KEEP = pytest.mark.parametrize("kind", KINDS)


def proper():
    common = Coregionalized(Matern32(2.0, 1.5) * Rotation(0.3), P, mixing=GAINS)
    return common + Outputs([Matern12(0.5, 1.0), Matern12(0.2, 3.0), Matern52(0.1, 2.0)])


def improper():
    source = WidelyLinear(Matern32(2.0, 1.5) * Rotation(0.3), 0.4j)
    return Coregionalized(source, P, mixing=GAINS) + Outputs([Matern12(0.1, 1.0)] * P)


def one_source():
    """Nothing but gains times an improper source, which a state space collapses to one series."""
    source = WidelyLinear(Matern32(2.0, 1.5) * Rotation(0.3), 0.4j)
    return Coregionalized(source, P, mixing=GAINS)


def two_sources():
    mixing = [[1.0, 0.0], [0.3j, 0.5], [0.2, 0.1j]]
    return 0.5 * Coregionalized(Matern12(1.0, 2.0), P, rank=2, mixing=mixing) * Rotation(0.1)


KERNELS = {
    "proper": proper,
    "improper": improper,
    "one source": one_source,
    "two sources": two_sources,
}


def points(t):
    return np.stack(np.meshgrid(t, np.arange(float(P)), indexing="ij"), -1).reshape(-1, 2)


def reference(kernel, noises=NOISES):
    """Covariances of data and new points, as `tests.reference.gaussian_process` takes them."""
    x, new = points(T), points(NEW)
    noise = np.diag(np.broadcast_to(noises, Z.shape).ravel())
    of = lambda a, b: (kernel.covariance(a, b).numpy(), kernel.pseudo_covariance(a, b).numpy())  # noqa: E731
    (k, c), cross, prior = of(x, x), of(new, x), of(new, new)
    return (k + noise, c), (*cross, *prior)


def close(actual, expected, tolerance=1e-11):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@KEEP
@pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS)
def test_is_a_process_of_outputs_the_dense_one(kind, make):
    kernel = make()
    gp = kind(kernel, noise_variance=NOISES)
    covariances, at_new = reference(kernel)
    close(gp.log_marginal_likelihood(T, Z), dense.log_marginal_likelihood(Z.ravel(), *covariances))
    order = np.random.default_rng(1).permutation(len(T))
    gp.condition(T[order], Z[order])
    mean, k, c = dense.posterior(Z.ravel(), *covariances, *at_new)
    posterior = gp.posterior(NEW)
    close(posterior.mean(), mean.reshape(4, P))
    close(posterior.covariance(), k)
    close(posterior.pseudo_covariance(), c)
    close(posterior.variance(), np.diag(k).real.reshape(4, P))
    close(posterior.pseudo_variance(), np.diag(c).reshape(4, P))
    blocks = k.reshape(4, P, 4, P)
    close(posterior.output_covariance(), [blocks[i, :, i] for i in range(4)])
    observed = gp.predict(NEW, observed=True)["variance"]
    close(observed, np.diag(k).real.reshape(4, P) + NOISES)


@pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS)
def test_are_both_processes_one(make):
    kernel = make()
    exact, linear = (kind(kernel, noise_variance=0.2) for kind in (cgp.ExactGP, cgp.StateSpaceGP))
    gradients = []
    for gp in (exact, linear):
        with tf.GradientTape() as tape:
            value = gp.log_marginal_likelihood(T, Z)
        gradients.append(tape.gradient(value, gp.trainable_variables))
    for a, b in zip(*gradients, strict=True):
        close(a, b, 1e-9)

    def value_at():
        return linear.log_marginal_likelihood(T, Z)

    variables = linear.trainable_variables
    assert_are_differences(value_at, variables, gradients[1], 1e-5, rtol=1e-7)


@KEEP
def test_are_series_known_noise_and_derivatives_those_of_each_output(kind):
    kernel = Coregionalized(Matern52(1.0, 2.0), P, mixing=GAINS) + Outputs([Matern32(0.1, 1.0)] * P)
    gp = kind(kernel, noise_variance=0.1)
    one = float(gp.log_marginal_likelihood(T, Z))
    both = gp.log_marginal_likelihood(T, np.stack([Z, 1j * Z]))
    close(both, [one, one])
    places = np.stack([T, T + 0.1])[..., None]
    close(gp.log_marginal_likelihood(places, np.stack([Z, Z])), [one, one])
    known = np.random.default_rng(3).uniform(0.1, 0.5, Z.shape)
    covariances, _ = reference(kernel, 0.1 + known)
    expected = dense.log_marginal_likelihood(Z.ravel(), *covariances)
    close(gp.log_marginal_likelihood(T, Z, noise_variance=known), expected)
    words = np.where(np.arange(P) == 1, "derivative", "value")  # of one output
    other = {cgp.ExactGP: cgp.StateSpaceGP, cgp.StateSpaceGP: cgp.ExactGP}[kind]
    twin = other(kernel, noise_variance=0.1)
    close(*(g.log_marginal_likelihood(T, Z, observed=words) for g in (gp, twin)))


def test_are_forecasts_those_of_the_samples_before_them():
    gp, batch = cgp.StateSpaceGP(proper(), NOISES), cgp.StateSpaceGP(proper(), NOISES)
    gp.condition(T, Z)
    forecasts = gp.forecasts([0.0, 0.7], observed=True)
    assert forecasts["mean"].shape == (14, 2, P)
    for i in (0, 7, 13):
        # Of two samples at one place the second comes later.
        batch.condition(T[: i + 1], Z[: i + 1])
        expected = batch.predict(T[i] + np.array([0.0, 0.7]), observed=True)
        for name, a in expected.items():
            close(forecasts[name][i], a)


@KEEP
def test_is_a_term_predicted_alone(kind):
    kernel = proper()
    gp = kind(kernel, noise_variance=NOISES)
    gp.condition(T, Z)
    common, own = (gp.posterior(NEW, part=part).mean() for part in kernel.parts)
    close(common + own, gp.posterior(NEW).mean())
    close(common, common.numpy()[:, :1] * GAINS)


@KEEP
def test_are_draws_and_densities_of_outputs(kind):
    gp = kind(improper(), noise_variance=NOISES)
    assert gp.sample(NEW, 2, seed=1).shape == (2, 4, P)  # before any data
    gp.condition(T, Z)
    draws = gp.sample(NEW, 4000, seed=1)
    assert draws.shape == (4000, 4, P)
    posterior = gp.posterior(NEW)
    deviation = (draws - posterior.mean().numpy()).reshape(4000, -1)
    covariance = deviation.T @ deviation.conj() / 4000
    largest = np.max(np.abs(posterior.covariance()))
    np.testing.assert_allclose(covariance, posterior.covariance(), atol=0.1 * largest)
    assert (posterior.event_shape, posterior.batch_shape) == ([4, P], [])
    value = posterior.sample(seed=3)
    flat = cgp.ComplexNormal.from_covariance(
        tf.reshape(posterior.mean(), [-1]), posterior.covariance(), posterior.pseudo_covariance()
    )
    close(posterior.log_prob(value), flat.log_prob(tf.reshape(value, [-1])), 1e-6)


@pytest.mark.parametrize("make", [proper, improper], ids=["proper", "improper"])
@pytest.mark.parametrize("noise", [NOISES, 0.2], ids=["of each", "of all"])
def test_are_steps_those_of_the_batch(make, noise):
    kernel = make()
    stream, block, batch = (cgp.StateSpaceGP(kernel, noise, horizon=3) for _ in range(3))
    steps = [stream.step(t, z) for t, z in zip(T, Z, strict=True)]
    for i in (1, 6, 13):
        batch.condition(T[:i], Z[:i])
        before = batch.posterior(T[i : i + 1], observed=True)
        close(steps[i].predicted.mean, before.mean()[0])
        close(steps[i].predicted.variance, before.variance()[0])
        close(steps[i].innovation_covariance, before.covariance())
        close(steps[i].innovation_pseudo_covariance, before.pseudo_covariance())
        batch.condition(T[: i + 1], Z[: i + 1])
        close(steps[i].filtered.mean, batch.predict(T[i : i + 1])["mean"][0])
        close(steps[i].filtered.variance, batch.predict(T[i : i + 1])["variance"][0])
    at_once = block.process(T, Z)
    close(at_once.predicted.mean, [step.predicted.mean for step in steps])
    close(at_once.nis, [step.nis for step in steps])
    assert at_once.joint.covariance.shape == (14, P, P)
    for gp in (stream, block):
        close(gp.predict(NEW)["mean"], batch.predict(NEW)["mean"])
        close(gp.log_marginal_likelihood(), batch.log_marginal_likelihood())
    close(stream.lag(2).mean, batch.predict(T[-3:-2])["mean"][0])


def test_do_streams_late_samples_gates_and_banks_take_outputs():
    kernel = proper()
    both = np.stack([Z, 1j * Z + 0.1])
    stream, batch = cgp.StateSpaceGP(kernel, 0.2), cgp.StateSpaceGP(kernel, 0.2)
    for i, t in enumerate(T):
        step = stream.step(t, both[:, i])
    batch.condition(T, both)
    close(step.filtered.mean, batch.predict(T[-1:])["mean"][:, 0])
    late = cgp.StateSpaceGP(kernel, 0.2, horizon=4)
    for i in [*range(11), 12, 11, 13]:
        late.step(T[i], Z[i])
    batch.condition(T, Z)
    close(late.predict(NEW)["mean"], batch.predict(NEW)["mean"])
    gated = cgp.StateSpaceGP(kernel, 0.2)
    gated.condition(T, Z)
    step = gated.step(T[-1] + 0.1, np.array([50.0, 0.0, 0.0]) + 0j, gate=0.999)
    assert step.outside_gate
    bank = cgp.Bank(cgp.StateSpaceGP(kernel, 0.2))
    result = bank.update(["a"] * 14, x=T, z=Z)
    close(result.predicted.mean, cgp.StateSpaceGP(kernel, 0.2).process(T, Z).predicted.mean)
    layer = cgp.layers.Recursive(cgp.StateSpaceGP(kernel, 0.2))
    close(layer((T[None, :, None], Z[None]))["predicted_mean"][0], result.predicted.mean)


@KEEP
def test_do_gains_start_from_the_data_and_are_learned(kind, tmp_path):
    """Gains far from one, two of noise variances left out, and a file."""
    truth = Coregionalized(Matern32(2.0, 3.0) * Rotation(0.3), P, mixing=[1.0, 0.5j, -1.6 + 1.2j])
    t = np.sort(np.random.default_rng(5).uniform(0.0, 30.0, 60))
    z = cgp.StateSpaceGP(truth, [0.01, 0.02, 0.04]).sample(t, seed=2, observed=True)[0]
    z[np.random.default_rng(6).uniform(size=z.shape) < 0.2] = np.nan
    gp = kind(Coregionalized(Matern32() * Rotation(), P), noise_variance=[None] * P)
    with pytest.raises(ValueError, match="left out, and not learned yet"):
        gp.predict(t)
    gp.fit(t, z, verbose=0)
    mixing, errors = gp.parameters()["coregionalized.mixing"], gp.parameter_errors(verbose=0)
    error = errors["coregionalized.mixing"]
    assert error[0] == 0
    assert np.all((error[1:].real > 0) & (error[1:].real < 0.1))
    deviation = mixing - truth.mixing.numpy()
    assert np.all(np.abs(deviation.real[1:]) < 4 * error[1:].real)
    assert np.all(np.abs(deviation.imag[1:]) < 4 * error[1:].imag)
    gp.save(tmp_path / "outputs.keras")
    again = keras.models.load_model(tmp_path / "outputs.keras")
    np.testing.assert_array_equal(again.predict(t)["mean"], gp.predict(t)["mean"])


@pytest.mark.parametrize("kind", long_except(KINDS, cgp.ExactGP))
def test_does_a_saved_model_predict_outputs(kind, tmp_path):
    gp = kind(proper(), noise_variance=NOISES)
    gp.condition(T, Z)
    gp.export(tmp_path / "outputs", verbose=0)
    served = tf.saved_model.load(tmp_path / "outputs")
    close(served.predict(NEW[:, None])["mean"], gp.predict(NEW)["mean"])
    if kind is cgp.StateSpaceGP:
        z = np.array([0.3, np.nan, 1j])
        step = gp.step(12.0, z)
        close(served.step(12.0, z)["filtered_mean"], step.filtered.mean)
        close(served.predict([[13.0]])["mean"], gp.predict([13.0])["mean"])


@pytest.mark.parametrize("kind", long_except(KINDS, cgp.ExactGP))
def test_what_takes_the_posterior_of_outputs(kind):
    import matplotlib

    matplotlib.use("agg")
    gp = kind(proper(), noise_variance=NOISES)
    gp.condition(T, Z)
    traced = tf.function(lambda x: gp.posterior(x).mean())(tf.constant(NEW))
    close(traced, gp.predict(NEW)["mean"])
    close(gp((T, Z))["mean"], gp.predict(T)["mean"])
    cgp.plotting.fit_health(gp)
    frame = cgp.to_frame(gp.predict(NEW), NEW, dims=("time", "component"))
    assert "mean_2" in frame
    for call, message in (
        (lambda: cgp.plotting.spectrum(gp), "a spectrum is of one signal"),
        (
            lambda: cgp.compare({"a": gp, "b": cgp.StateSpaceGP(Matern12())}, T, Z),
            "'a' has 3 and 'b' has one signal: a process of each output by itself is Outputs",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("noise", [NOISES, 0.1], ids=["of each", "of all"])
@pytest.mark.parametrize("make", [proper, improper], ids=["proper", "improper"])
def test_does_a_long_stream_go_on_from_a_file(make, noise, tmp_path):
    """Its first samples have been dropped, and known noise comes with each value."""
    gp = cgp.StateSpaceGP(make(), noise)
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.uniform(0.1, 0.5, 1300))
    z = rng.normal(size=(1300, P)) + 1j * rng.normal(size=(1300, P))
    known = rng.uniform(0.1, 1.0, (1300, P))
    gp.process(x[:1290], z[:1290], noise_variance=known[:1290])
    for i in range(1290, 1300):
        step = gp.step(x[i], z[i], noise_variance=known[i])
    again = cgp.StateSpaceGP(make(), noise)
    again.process(x, z, noise_variance=known)
    close(step.filtered.mean, again.predict(x[-1:])["mean"][0])
    with pytest.raises(ValueError, match="samples that are still held"):
        gp.predict(x[:1])
    gp.save(tmp_path / "stream.keras")
    loaded = keras.models.load_model(tmp_path / "stream.keras")
    at = x[-1] + np.array([-0.05, 0.5])
    close(loaded.predict(at)["mean"], gp.predict(at)["mean"])
    close(loaded.step(x[-1] + 1.0, z[0]).nis, gp.step(x[-1] + 1.0, z[0]).nis)


@KEEP
def test_have_values_groups_of_noise_of_another_number(kind):
    kernel, groups = improper(), np.array([0, 1, 0])
    known = np.random.default_rng(3).uniform(0.1, 0.5, Z.shape)
    covariances, _ = reference(kernel, np.array([0.1, 0.4])[groups] + known)
    gp = kind(kernel, noise_variance=[0.1, 0.4])
    value = gp.log_marginal_likelihood(T, Z, noise_variance=known, noise_groups=groups)
    close(value, dense.log_marginal_likelihood(Z.ravel(), *covariances))
    if kind is cgp.StateSpaceGP:
        for t, z, v in zip(T, Z, known, strict=True):
            step = gp.step(t, z, noise_variance=v, noise_groups=groups)
        batch = cgp.StateSpaceGP(kernel, noise_variance=[0.1, 0.4])
        batch.condition(T, Z, noise_variance=known, noise_groups=groups)
        close(step.filtered.mean, batch.predict(T[-1:])["mean"][0])
    left_out = kind(Coregionalized(Matern12(), P), noise_variance=[None] * 5)
    left_out.fit(T, Z, noise_groups=[0, 1, 4], epochs=1, verbose=0)
    own = kind(kernel, noise_variance=NOISES)
    with pytest.raises(ValueError, match=r"a value for each of 3 outputs, .* leave noise_groups"):
        own.log_marginal_likelihood(T, Z, noise_groups=[2, 0, 1])
    if kind is cgp.StateSpaceGP:
        with pytest.raises(ValueError, match="leave noise_groups out"):
            own.step(0.0, Z[0], noise_groups=[2, 0, 1])


def stations(together):
    """A source received at 120 places, by all outputs at each or by one after another."""
    truth = Coregionalized(Matern32(2.0, 6.0) * Rotation(0.05), P, mixing=[1.0, 0.5j, -1.6 + 1.2j])
    t = np.arange(120.0) * 0.4
    z = cgp.StateSpaceGP(truth, 0.02).sample(t, seed=3, observed=True)[0]
    if not together:
        z[np.arange(120)[:, None] % P != np.arange(P)] = np.nan
    return truth, t, z


@pytest.mark.parametrize("together", [True, False], ids=["together", "one after another"])
def test_are_gains_learned_of_outputs_that_are_never_seen_together(together):
    truth, t, z = stations(together)
    gp = cgp.StateSpaceGP(Coregionalized(Matern32() * Rotation(), P))
    gp.fit(t, z, verbose=0)
    np.testing.assert_allclose(gp.kernel.mixing.numpy(), truth.mixing.numpy(), atol=0.25)
    likely = cgp.StateSpaceGP(truth, 0.02).log_marginal_likelihood(t, z)
    assert gp.log_marginal_likelihood() > likely


def test_are_restarts_from_other_gains():
    _, t, z = stations(together=True)
    gp = cgp.StateSpaceGP(Coregionalized(Matern32() * Rotation(), P))
    data = gp.data_of(t, z)
    scales = start_left_out(gp, data)
    drawn = candidates(gp, scales, 2, seed=0)
    place = [v.path for v in gp.trainable_variables].index(gp.kernel.mixing.variable.path)
    start = sum(v.shape.num_elements() for v in gp.trainable_variables[:place])
    gains = np.array([point[start : start + 4] for point in drawn])
    assert np.all(np.std(gains, axis=0) > 0.05)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("reference", [0, 2])
def test_do_gains_start_from_those_of_sources_without_noise(rank, reference):
    """White sources, so that the moments over outputs are the mixing matrix times its adjoint."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(4, rank)) + 1j * rng.normal(size=(4, rank))
    sources = rng.normal(size=(rank, 20000)) + 1j * rng.normal(size=(rank, 20000))
    sources -= sources.mean(axis=1, keepdims=True)
    scales = DataScales(np.arange(20000.0)[:, None], mixing @ sources, outputs=4)
    start = scales.mixing(0, rank, reference)
    moments = (mixing @ sources) @ (mixing @ sources).conj().T
    expected = moments / moments[reference, reference].real
    actual = start @ start.conj().T
    np.testing.assert_allclose(actual, expected, atol=1e-6 * np.max(np.abs(expected)))
    assert start[reference, 0] == pytest.approx(1.0)
    Coregionalized(RBF(), 4, rank=rank, reference=reference, mixing=start)  # of its form


def test_is_an_output_without_targets_refused_by_a_fit_alone():
    z = Z.copy()
    z[:, 1] = np.nan
    gp = cgp.StateSpaceGP(proper(), NOISES)
    gp.condition(T, z)  # what the others tell of it
    with pytest.raises(ValueError, match="every target of output 1 is missing"):
        gp.fit(T, z)


def test_are_columns_of_tables_the_same():
    import pandas as pd

    z = pd.DataFrame(Z, columns=list("abc"))
    gp = cgp.StateSpaceGP(proper(), NOISES)
    known = pd.DataFrame(np.full(Z.shape, 0.1), columns=list("abc"))
    gp.condition(T, z, noise_variance=known)
    with pytest.raises(ValueError, match="labels differ, such as"):
        gp.condition(T, z, noise_variance=known[list("cba")])
    frame = cgp.to_frame(gp.posterior(NEW[:3]))
    assert len(frame) == 3
    assert "mean_2" in frame
    assert len(cgp.to_frame(cgp.StateSpaceGP(proper(), NOISES).process(T, Z))) == 14


REFUSED = {
    "transposed": (
        lambda gp: gp.condition(T, Z.T),
        r"z must be \[..., N, 3\], a column for each output .* got shape \(3, 14\).*z.T",
    ),
    "one column": (lambda gp: gp.condition(T, Z[:, 0]), r"got shape \(14,\)"),
    "two columns": (lambda gp: gp.condition(T, Z[:, :2]), r"got shape \(14, 2\)"),
    "fewer rows": (lambda gp: gp.condition(T, Z[1:]), "a row for each of the 14 points of x"),
    "noise of samples": (
        lambda gp: gp.condition(T, Z, noise_variance=np.ones(14)),
        r"noise_variance must broadcast against z, \[..., 14, 3\], got shape \(14,\)",
    ),
    "places of two coordinates": (
        lambda gp: (gp.condition(T, Z), gp.predict(np.zeros((3, 2)))),
        r"x must have (as many dimensions as the data, 1, got shape \(3, 2\)|one dimension, got 2)",
    ),
    "exposures": (lambda gp: gp.condition(T, Z, widths=0.1), "widths are of one signal"),
}


@KEEP
@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_which_data_are_refused(kind, call, message):
    with pytest.raises(ValueError, match=message):
        call(kind(proper(), noise_variance=NOISES))


@pytest.mark.parametrize("noise", [0.2, NOISES], ids=["common", "by output"])
def test_are_outputs_of_one_kernel_as_many_series(noise):
    known = np.random.default_rng(1).uniform(0.1, 0.5, Z.shape)
    kernel = Outputs([Matern32(2.0, 1.5) * Rotation(0.3)] * P)
    gps = [kind(kernel, noise) for kind in (cgp.StateSpaceGP, cgp.ExactGP)]
    for arguments in ({}, {"noise_variance": known}):
        value, exact = (gp.log_marginal_likelihood(T, Z, **arguments) for gp in gps)
        close(value, exact)
    gradients = []
    for gp in gps:
        data = gp.data_of(T, np.stack([Z, 2 * Z]), noise=gp.noise_arguments())
        with tf.GradientTape() as tape:
            value = gp.data_log_likelihood(data)
        assert value.shape == (2,)
        gradients.append(tape.gradient(value, [v.value for v in gp.trainable_variables]))
    for by_series, exact in zip(*gradients, strict=True):
        close(by_series, exact, 1e-9)


def test_does_a_fit_not_depend_on_the_units_of_outputs():
    x, units = 0.2 * np.arange(40.0), np.array([1e-6, 1.0, 1e3])
    z = cgp.ExactGP(one_source(), NOISES).sample(x, seed=3, observed=True)[0]
    likelihoods, gains = [], []
    for scale in (np.ones(P), units):
        gp = cgp.StateSpaceGP(Coregionalized(Matern32() * Rotation(), P), [None] * P)
        gp.fit(x, z * scale, verbose=0)
        jacobian = 2 * len(x) * np.sum(np.log(scale))
        likelihoods.append(float(gp.log_marginal_likelihood()) + jacobian)
        gains.append(gp.parameters()["coregionalized.mixing"][:, 0] / scale * scale[0])
    np.testing.assert_allclose(likelihoods[1], likelihoods[0], atol=1e-4)
    close(gains[1], gains[0], 1e-3)


def test_are_outputs_that_a_fit_cannot_describe_told():
    x = 0.2 * np.arange(30.0)
    z = cgp.ExactGP(proper(), NOISES).sample(x, seed=3, observed=True)[0]
    kernel = Coregionalized(Matern32(), P)
    with pytest.raises(ValueError, match="every target of output 1 is zero: leave its column out"):
        cgp.ExactGP(kernel).fit(x, z * [1, 0, 1], verbose=0)
    with pytest.warns(RuntimeWarning, match=r"output 2 is 7.* as large as output 1.*\[None\] \* 3"):
        cgp.ExactGP(Coregionalized(Matern32(), P)).fit(x, z * [1, 1, 1e3], epochs=2, verbose=0)
    seldom = z.copy()
    seldom[3:, 2] = np.nan
    with pytest.warns(RuntimeWarning, match="output 2 has 3 values, .* regions are too narrow"):
        cgp.ExactGP(Coregionalized(Matern32(), P)).fit(x, seldom, epochs=2, verbose=0)
    with pytest.warns(
        RuntimeWarning, match=r"of output 1, is 99.*each output its mean.*a list of 3"
    ):
        cgp.ExactGP(Coregionalized(Matern32(), P)).fit(
            x, z + np.array([0, 100, 0]), epochs=1, verbose=0
        )


def means():
    of_first, of_second = cgp.means.Constant(1 + 2j), cgp.means.Polynomial(1, [0.5, 0.3j])
    return cgp.means.Outputs([of_first, of_second, None])


def at_places(t):
    """The values of `means`."""
    return np.stack([np.full(len(t), 1 + 2j), 0.5 + 0.3j * t, 0.0 * t], axis=-1)


@pytest.mark.parametrize("name", ["proper", pytest.param("one source", marks=pytest.mark.long)])
def test_has_each_output_a_mean_of_its_own(name):
    without = cgp.StateSpaceGP(KERNELS[name](), NOISES)
    without.condition(T, Z - at_places(T))
    for kind in (cgp.ExactGP, cgp.StateSpaceGP):
        gp = kind(KERNELS[name](), NOISES, mean=means())
        gp.condition(T, Z)
        close(gp.predict(NEW)["mean"], without.predict(NEW)["mean"] + at_places(NEW))
        close(gp.log_marginal_likelihood(), without.log_marginal_likelihood())
        draws, expected = gp.sample([2.0], 400, seed=1)[:, 0], gp.predict([2.0])
        gap = np.abs(draws.mean(axis=0) - expected["mean"][0])
        assert np.all(gap < 4 * np.sqrt(expected["variance"][0] / 400))
    horizons = [0.5, 1.0]
    ahead = np.stack([at_places(T + h) for h in horizons], axis=1)
    close(gp.forecasts(horizons)["mean"], without.forecasts(horizons)["mean"] + ahead)
    gp.reset()
    without.reset()
    steps, expected = gp.process(T, Z), without.process(T, Z - at_places(T))
    close(steps.predicted.mean, expected.predicted.mean + at_places(T))
    close(steps.filtered.mean, expected.filtered.mean + at_places(T))
    late = np.array([12.5])
    step, expected = gp.step(12.5, Z[0]), without.step(12.5, (Z[:1] - at_places(late))[0])
    close(step.innovation, expected.innovation)
    close(step.filtered.mean, expected.filtered.mean + at_places(late)[0])


@KEEP
def test_do_means_of_outputs_start_from_the_data_and_are_learned(kind, tmp_path):
    x = 0.2 * np.arange(30.0)
    z = cgp.ExactGP(proper(), NOISES).sample(x, seed=2, observed=True)[0]
    z += 10 * at_places(x)[:, [0, 1, 0]]
    shared = cgp.means.Constant()
    mean = cgp.means.Outputs([shared, cgp.means.Polynomial(1), shared])
    gp = kind(Coregionalized(Matern32(), P), mean=mean)
    start_left_out(gp, gp.data_of(x, z))
    starts = gp.parameters()
    close(starts["mean.value"], z[:, [0, 2]].mean())
    close(starts["mean.coefficients"], np.polynomial.polynomial.polyfit(x, z[:, 1], 1), 1e-9)
    gp.fit(x, z, epochs=3, verbose=0)
    assert abs(gp.parameters()["mean.value"] - starts["mean.value"]) > 1e-3
    gp.save(tmp_path / "means.keras")
    loaded = keras.models.load_model(tmp_path / "means.keras")
    close(loaded.predict(NEW)["mean"], gp.predict(NEW)["mean"])
    assert loaded.mean.means[0] is loaded.mean.means[2]


def test_is_the_noise_learned_that_trends_leave():
    """A steep marginalised trend does not hold up the noise by its weak prior."""
    x = 0.2 * np.arange(40.0)
    z = cgp.ExactGP(one_source(), NOISES).sample(x, seed=3, observed=True)[0]
    z[:, 0] += 1e5 * x
    trend = cgp.means.Polynomial(1, marginalized=True, center=4.0, scale=4.0)
    gp = cgp.ExactGP(
        Coregionalized(Matern32() * Rotation(), P), mean=cgp.means.Outputs([trend, None, None])
    )
    gp.fit(x, z, verbose=0)
    assert 0.1 < gp.parameters()["noise_variance"] < 0.4
    with pytest.raises(TypeError, match="must be complex, or real as of real_response=True"):
        cgp.means.Outputs([cgp.means.Rational(2, real_response=True), trend])


def test_is_no_noise_told_to_vanish_where_units_of_outputs_differ():
    x = np.arange(60.0)
    process = cgp.StateSpaceGP(Matern32(1.0, 4.0), 0.01)
    z = process.sample(x, 2, seed=1, observed=True).T * np.array([1.0, 1e-6])
    gp = cgp.StateSpaceGP(Outputs([Matern32(), Matern32()]), [None] * 2)
    gp.fit(x, z, verbose=0)  # a warning is an error


def test_is_a_trend_of_each_output_marginalised():
    trends = [cgp.means.Polynomial(1, marginalized=True, center=5.0, scale=5.0), None, None]
    gp = cgp.ExactGP(proper(), NOISES, mean=cgp.means.Outputs(trends))
    gp.condition(T, Z)
    kernel, x, new, keep = proper(), points(T), points(NEW), ~np.isnan(Z.ravel())

    def flat(a, b):
        """A flat prior, nearly, of the coefficients of output 0."""
        t, u = a[:, 0] / 5 - 1, b[:, 0] / 5 - 1
        return 1e8 * np.outer(a[:, 1] == 0, b[:, 1] == 0) * (1 + np.outer(t, u))

    k = kernel.covariance(x).numpy() + np.diag(np.tile(NOISES, len(T))) + flat(x, x)
    cross = kernel.covariance(new, x).numpy() + flat(new, x)
    mean = cross[:, keep] @ np.linalg.solve(k[np.ix_(keep, keep)], Z.ravel()[keep])
    close(gp.predict(NEW)["mean"], mean.reshape(-1, P), 1e-5)


REFUSED_MODELS = {
    "a mean of one signal": (
        lambda: cgp.ExactGP(proper(), 0.1, mean=cgp.means.Polynomial(0)),
        r"mean is of one signal, and the kernel of 3 outputs: .* cgp.means.Outputs\(\[...\]\)",
    ),
    "a mean of outputs": (
        lambda: cgp.ExactGP(Matern12(1.0, 1.0), 0.1, mean=means()),
        "mean is of 3 outputs, and the kernel of one signal",
    ),
    "Whittle": (
        lambda: cgp.StateSpaceGP(proper(), 0.1, likelihood="whittle"),
        'outputs need likelihood="exact"',
    ),
    "one number a step": (
        lambda: cgp.StateSpaceGP(proper(), 0.1).step(0.0, 1.0 + 0j),
        r"z must be \[3\], a value of each output",
    ),
    "fewer rows than places": (
        lambda: cgp.StateSpaceGP(proper(), 0.1).process(T[1:], Z),
        r"z must be \[T, 3\], a row for each of the 13 places of x",
    ),
    "a block the other way round": (
        lambda: cgp.StateSpaceGP(proper(), 0.1).process(T, Z.T),
        r"z must be \[T, 3\], .* got shape \(3, 14\).*z.T",
    ),
    "an outlier": (
        lambda: cgp.StateSpaceGP(proper(), 0.1).step(
            0.0, Z[0], likelihood=cgp.likelihoods.StudentT(4.0)
        ),
        "likelihood is of one signal",
    ),
    "groups that are not given": (
        lambda: cgp.ExactGP(proper(), [0.1, 0.2]).condition(T, Z),
        "the model has a noise variance for each of 2 groups",
    ),
}


@pytest.mark.parametrize(("call", "message"), REFUSED_MODELS.values(), ids=REFUSED_MODELS)
def test_which_models_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_is_an_exact_process_of_any_kernel():
    """A kernel without a state space, in two dimensions."""
    kernel = Coregionalized(RBF(1.0, 1.0), P, mixing=GAINS)
    x = np.random.default_rng(0).normal(size=(14, 2))
    gp = cgp.ExactGP(kernel, 0.1)
    gp.condition(x, Z)
    new = np.array([[0.1, 0.2]])
    at = lambda a: np.concatenate([np.repeat(a, P, 0), np.tile(np.arange(P), len(a))[:, None]], 1)  # noqa: E731
    k = kernel.covariance(at(x)).numpy() + 0.1 * np.eye(14 * P)
    cross, prior = kernel.covariance(at(new), at(x)).numpy(), kernel.covariance(at(new)).numpy()
    mean, _, _ = dense.posterior(Z.ravel(), k, 0 * k, cross, 0 * cross, prior, 0 * prior)
    close(gp.predict(new)["mean"], mean.reshape(1, P))
