"""Process noise that is correlated with the observation noise."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace
from cgp.linalg import NotPositiveDefiniteError
from tests.linalg.problems import random
from tests.reference.kalman import Filtered, adjoint, normal_log_prob
from tests.statespace.problems import random_covariance, random_holes, random_transition

N, M, STEPS = 3, 2, 12


def matrices_of(dtype="complex128", varying=(), batch=(), seed=0):
    """Matrices of a model, Q, R and S from one joint covariance."""
    rng = np.random.default_rng(seed)
    time = (STEPS,) if varying else (1,) if batch else ()
    joint = random_covariance(rng, (*batch, *time), M + N, dtype)
    return {
        "F": random_transition(rng, (*batch, *time), N, dtype),
        "Q": joint[..., M:, M:],
        "H": random(rng, (M, N), dtype),
        "R": joint[..., :M, :M],
        "S": joint[..., M:, :M],
        "initial_mean": random(rng, (N,), dtype),
        "initial_covariance": random_covariance(rng, (), N, dtype),
    }


def series_of(dtype="complex128", shape=(STEPS, M), holes=True, seed=1):
    rng = np.random.default_rng(seed)
    z = random(rng, shape, dtype)
    return np.where(random_holes(rng, shape), np.nan, z) if holes else z


def reference_filter(F, Q, H, R, S, initial_mean, initial_covariance, z):
    """By conditioning state and process noise together on the components observed."""
    F, Q, H, R, S = (np.broadcast_to(a, (len(z), *np.shape(a)[-2:])) for a in (F, Q, H, R, S))
    mean, P, n = initial_mean, initial_covariance, len(initial_mean)
    steps = []
    for t, observation in enumerate(z):
        seen = ~np.isnan(observation)
        innovation = observation - H[t] @ mean
        whole = H[t] @ P @ adjoint(H[t]) + R[t]
        s, e = whole[np.ix_(seen, seen)], innovation[seen]
        cross = np.concatenate([P @ adjoint(H[t]), S[t]])[:, seen]
        joint = np.block([[P, np.zeros((n, n))], [np.zeros((n, n)), Q[t]]])
        gain = cross @ np.linalg.inv(s)
        both = np.concatenate([mean, np.zeros(n)]) + gain @ e
        joint = joint - gain @ adjoint(cross)
        log_likelihood = normal_log_prob(e, np.zeros(len(e)), s)
        steps.append((mean, P, both[:n], joint[:n, :n], innovation, whole, log_likelihood))
        lead = np.concatenate([F[t], np.eye(n)], axis=1)
        mean, P = lead @ both, lead @ joint @ adjoint(lead)
    return Filtered(*map(np.array, zip(*steps, strict=True))), mean, P


def reference_smooth(F, Q, H, R, S, initial_mean, initial_covariance, z):
    """Means, covariances and lag-one covariances from one normal of all states and observations."""
    steps, m, n = len(z), np.shape(H)[-2], len(initial_mean)
    F, Q, H, R, S = (np.broadcast_to(a, (steps, *np.shape(a)[-2:])) for a in (F, Q, H, R, S))
    dtype = np.result_type(F, 0.0)
    size = n + steps * (m + n)  # of the first state and of v[t], w[t] for each t
    noise = np.zeros((size, size), dtype)
    noise[:n, :n] = initial_covariance
    state, states, observations, means = np.eye(n, size, dtype=dtype), [], [], [initial_mean]
    for t in range(steps):
        v = slice(n + t * (m + n), n + t * (m + n) + m)
        w = slice(v.stop, v.stop + n)
        noise[v, v], noise[w, w], noise[w, v], noise[v, w] = R[t], Q[t], S[t], adjoint(S[t])
        observation = H[t] @ state
        observation[:, v] += np.eye(m)
        states.append(state)
        observations.append(observation)
        state = F[t] @ state
        state[:, w] += np.eye(n)
        means.append(F[t] @ means[-1])
    x, y = np.concatenate(states), np.concatenate(observations)[~np.isnan(z).ravel()]
    mean_x = np.concatenate(means[:-1])
    mean_z = np.concatenate([h @ a for h, a in zip(H, means, strict=False)])[~np.isnan(z).ravel()]
    gain = x @ noise @ adjoint(y) @ np.linalg.inv(y @ noise @ adjoint(y))
    mean = mean_x + gain @ (z[~np.isnan(z)] - mean_z)
    covariance = x @ noise @ adjoint(x) - gain @ y @ noise @ adjoint(x)
    blocks = covariance.reshape(steps, n, steps, n).swapaxes(1, 2)
    t = np.arange(steps)
    return mean.reshape(steps, n), blocks[t, t], blocks[t[1:], t[:-1]]


def covariance_of(chol):
    return np.asarray(chol) @ adjoint(np.asarray(chol))


def assert_filtered(result, expected):
    for name in ("predicted", "filtered"):
        np.testing.assert_allclose(
            getattr(result, f"{name}_means"), getattr(expected, f"{name}_means"), atol=1e-12
        )
        np.testing.assert_allclose(
            covariance_of(getattr(result, f"{name}_chols")),
            getattr(expected, f"{name}_covariances"),
            atol=1e-12,
        )
    np.testing.assert_allclose(result.log_likelihoods, expected.log_likelihoods, atol=1e-11)
    np.testing.assert_allclose(
        result.innovation_covariances, expected.innovation_covariances, atol=1e-12
    )


CASES = {
    "complex, holes": ("complex128", False, True),
    "complex, whole": ("complex128", False, False),
    "varying, holes": ("complex128", True, True),
    "real, holes": ("float64", False, True),
}


@pytest.mark.parametrize("case", CASES)
def test_the_filter_conditions_the_process_noise_on_what_is_observed(case):
    dtype, varying, holes = CASES[case]
    matrices, z = matrices_of(dtype, varying), series_of(dtype, holes=holes)
    expected, mean, P = reference_filter(**matrices, z=z)
    model = statespace.LinearGaussian(**matrices)
    result = statespace.filter(model, z)
    assert_filtered(result, expected)
    assert np.isclose(statespace.log_likelihood(model, z), expected.log_likelihoods.sum())
    if not varying:
        ahead = statespace.forecast(model, result, 2)
        np.testing.assert_allclose(ahead.state_means[0], mean, atol=1e-12)
        np.testing.assert_allclose(covariance_of(ahead.state_chols[0]), P, atol=1e-12)
        np.testing.assert_allclose(ahead.state_means[1], matrices["F"] @ mean, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_the_smoother_is_that_of_one_joint_normal(case):
    dtype, varying, holes = CASES[case]
    matrices, z = matrices_of(dtype, varying), series_of(dtype, holes=holes)
    mean, covariance, lag = reference_smooth(**matrices, z=z)
    result = statespace.smooth(statespace.LinearGaussian(**matrices), z)
    np.testing.assert_allclose(result.smoothed_means, mean, atol=1e-11)
    np.testing.assert_allclose(covariance_of(result.smoothed_chols), covariance, atol=1e-11)
    np.testing.assert_allclose(result.lag_one_covariances, lag, atol=1e-11)


@pytest.mark.long
def test_without_the_core_in_a_graph_and_in_parallel_the_filter_is_the_same(without_core):
    matrices, z = matrices_of(), series_of()
    model = statespace.LinearGaussian(**matrices)
    expected = statespace.filter(model, z)
    results = {"parallel": statespace.filter(model, z, parallel=True)}
    results["without the core"] = without_core(statespace.filter, model, z)
    graph = tf.function(lambda z: statespace.filter(statespace.LinearGaussian(**matrices), z))
    results["graph"] = graph(tf.constant(z))
    for result in results.values():
        for name in ("filtered_means", "filtered_chols", "log_likelihoods"):
            np.testing.assert_allclose(getattr(result, name), getattr(expected, name), atol=1e-11)


def test_a_batch_is_its_series_whether_they_share_a_model_and_holes_or_not():
    single, several = matrices_of(), matrices_of(batch=(2,))
    z = np.stack([series_of(seed=1), series_of(seed=2)])
    shared = np.where(np.isnan(z[:1]), np.nan, series_of(shape=z.shape, holes=False))
    for matrices, series in ((single, z), (single, shared), (several, z)):
        result = statespace.filter(statespace.LinearGaussian(**matrices), series)
        for b in range(2):
            of_one = {k: a[b, 0] if np.ndim(a) == 4 else a for k, a in matrices.items()}
            expected, _, _ = reference_filter(**of_one, z=series[b])
            np.testing.assert_allclose(
                result.filtered_means[b], expected.filtered_means, atol=1e-12
            )
            np.testing.assert_allclose(
                result.log_likelihoods[b], expected.log_likelihoods, atol=1e-11
            )


def composite(K, C):
    return 0.5 * np.block([[(K + C).real, (C - K).imag], [(C + K).imag, (K - C).real]])


def improper_noise(seed=4):
    """The composite covariance of v and w, and (pseudo-)covariances by name."""
    joint = random_covariance(np.random.default_rng(seed), (), 2 * (M + N), "float64")
    rr, ri, ir, ii = (
        joint[: M + N, : M + N],
        joint[: M + N, M + N :],
        *np.split(joint[M + N :], 2, 1),
    )
    K, C = rr + ii + 1j * (ir - ri), rr - ii + 1j * (ir + ri)
    v, w = slice(0, M), slice(M, None)
    return {"Q": K[w, w], "R": K[v, v], "S": K[w, v]}, {
        "pseudo_Q": C[w, w],
        "pseudo_R": C[v, v],
        "pseudo_S": C[w, v],
    }


def test_improper_noise_is_filtered_as_real_and_imaginary_parts():
    rng = np.random.default_rng(5)
    proper, pseudo = improper_noise()
    matrices = matrices_of() | proper
    F_conj = 0.1 * random(rng, (N, N), "complex128")
    model = statespace.widely_linear(statespace.LinearGaussian(**matrices), F_conj=F_conj, **pseudo)
    z = series_of()

    def rows(a, conjugated=0.0):
        return np.block(
            [
                [(a + conjugated).real, (conjugated - a).imag],
                [(a + conjugated).imag, (a - conjugated).real],
            ]
        )

    mean = matrices["initial_mean"]
    expected, _, _ = reference_filter(
        F=rows(matrices["F"], F_conj),
        H=rows(matrices["H"]),
        **{k: composite(a, pseudo[f"pseudo_{k}"]) for k, a in proper.items()},
        initial_mean=np.concatenate([mean.real, mean.imag]),
        initial_covariance=composite(matrices["initial_covariance"], 0.0 * matrices["Q"]),
        z=np.concatenate([z.real, np.where(np.isnan(z), np.nan, z.imag)], axis=-1),
    )
    result = statespace.filter(model, z)
    means = expected.filtered_means
    np.testing.assert_allclose(result.filtered_means, means[:, :N] + 1j * means[:, N:], atol=1e-12)
    np.testing.assert_allclose(
        covariance_of(result.filtered_chols), expected.filtered_covariances, atol=1e-12
    )
    np.testing.assert_allclose(result.log_likelihoods, expected.log_likelihoods, atol=1e-11)


@pytest.mark.parametrize("has_core", [True, False])
def test_gradients_by_all_matrices_of_the_noise_are_those_of_the_reference(has_core, without_core):
    matrices, z = matrices_of(), series_of()
    rng = np.random.default_rng(7)
    directions = {k: 1e-2 * random(rng, matrices[k].shape, "complex128") for k in ("S", "F", "H")}
    for name in ("Q", "R"):
        directions[name] = 1e-2 * random_covariance(rng, (), len(matrices[name]), "complex128")

    def gradients_by(tensors):
        with tf.GradientTape() as tape:
            tape.watch(list(tensors.values()))
            value = statespace.log_likelihood(statespace.LinearGaussian(**tensors), z)
        return tape.gradient(value, tensors)

    tensors = {k: tf.constant(a) for k, a in matrices.items()}
    gradients = gradients_by(tensors) if has_core else without_core(gradients_by, tensors)

    def along(name, step):
        changed = matrices | {name: matrices[name] + step * directions[name]}
        return reference_filter(**changed, z=z)[0].log_likelihoods.sum()

    for name, direction in directions.items():
        expected = (along(name, 1e-4) - along(name, -1e-4)) / 2e-4
        slope = np.sum(np.conj(gradients[name]) * direction).real
        assert np.isclose(slope, expected, rtol=1e-6), name


def test_noise_free_components_and_innovations_forms_are_exact():
    """With w = K v the state is known after a while: Q, R and S are one singular covariance."""
    matrices = matrices_of()
    gain = random(np.random.default_rng(3), (N, M), "complex128")
    R = matrices["R"].copy()
    for joint in (R, np.diag([0.5, 0.0]).astype(complex)):
        noise = {"R": joint, "S": gain @ joint, "Q": gain @ joint @ adjoint(gain)}
        noise["Q"] = 0.5 * (noise["Q"] + adjoint(noise["Q"]))
        z = series_of()
        expected, _, _ = reference_filter(**matrices | noise, z=z)
        assert_filtered(
            statespace.filter(statespace.LinearGaussian(**matrices | noise), z), expected
        )


def test_steps_online_are_the_filter_whether_observations_are_whole_or_not():
    for model in (
        statespace.LinearGaussian(**matrices_of()),
        statespace.widely_linear(
            statespace.LinearGaussian(**matrices_of() | improper_noise()[0]), **improper_noise()[1]
        ),
    ):
        z = series_of()
        expected = statespace.filter(model, z)
        kf = cgp.KalmanFilter(model)
        steps = [kf.step(a) for a in z]
        np.testing.assert_allclose(
            [s.filtered.mean for s in steps], expected.filtered_means, atol=1e-12
        )
        ahead = statespace.forecast(model, expected, 2)
        np.testing.assert_allclose(kf.state.mean, ahead.state_means[0], atol=1e-12)
        np.testing.assert_allclose(
            covariance_of(kf.state.chol), covariance_of(ahead.state_chols[0]), atol=1e-12
        )
        kf.reset()
        kf.process(z[:5])
        kf.process(z[5:])
        np.testing.assert_allclose(kf.state.mean, ahead.state_means[0], atol=1e-12)


@pytest.mark.parametrize("has_core", [True, pytest.param(False, marks=pytest.mark.long)])
def test_steps_of_pure_functions_are_the_filter(has_core, without_core):
    model, z = statespace.LinearGaussian(**matrices_of()), series_of()
    state = None
    for a in z:
        arguments = (statespace.step, model, state, a)
        state, _ = arguments[0](*arguments[1:]) if has_core else without_core(*arguments)
    ahead = statespace.forecast(model, statespace.filter(model, z), 1)
    np.testing.assert_allclose(state.mean, ahead.state_means[0], atol=1e-12)
    np.testing.assert_allclose(covariance_of(state.chol), covariance_of(ahead.state_chols[0]))


def test_streams_layers_and_banks_take_it():
    model = statespace.LinearGaussian(**matrices_of())
    z = np.stack([series_of(seed=1), series_of(seed=2)])
    expected = statespace.filter(model, z)
    kf = cgp.KalmanFilter(model)
    np.testing.assert_allclose(kf(z)["filtered_mean"], expected.filtered_means, atol=1e-12)
    steps = [kf.step(z[:, t]).filtered.mean for t in range(STEPS)]
    np.testing.assert_allclose(np.stack(steps, 1), expected.filtered_means, atol=1e-12)
    bank = cgp.Bank(cgp.KalmanFilter(model))
    for t in range(3):
        step = bank.update(["a", "b"], z[:, t])
    np.testing.assert_allclose(step.filtered.mean, expected.filtered_means[:, 2], atol=1e-12)


def test_a_saved_filter_keeps_it(tmp_path):
    kf = cgp.KalmanFilter(statespace.LinearGaussian(**matrices_of()), learn=("F",))
    kf.save(tmp_path / "filter.keras")
    loaded = keras.saving.load_model(tmp_path / "filter.keras")
    np.testing.assert_array_equal(loaded.model.S, kf.model.S)


def test_samples_have_the_covariance_of_both_noises():
    matrices = matrices_of() | {"F": np.zeros((N, N)), "H": np.zeros((M, N))}
    states, observations = statespace.sample(
        statespace.LinearGaussian(**matrices), 2, sample_shape=(40_000,), seed=1
    )
    w, v = states.numpy()[:, 1], observations.numpy()[:, 0]
    scale = np.sqrt(np.outer(np.diag(matrices["Q"]).real, np.diag(matrices["R"]).real) / len(w))
    S = np.mean(w[:, :, None] * v.conj()[:, None], axis=0)
    assert np.all(np.abs(S - matrices["S"]) < 5 * scale)
    later = states.numpy()[:, 0]
    assert np.all(np.abs(np.mean(later[:, :, None] * v.conj()[:, None], axis=0)) < 0.1)


def test_posterior_samples_have_the_smoothed_moments():
    model, z = statespace.LinearGaussian(**matrices_of()), series_of()
    draws = statespace.posterior_sample(model, z, (4000,), seed=1).numpy()
    smoothed = statespace.smooth(model, z)
    error = np.sqrt(smoothed.smoothed_variances / len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - smoothed.smoothed_means) < 5 * error)
    np.testing.assert_allclose(draws.var(axis=0), smoothed.smoothed_variances, rtol=0.12)


def test_the_loss_of_a_layer_has_it():
    matrices, z = matrices_of(), series_of()
    kf = cgp.KalmanFilter(statespace.LinearGaussian(**matrices), learn=("F",))
    kf(z[None])
    expected = reference_filter(**matrices, z=z)[0].log_likelihoods.sum()
    np.testing.assert_allclose(kf.losses[0], -expected / np.sum(~np.isnan(z)), rtol=1e-12)


def test_what_cannot_take_it_says_so():
    matrices, z = matrices_of(), series_of()
    model = statespace.LinearGaussian(**matrices)
    proper = statespace.LinearGaussian(**{k: a for k, a in matrices.items() if k != "S"})
    for call, error, message in (
        (
            lambda: statespace.LinearGaussian(**matrices | {"S": matrices["S"].T}),
            ValueError,
            "S must be",
        ),
        (
            lambda: statespace.LinearGaussian(**matrices | {"S": 9 * matrices["S"]}),
            NotPositiveDefiniteError,
            "S is impossible",
        ),
        (lambda: statespace.InteractingModels([model], [[1.0]]), ValueError, "InteractingModels"),
        (lambda: statespace.particle_filter(model, z, particles=9), ValueError, "particle_filter"),
        (
            lambda: statespace.filter(model, z, likelihood=cgp.likelihoods.OneBit()),
            ValueError,
            "OneBit",
        ),
        (lambda: cgp.KalmanFilter(model, learn=("R",)), ValueError, "learn names Q or R"),
        (lambda: statespace.widely_linear(proper, pseudo_S=matrices["S"]), ValueError, "no S"),
    ):
        with pytest.raises(error, match=message):
            call()


def test_late_observations_and_gates_are_of_the_filter_in_order():
    model = statespace.LinearGaussian(**matrices_of())
    z, kf = series_of(), cgp.KalmanFilter(model, horizon=4)
    for t, a in enumerate(z):
        kf.step(np.where(t == 8, np.nan, a))
    kf.step(z[8], late_by=STEPS - 1 - 8)
    expected = statespace.forecast(model, statespace.filter(model, z), 1).state_means[0]
    np.testing.assert_allclose(kf.state.mean, expected, atol=1e-12)
    smoothed = statespace.smooth(model, z)
    np.testing.assert_allclose(kf.lag(3).mean, smoothed.smoothed_means[-4], atol=1e-11)
    observed = int(np.flatnonzero(~np.isnan(z).any(axis=-1))[-1])
    with pytest.raises(ValueError, match="beside one of its time"):
        kf.step(z[observed], late_by=STEPS - 1 - observed)
    for arguments in ({"H": np.ones((M, N))}, {"Q": np.eye(N)}):
        with pytest.raises(ValueError, match="matrices of its own"):
            kf.step(z[3], **arguments)
        with pytest.raises(ValueError, match="matrices of its own"):
            statespace.step(model, None, z[3], **arguments)


def test_replace_sets_changes_and_drops_it():
    matrices, z = matrices_of(), series_of()
    without = statespace.LinearGaussian(**{k: a for k, a in matrices.items() if k != "S"})
    with_it = without.replace(S=matrices["S"])
    expected, _, _ = reference_filter(**matrices, z=z)
    assert_filtered(statespace.filter(with_it, z), expected)
    dropped = with_it.replace(S=None)
    np.testing.assert_array_equal(
        statespace.filter(dropped, z).filtered_means, statespace.filter(without, z).filtered_means
    )
