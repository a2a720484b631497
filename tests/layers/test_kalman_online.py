"""One sample at a time: what a step says, what it keeps, and what it refuses."""

import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace
from tests.layers.models import expected, filter_of, guess, made, normals, tolerances, two_modes
from tests.reference import kalman
from tests.statespace.problems import assert_factors, problem

CLOSE = {"rtol": 1e-12, "atol": 1e-12}
_MADE = {}

every_kind = pytest.mark.parametrize("kind", ["proper", "improper", "single"])


def borrowed(kind="proper", streams=None, m=2):
    """A filter as good as new, and data; tests share it, since to trace a step takes long."""
    key = kind, streams, m
    if key not in _MADE:
        model, z = made(kind, m=m, series=streams or 1)
        dtype = "float32" if kind == "single" else None
        kf = cgp.KalmanFilter(model, learn=("Q", "R"), dtype=dtype)
        _MADE[key] = kf, z if streams else z[0], [np.array(v) for v in kf.trainable_variables]
    kf, z, start = _MADE[key]
    for variable, value in zip(kf.trainable_variables, start, strict=True):
        variable.assign(value)
    kf.reset()
    return kf, z


def stacked(steps):
    """Steps one by one as one `Step`, time the last axis but one."""
    return cgp.distributions.Step.stack(steps, axis=-2)


def stepped(kf, z, **kwargs):
    return stacked([kf.step(z_t, **kwargs) for z_t in np.moveaxis(z, -2, 0)])


def said(model, z, h=None):
    """What the steps should say."""
    values, _ = expected(model, z)
    h = problem(2, z.shape[-1]).matrices["H"] if h is None else h
    predicted = np.einsum("ij,...j->...i", h, values["predicted_mean"])
    zeros = np.zeros_like(z)
    return {
        "predicted.mean": predicted,
        "predicted.variance": values["innovation_variance"],
        "predicted.pseudo_variance": values.get("innovation_pseudo_variance", zeros),
        "innovation": values["innovation"],
        "filtered.mean": values["filtered_mean"],
        "filtered.variance": values["filtered_variance"],
        "filtered.pseudo_variance": values.get(
            "filtered_pseudo_variance", np.zeros_like(values["filtered_mean"])
        ),
    }


def by_name(step):
    found = {"innovation": step.innovation}
    for part in ("predicted", "filtered"):
        for name, value in getattr(step, part)._asdict().items():
            found[f"{part}.{name}"] = value
    return found


def assert_steps(found, values, **kwargs):
    found, values = (by_name(s) if hasattr(s, "_asdict") else s for s in (found, values))
    assert found.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_allclose(found[name], value, err_msg=name, **kwargs)


# --- what a step says -----------------------------------------------------------------------------


@every_kind
def test_is_a_step_a_row_of_the_filter(kind):
    kf, z = borrowed(kind)
    found = stepped(kf, z)
    assert_steps(found, said(made(kind, series=1)[0], z), **tolerances(z.dtype))
    assert np.isnan(found.innovation).sum() == np.isnan(z).sum() > 0


def test_does_a_step_return_arrays_of_numpy():
    kf, z = borrowed(m=1)
    step = kf.step(z[0])
    assert isinstance(step, cgp.distributions.Step)
    for name, value in by_name(step).items():
        assert type(value) is np.ndarray, name
        real = name.endswith(".variance")
        assert value.dtype == (np.float64 if real else np.complex128), name
        assert value.shape == ((2,) if name.startswith("filtered") else (1,)), name


@every_kind
def test_are_steps_and_a_block_the_same(kind):
    kf, z = borrowed(kind)
    one_by_one, state = stepped(kf, z), kf.state
    kf.reset()
    close = CLOSE if kind != "single" else tolerances(z.dtype)
    assert_steps(kf.process(z), one_by_one, **close)
    for found, value in zip(kf.state, state, strict=True):
        np.testing.assert_allclose(found, value, **close)


def test_are_blocks_of_any_length_one_pass():
    kf, z = borrowed()
    whole = kf.process(z)
    for cuts in ((1, 2, 9), (5,), (13,)):
        kf.reset()
        blocks = [kf.process(block) for block in np.split(z, cuts)]
        for name in by_name(whole):
            pieces = np.concatenate([by_name(b)[name] for b in blocks])
            np.testing.assert_allclose(pieces, by_name(whole)[name], err_msg=name, **CLOSE)
    kf.reset()
    assert_steps(stepped(kf, z[:4]), part(whole, slice(4)), **CLOSE)
    assert_steps(kf.process(z[4:]), part(whole, slice(4, None)), **CLOSE)


