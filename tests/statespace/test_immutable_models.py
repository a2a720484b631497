"""Models that cannot be edited: assignment is refused, and replace makes another."""

import copy
import pickle

import numpy as np
import pytest

from cgp import statespace
from tests.reference import kalman
from tests.statespace.problems import assert_filtered, problem


@pytest.fixture(scope="module")
def model():
    return statespace.LinearGaussian(**problem(3, 2).matrices)


@pytest.mark.parametrize("name", ["F", "Q", "H", "R", "initial_covariance", "Q_factor", "form"])
def test_a_model_refuses_assignment(model, name):
    with pytest.raises(AttributeError, match=rf"model\.replace\({name}=\.\.\.\)"):
        setattr(model, name, getattr(model, name))
    with pytest.raises(AttributeError, match="cannot be changed"):
        delattr(model, name)


def test_does_replace_filter_with_the_factor_of_the_new_covariance(model):
    found = problem(3, 2)
    again = model.replace(Q=4.0 * found.matrices["Q"])
    fresh = statespace.LinearGaussian(**(found.matrices | {"Q": 4.0 * found.matrices["Q"]}))
    one, other = (statespace.log_likelihood(m, found.z) for m in (again, fresh))
    np.testing.assert_allclose(one, other, rtol=1e-13)
    assert abs(float(one - statespace.log_likelihood(model, found.z))) > 0.1
    np.testing.assert_array_equal(model.Q, found.matrices["Q"])


@pytest.mark.parametrize("names", [["Q"], ["F", "R"], ["H", "B", "Q"]])
def test_may_matrices_that_are_replaced_begin_or_cease_to_vary(names):
    still, varying = problem(3, 2, inputs=2), problem(3, 2, inputs=2, varying="FQHRB", seed=1)
    changes = {name: varying.matrices[name] for name in names}
    began = still.changed(**changes)
    model = still.model().replace(**changes)
    assert model.steps == len(still.z)
    expected = began.expected(kalman.filter)
    found = statespace.filter(model, began.z, inputs=began.inputs)
    assert_filtered(found, expected, began.z)
    back = model.replace(**{name: still.matrices[name] for name in names})
    assert back.steps is None
    found = statespace.filter(back, still.z, inputs=still.inputs)
    assert_filtered(found, still.expected(kalman.filter), still.z)


def test_do_matrices_that_vary_over_other_times_not_fit():
    varying = problem(3, 2, varying="FQ")
    model = varying.model()
    with pytest.raises(ValueError, match=r"as long in all .*'F': 14, 'Q': 14, 'R': 3"):
        model.replace(R=np.stack([varying.matrices["R"]] * 3))
    kept = model.replace(F=varying.matrices["F"][0], Q=varying.matrices["Q"][:5])
    assert kept.steps == 5
    with pytest.raises(ValueError, match="z has 14 steps, but the matrices of the model have 5"):
        statespace.filter(kept, varying.z)
    stationary = statespace.LinearGaussian([[0.5j]], [[3.0]], [[1.0]], [[1.0]])
    with pytest.raises(ValueError, match=r'"stationary" needs F and Q that do not vary.*"diffuse"'):
        stationary.replace(Q=np.full((4, 1, 1), 3.0))
    anywhere = stationary.replace(Q=np.full((4, 1, 1), 3.0), initial_covariance="diffuse")
    assert (anywhere.initial, anywhere.steps) == ("diffuse", 4)


def test_a_stationary_start_stays_stationary():
    model = statespace.LinearGaussian([[0.5j]], [[3.0]], [[1.0]], [[1.0]])
    noisier = model.replace(Q=[[6.0]])
    assert noisier.initial == "stationary"
    np.testing.assert_allclose(noisier.initial_covariance, [[8.0]], rtol=1e-13)
    slower = statespace.widely_linear(model, pseudo_Q=[[1.0]]).replace(F=0.1 * np.eye(2))
    assert slower.initial == "stationary"
    expected = slower.F @ slower.initial_covariance @ slower.F + slower.Q
    np.testing.assert_allclose(slower.initial_covariance, expected, rtol=1e-13)
    given = model.replace(initial_covariance=[[2.0]])
    assert given.initial is None
    assert given.replace(Q=[[6.0]]).initial_covariance.numpy().item() == 2.0


def test_replace_says_what_it_does_not_take(model):
    with pytest.raises(TypeError, match=r"replace knows F, Q.*but was given P"):
        model.replace(P=1.0)
    with pytest.raises(TypeError, match="F must be a matrix, got None"):
        model.replace(F=None)
    with pytest.raises(ValueError, match="Q must be Hermitian"):
        model.replace(Q=np.triu(np.ones((3, 3))) + 1j)
    with pytest.raises(ValueError, match='must be a matrix, "stationary" or "diffuse"'):
        model.replace(initial_covariance=None)
    improper = statespace.widely_linear(model)
    with pytest.raises(TypeError, match=r"real composite, \[2n, 2n\]"):
        improper.replace(F=1j * np.eye(6))


