"""Values of a file that no model could have saved are refused when it is loaded, and said where."""

import json
import time
import zipfile

import numpy as np
import pytest
import tensorflow_probability as tfp

import cgp
from tests.long_cases import long_except

X, Z = np.arange(6.0), np.exp(0.3j * np.arange(6.0))


def rewritten(path, change):
    """Changes the config in a file."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(parts["config.json"])
    change(config["config"])
    parts["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def saved(model, tmp_path):
    model.save(tmp_path / "model.keras")
    return tmp_path / "model.keras"


def kalman_filter(streams=2):
    model = cgp.statespace.LinearGaussian([[0.9j]], [[0.1]], [[1.0]], [[1.0]])
    kf = cgp.KalmanFilter(model, learn="Q")
    kf.step(np.full((streams, 1), 1j))
    return kf


def window(policy="sliding"):
    gp = cgp.RecursiveGP(cgp.kernels.RBF(1.0, 2.0), noise_variance=0.1, capacity=4, policy=policy)
    gp.process(X[:3], Z[:3])
    return gp


def long_stream():
    gp = cgp.StateSpaceGP(cgp.kernels.Matern12(1.0, 2.0), noise_variance=0.1)
    gp.process(np.arange(1100.0), np.exp(0.3j * np.arange(1100.0)))
    gp.step(1100.0, 1j)
    return gp


# --- sizes ----------------------------------------------------------------------------------------


SIZES = {
    "streams": (kalman_filter, lambda c: c.update(streams=[50_000_000])),
    "capacity": (window, lambda c: c.update(capacity=5_000)),
    "streams of windows": (window, lambda c: c.update(state=[1_000_000, 1])),
    "dimensions": (window, lambda c: c.update(state=[None, 10_000_000])),
    "order": (
        lambda: cgp.ExactGP(cgp.kernels.Autoregressive(2), noise_variance=0.1),
        lambda c: c["kernel"]["config"].update(order=300_000_000),
    ),
    "ma_order": (
        lambda: cgp.ExactGP(cgp.kernels.ARMA(2, 1), noise_variance=0.1),
        lambda c: c["kernel"]["config"].update(ma_order=300_000_000),
    ),
    "degree": (
        lambda: cgp.ExactGP(cgp.kernels.RBF(1.0, 1.0), 0.1, mean=cgp.means.Polynomial(1)),
        lambda c: c["mean"]["config"].update(degree=300_000_000),
    ),
    "order of a rational": (
        lambda: cgp.ExactGP(cgp.kernels.RBF(1.0, 1.0), 0.1, mean=cgp.means.Rational(2)),
        lambda c: c["mean"]["config"].update(order=5_000),
    ),
}


@pytest.mark.parametrize("case", SIZES)
def test_does_no_config_ask_for_more_than_its_file_holds(case, tmp_path):
    make, change = SIZES[case]
    path = rewritten(saved(make(), tmp_path), change)
    start = time.process_time()
    with pytest.raises(ValueError, match=r"model\.keras' cannot be loaded: .* but the file has"):
        cgp.load_model(path)
    assert time.process_time() - start < 5.0


def test_is_the_memory_the_bound_where_there_is_no_file():
    config = {**kalman_filter().get_config(), "streams": [10**12]}
    with pytest.raises(ValueError, match=r"a filter of 10{12} streams needs .* of memory"):
        cgp.KalmanFilter.from_config(config)


# --- factors and states ---------------------------------------------------------------------------


def weight(model, ending):
    return next(w for w in model.weights if w.name.endswith(ending))


VALUES = {
    "not real": (-1.0 + 2.0j, "diagonal"),
    "not real, positive": (1.0 + 2.0j, "diagonal"),
    "too large": (1e300, "whose squares are not"),
    "NaN": (np.nan, "finite"),
}


@pytest.mark.parametrize("case", long_except(VALUES, "not real, positive", "NaN"))
def test_is_the_factor_of_a_filter_checked(case, tmp_path):
    value, message = VALUES[case]
    kf = kalman_filter()
    chol = weight(kf, "state_chol").numpy()
    chol[..., 0, :] = np.array([value], complex).view(float)
    weight(kf, "state_chol").assign(chol)
    with pytest.raises(ValueError, match=message):
        cgp.load_model(saved(kf, tmp_path))
    kf.save_weights(tmp_path / "kf.weights.h5")
    sound = kalman_filter()
    before = sound.state
    with pytest.raises(ValueError, match=message):
        sound.load_weights(tmp_path / "kf.weights.h5")
    np.testing.assert_array_equal(sound.state.chol, before.chol)
    with pytest.raises(ValueError, match=message):
        sound.set_state(np.zeros((2, 1), complex), np.full((2, 1, 1), value, complex))


@pytest.mark.parametrize(
    ("policy", "case"),
    long_except(
        [(p, c) for p in ("growing", "sliding", "budget") for c in VALUES if c != "too large"],
        ("sliding", "not real, positive"),
        ("budget", "NaN"),
    ),
)
def test_is_the_factor_of_a_window_checked(policy, case, tmp_path):
    value, message = VALUES[case]
    gp = window(policy)
    chol = weight(gp, "window_chol").numpy()
    chol[0, 0, 0] = np.array([value], complex).view(float)
    weight(gp, "window_chol").assign(chol)
    with pytest.raises(ValueError, match=message):
        cgp.load_model(saved(gp, tmp_path))


@pytest.mark.parametrize("case", VALUES)
def test_is_the_state_before_dropped_samples_checked(case, tmp_path):
    value, message = VALUES[case]
    gp = long_stream()
    start = gp._history.start.read()
    arrays = gp._history.saved()
    assert "start_chol" in arrays
    gp._history.saved = lambda: {
        **arrays,
        "start_chol": np.full((*start.chol.shape, 1), [value], complex).view(float),
    }
    with pytest.raises(ValueError, match=message):
        cgp.load_model(saved(gp, tmp_path))


@pytest.mark.parametrize("case", VALUES)
def test_are_the_states_of_a_bank_checked(case):
    value, message = VALUES[case]
    bank = cgp.Bank(kalman_filter())
    bank.update(["a", "b"], np.array([1j, 2j]))
    bank._states.rows[bank._states.cell.stored_names().index("chol")][1] = value
    with pytest.raises(ValueError, match=message):
        cgp.Bank.from_bytes(bank.to_bytes(), bank.estimator)


# --- hyperparameters ------------------------------------------------------------------------------


OWNERS = {
    "kernel": lambda gp: gp.kernel.variance,
    "noise": lambda gp: gp.noise_variance,
    "mean": lambda gp: gp.mean.coefficients,
}


@pytest.mark.parametrize(
    ("kind", "owner", "value"),
    long_except(
        [
            (kind, owner, value)
            for kind in (cgp.ExactGP, cgp.RecursiveGP, cgp.StateSpaceGP)
            for owner in OWNERS
            for value in (np.nan, np.inf)
        ],
        (cgp.ExactGP, "kernel", np.nan),
        (cgp.ExactGP, "mean", np.inf),
        (cgp.RecursiveGP, "noise", np.inf),
        (cgp.StateSpaceGP, "mean", np.nan),
    ),
)
def test_is_a_hyperparameter_that_is_not_finite_refused(kind, owner, value, tmp_path):
    mean = cgp.means.Polynomial(0, [1.0j])
    gp = kind(cgp.kernels.Matern12(1.0, 2.0), 0.1, mean=mean)
    parameter = OWNERS[owner](gp)
    parameter.variable.assign(parameter.variable * 0.0 + value)
    with pytest.raises(ValueError, match=f"the saved {parameter.name} must be .*, got"):
        cgp.load_model(saved(gp, tmp_path))


def test_is_a_learned_matrix_that_is_not_finite_refused_and_the_layer_as_it_was(tmp_path):
    kf, sound = kalman_filter(), kalman_filter()
    kf.learned["Q"].scale.variable.assign([np.nan])
    kf.save_weights(tmp_path / "kf.weights.h5")
    with pytest.raises(ValueError, match="the saved scale must be positive and finite, got"):
        sound.load_weights(tmp_path / "kf.weights.h5")
    np.testing.assert_array_equal(sound.Q, kalman_filter().Q)


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prior",
    [
        {"distribution": "Gamma"},
        {"distribution": "Gamma", "parameters": {}},
        {"distribution": "Gamma", "parameters": None},
        "Gamma",
    ],
)
def test_is_a_prior_that_cannot_be_read_named_with_its_file(prior, tmp_path):
    priors = {"variance": tfp.distributions.Gamma(2.0, 1.0)}
    gp = cgp.ExactGP(cgp.kernels.RBF(1.0, 1.0, priors=priors), noise_variance=0.1)
    path = saved(gp, tmp_path)
    rewritten(path, lambda c: c["kernel"]["config"]["priors"].update(variance=prior))
    with pytest.raises(ValueError, match=r"model\.keras' cannot be loaded: .*a prior must") as e:
        cgp.load_model(path)
    assert "deserialized properly" not in str(e.value)
    assert "get_config" not in str(e.value)


def test_is_a_class_that_is_not_registered_still_named_by_keras(tmp_path):
    class Unknown(cgp.kernels.RBF):
        pass

    gp = cgp.ExactGP(Unknown(1.0, 1.0), noise_variance=0.1)
    with pytest.raises(TypeError, match="Could not locate"):
        cgp.load_model(saved(gp, tmp_path))