def part(step, times):
    return {name: value[times] for name, value in by_name(step).items()}


def test_is_a_sequence_of_numbers_enough_where_one_is_observed():
    kf, z = borrowed(m=1)
    values = said(made(m=1, series=1)[0], z)
    numbers = stacked([kf.step(complex(z_t[0])) for z_t in z])
    assert_steps(numbers, values, rtol=1e-11, atol=1e-11)
    kf.reset()
    assert_steps(kf.process(z[:, 0]), values, rtol=1e-11, atol=1e-11)
    kf.reset()
    step = kf.step(np.nan)
    assert np.isnan(step.innovation).all()
    assert np.isfinite(step.filtered.mean).all()


@pytest.mark.parametrize("kind", ["proper", "improper"])
def test_are_many_streams_each_by_itself(kind):
    kf, z = borrowed(kind, streams=3)
    assert_steps(stepped(kf, z), said(made(kind)[0], z), rtol=1e-11, atol=1e-11)
    mean, chol = kf.state
    assert mean.shape == (3, 2)
    assert chol.shape[0] == 3
    kf.reset()
    assert_steps(kf.process(z), said(made(kind)[0], z), rtol=1e-11, atol=1e-11)


def test_does_missing_say_what_nan_says():
    kf, z = borrowed()
    whole = stepped(kf, z)
    kf.reset()
    missing = np.isnan(z)
    filled = np.where(missing, 5.0 + 1.0j, z)
    marked = stacked([kf.step(z_t, missing=m) for z_t, m in zip(filled, missing, strict=True)])
    assert_steps(marked, whole, rtol=1e-13, atol=1e-13)
    kf.reset()
    block = kf.process(filled, missing=missing)
    assert_steps(block, whole, **CLOSE)
    for found in (marked, whole, block):
        absent = found.innovation[missing]
        assert absent.size
        assert np.isnan(absent.real).all()
        assert np.isnan(absent.imag).all()


def test_do_known_inputs_move_the_state():
    rng = np.random.default_rng(0)
    true = two_modes()
    model = statespace.LinearGaussian(
        true.F, true.Q, true.H, true.R, B=normals(rng, 2, 2), initial_covariance=np.eye(2) + 0j
    )
    z, u = normals(rng, 12, 1), normals(rng, 12, 2)
    found = statespace.filter(model, z, inputs=u)
    kf = cgp.KalmanFilter(model)
    steps = stacked([kf.step(z_t, inputs=u_t) for z_t, u_t in zip(z, u, strict=True)])
    np.testing.assert_allclose(steps.filtered.mean, found.filtered_means, rtol=1e-11, atol=1e-11)
    kf.reset()
    block = kf.process(z, inputs=u)
    np.testing.assert_allclose(block.filtered.mean, found.filtered_means, rtol=1e-11, atol=1e-11)


# --- the state ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["proper", "improper"])
def test_is_the_state_that_of_the_next_sample(kind):
    kf, z = borrowed(kind)
    found = statespace.filter(made(kind, series=1)[0], z)
    stepped(kf, z[:5])
    mean, chol = kf.state
    assert type(mean) is type(chol) is np.ndarray
    np.testing.assert_allclose(mean, found.predicted_means[5], rtol=1e-11, atol=1e-11)
    expected_chol = np.asarray(found.predicted_chols[5])
    np.testing.assert_allclose(
        chol @ kalman.adjoint(chol),
        expected_chol @ kalman.adjoint(expected_chol),
        rtol=1e-11,
        atol=1e-11,
    )
    assert_factors(chol)


def test_does_reset_return_to_the_initial_state():
    kf, z = borrowed()
    first = stepped(kf, z)
    kf.reset()
    np.testing.assert_allclose(kf.state[0], kf.initial_mean, rtol=1e-14)
    assert_steps(stepped(kf, z), first, rtol=0, atol=0)


def test_does_a_call_leave_the_stream_alone():
    kf, z = borrowed()
    stepped(kf, z[:5])
    before = kf.state
    kf(z[None])
    kf.predict(z[None], verbose=0)
    for found, value in zip(kf.state, before, strict=True):
        np.testing.assert_array_equal(found, value)


def saved(kf, folder):
    kf.save(folder / "kf.keras")
    return keras.models.load_model(folder / "kf.keras")


COPIES = {
    "keras file": saved,
    "pickle": lambda kf, folder: pickle.loads(pickle.dumps(kf)),
}