def test_a_real_model_becomes_complex_with_a_complex_matrix():
    model = statespace.LinearGaussian([[0.5]], [[0.75]], [[1.0]], [[1.0]])
    turned = model.replace(F=[[0.5j]])
    assert turned.dtype.name == "complex128"
    np.testing.assert_allclose(turned.initial_covariance, [[1.0]], rtol=1e-13)
    assert model.dtype.name == "float64"


def test_copies_are_models(model):
    z = problem(3, 2).z
    for other in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(
            statespace.log_likelihood(other, z), statespace.log_likelihood(model, z)
        )


def test_a_mode_that_overflows_unseen_is_an_error():
    F, Q, H = np.diag([2.0, 0.5]), np.eye(2), [[0.0, 1.0]]
    model = statespace.LinearGaussian(F, Q, H, [[1.0]], initial_covariance=np.eye(2))
    for verb in (statespace.filter, statespace.log_likelihood):
        with pytest.raises(ValueError, match="overflows at step 512: F has an eigenvalue of mod"):
            verb(model, np.zeros(1100))


@pytest.mark.long
def test_does_xla_take_a_filter_of_several_chunks_within_its_own():
    import tensorflow as tf

    model = statespace.LinearGaussian([[0.9j]], [[0.19]], [[1.0]], [[0.5]])
    z = np.exp(0.1j * np.arange(10_000))
    filtered = tf.function(lambda z: statespace.filter(model, z).filtered_means, jit_compile=True)
    expected = statespace.filter(model, z).filtered_means
    np.testing.assert_allclose(filtered(tf.constant(z)), expected, atol=1e-13)


def test_is_the_cache_of_compiled_programs_bounded_and_cleared(caplog, monkeypatch):
    from cgp.statespace import compiled

    function = compiled.CompiledByShape(lambda x: 2.0 * x)
    assert compiled._MOST_PROGRAMS == 64
    monkeypatch.setattr(compiled, "_MOST_PROGRAMS", 3)
    for n in range(1, 6):
        function(np.ones(n))
    assert function.traces == 3
    statespace.clear_cache()
    assert function.traces == 0
    np.testing.assert_array_equal(function(np.ones(2)), [2.0, 2.0])
    assert "retracing" not in caplog.text


@pytest.mark.long
def test_is_no_warning_of_retracing_logged_of_many_sizes(caplog):
    for n in range(1, 9):  # stationary starts of many sizes used to warn of retracing
        statespace.LinearGaussian(0.5 * np.eye(n), np.eye(n), np.ones((1, n)), [[1.0]])
    assert "retracing" not in caplog.text


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("F", {"F": np.eye(3) / 2, "Q": np.eye(3), "H": np.ones((2, 3)), "B": np.ones((3, 2)),
               "initial_mean": np.zeros(3)}),
        ("H", {"H": np.ones((3, 2)), "R": np.eye(3)}),
        ("B", {"B": np.ones((2, 3))}),
    ],
)  # fmt: skip
def test_is_a_composite_of_odd_size_refused(name, changes):
    proper = statespace.LinearGaussian([[0.5 + 0j]], [[1.0]], [[1.0]], [[1.0]], B=[[1.0]])
    improper = statespace.widely_linear(proper)
    with pytest.raises(ValueError, match=f"{name} of a widely linear .* even in number, got shape"):
        improper.replace(**changes)
    larger = improper.replace(H=np.ones((4, 2)), R=np.eye(4))
    assert larger.observation_size == 2


@pytest.mark.parametrize("name", ["F", "Q"])
def test_says_a_stationary_model_that_is_to_vary_how_it_keeps_its_start(name):
    model = statespace.LinearGaussian([[0.5]], [[3.0]], [[1.0]], [[1.0]])
    varying = {name: np.full((4, 1, 1), 0.25)}
    with pytest.raises(ValueError, match=r"initial_covariance=model\.initial_covariance keeps"):
        model.replace(**varying)
    kept = model.replace(**varying, initial_covariance=model.initial_covariance)
    np.testing.assert_allclose(kept.initial_covariance, [[4.0]])


def test_starts_from_numbers_in_lists():
    model = statespace.LinearGaussian(0.5 * np.eye(2), np.eye(2), [[1.0, 0.0]], [[1.0]])
    start = model.starting_from([1, 0], np.eye(2))
    again = model.replace(initial_mean=[1.0, 0.0], initial_covariance=np.eye(2))
    z = np.array([1.0, -0.5])
    found, expected = (statespace.log_likelihood(m, z) for m in (start, again))
    assert float(found) == pytest.approx(float(expected), rel=1e-14)