@pytest.mark.parametrize(
    ("kind", "streams", "way"),
    [
        ("proper", None, "keras file"),
        ("improper", None, "keras file"),
        ("proper", 3, "keras file"),
        ("proper", None, "pickle"),
    ],
)
def test_does_a_stream_that_was_saved_go_on_bit_for_bit(kind, streams, way, tmp_path):
    kf, z = borrowed(kind, streams)
    stepped(kf, z[..., :6, :])
    other = COPIES[way](kf, tmp_path)
    assert type(other) is cgp.KalmanFilter
    for found, value in zip(other.state, kf.state, strict=True):
        np.testing.assert_array_equal(found, value)
    assert_steps(stepped(other, z[..., 6:, :]), stepped(kf, z[..., 6:, :]), rtol=0, atol=0)
    with pytest.raises(ValueError):  # what is loaded knows how many streams there are
        other.step(np.zeros((2, 2)) + 0j)


def test_do_weights_hold_the_stream():
    kf, z = borrowed()
    stepped(kf, z[:6])
    weights = kf.get_weights()
    assert all(w.dtype.kind in "fiub" for w in weights)
    rest = stepped(kf, z[6:])
    kf.set_weights(weights)
    assert_steps(stepped(kf, z[6:]), rest, rtol=0, atol=0)


def test_is_the_state_not_trained():
    kf, z = borrowed()
    trainable = len(kf.trainable_variables)
    stepped(kf, z)
    assert len(kf.trainable_variables) == trainable
    assert len(kf.get_weights()) > trainable


# --- never stale ----------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["step", "process"])
def test_is_a_parameter_that_was_assigned_used_by_the_next_step(verb):
    kf, z = borrowed()
    stepped(kf, z[:5])
    mean, chol = kf.state
    before = kf.R
    for variable in kf.trainable_variables:
        variable.assign(0.5 * np.asarray(variable) + 0.3)
    assert np.abs(kf.R - before).max() > 0.01
    # From the state there is, by the new matrices.
    present = kf.model
    onward = statespace.LinearGaussian(
        present.F, present.Q, present.H, present.R, mean, chol @ kalman.adjoint(chol)
    )
    found = stepped(kf, z[5:]) if verb == "step" else kf.process(z[5:])
    assert_steps(found, said(onward, z[5:], kf.H), rtol=1e-9, atol=1e-9)


def test_are_the_learned_values_those_of_the_next_step():
    kf, z = borrowed()
    kf.compile(keras.optimizers.SGD(0.01))
    stepped(kf, z[:5])
    mean, chol = kf.state
    before = kf.R
    kf.fit(z[None], epochs=2, verbose=0)
    assert np.abs(kf.R - before).max() > 1e-5
    for found, value in zip(kf.state, (mean, chol), strict=True):
        np.testing.assert_array_equal(found, value)
    present = kf.model
    onward = statespace.LinearGaussian(
        present.F, present.Q, present.H, present.R, mean, chol @ kalman.adjoint(chol)
    )
    assert_steps(stepped(kf, z[5:]), said(onward, z[5:], kf.H), rtol=1e-9, atol=1e-9)


# --- a thousand steps -----------------------------------------------------------------------------


class Traces:
    """Counts the functions that TensorFlow traces."""

    def __init__(self, monkeypatch):
        from tensorflow.python.framework import func_graph

        self.count, original = 0, func_graph.func_graph_from_py_func

        def counted(*args, **kwargs):
            self.count += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(func_graph, "func_graph_from_py_func", counted)
        for module in _users_of(original):
            monkeypatch.setattr(module, "func_graph_from_py_func", counted)


def _users_of(function):
    import sys

    modules = [m for name, m in sys.modules.items() if name.startswith("tensorflow.python")]
    return [m for m in modules if vars(m).get("func_graph_from_py_func") is function]


def test_is_nothing_traced_in_a_thousand_steps(monkeypatch):
    traces = Traces(monkeypatch)
    tf.function(lambda x: 2.0 * x)(tf.constant(1.0))
    assert traces.count > 0  # it does count
    kf = cgp.KalmanFilter(guess(), learn=("R",))
    rng = np.random.default_rng(0)
    z = normals(rng, 1000)
    kf.step(z[0])
    kf.step(np.nan)
    count = traces.count
    for z_t in z:
        kf.step(z_t)
        if rng.random() < 0.1:
            kf.step(np.nan)
    assert traces.count == count
    # Where nothing has been missing for long, at the solution of the Riccati equation.
    seen = [kf.step(z_t) for z_t in z[:200]][-1]
    settled = kalman.riccati(kf.F, kf.Q, kf.H, kf.R, iterations=500)
    np.testing.assert_allclose(seen.filtered.variance, np.diag(settled).real, rtol=1e-9)
    assert np.abs(seen.filtered.mean).max() < 20.0


# --- what is refused changes nothing --------------------------------------------------------------

BAD_SAMPLES = {
    "too many components": np.zeros(3) + 0j,
    "too few components": np.zeros(1) + 0j,
    "a number": 1j,
    "many streams": np.zeros((4, 2)) + 0j,
    "a real sample": np.zeros(2),
    "infinite": np.array([1.0, np.inf]) + 0j,
    "no numbers": np.array(["a", "b"]),
    "None": None,
}
BAD_BLOCKS = {
    "components": np.zeros((4, 3)) + 0j,
    "no components": np.zeros(4) + 0j,
    "many streams": np.zeros((5, 4, 2)) + 0j,
    "real": np.zeros((4, 2)),
    "infinite at the end": np.array([[1, 1], [1, np.inf]]) + 0j,
    "nothing": np.zeros((0, 2)) + 0j,
}


def assert_refused(kf, call):
    before, weights = kf.state, kf.get_weights()
    with pytest.raises((ValueError, TypeError)):
        call()
    for found, value in zip(kf.state, before, strict=True):
        np.testing.assert_array_equal(found, value)
    for found, value in zip(kf.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize("case", BAD_SAMPLES)
def test_does_a_refused_sample_change_nothing(case):
    kf, z = borrowed()
    stepped(kf, z[:3])
    assert_refused(kf, lambda: kf.step(BAD_SAMPLES[case]))


@pytest.mark.parametrize("case", BAD_BLOCKS)
def test_does_a_refused_block_change_nothing(case):
    kf, z = borrowed()
    stepped(kf, z[:3])
    assert_refused(kf, lambda: kf.process(BAD_BLOCKS[case]))


@pytest.mark.parametrize("missing", [np.array([True] * 3), np.array([1, 0]), np.array([0.0, 1.0])])
def test_is_a_missing_that_does_not_fit_refused(missing):
    kf, z = borrowed()
    stepped(kf, z[:3])
    assert_refused(kf, lambda: kf.step(z[3], missing=missing))


@pytest.mark.parametrize("case", sorted(BAD_SAMPLES.keys() - {"many streams"}))
def test_does_a_refused_first_sample_leave_the_number_of_streams_open(case):
    kf = cgp.KalmanFilter(made()[0])
    with pytest.raises((ValueError, TypeError)):
        kf.step(BAD_SAMPLES[case])
    weights = len(kf.get_weights())
    with pytest.raises((ValueError, TypeError)):
        kf.step(np.zeros((4, 3)) + 0j)
    assert len(kf.get_weights()) == weights


def test_are_inputs_without_a_place_refused():
    kf, z = borrowed()
    assert_refused(kf, lambda: kf.step(z[0], inputs=np.zeros(1) + 0j))


def test_is_a_model_that_varies_refused_online():
    model, z = made()
    varying = statespace.LinearGaussian(
        np.stack([np.asarray(model.F)] * 14),
        model.Q,
        model.H,
        model.R,
        initial_covariance=model.initial_covariance,
    )
    with pytest.raises(ValueError, match="vary"):
        cgp.KalmanFilter(varying).step(z[0, 0])


def test_do_two_filters_of_one_model_keep_their_own_streams():
    kf, z = borrowed()
    other, _ = filter_of()
    whole = stepped(kf, z)
    kf.reset()
    other.process(z[::-1])
    assert_steps(kf.process(z), whole, **CLOSE)


class Wandering(keras.layers.Layer):
    """A layer of a matrix that depends on more than weights."""

    def __init__(self):
        super().__init__(dtype="float64")
        self.raw = tf.Variable(0.5, dtype=tf.float64)

    def call(self):
        return tf.complex(self.raw, 0.0 * self.raw)[None, None]


def test_is_a_matrix_used_that_depends_on_more_than_weights():
    model = statespace.LinearGaussian([[0.5 + 0j]], [[1.0]], [[1.0]], [[0.5]])
    kf = cgp.KalmanFilter(model, learn={"F": Wandering()})
    kf.step([1j])
    before = kf.state
    kf.learned["F"].raw.assign(0.9)
    kf.set_state(*before)
    kf.step([1.0 + 1j])
    expected, _ = statespace.step(model.replace(F=[[0.9 + 0j]]), before, [1.0 + 1j])
    np.testing.assert_allclose(kf.state.mean, expected.mean, rtol=1e-12)
