"""A bank of many keys does what an estimator for each key alone does."""

import numpy as np
import pytest

import cgp
from cgp import native, statespace
from cgp.kernels import IntegratedRandomWalk
from cgp.likelihoods import StudentT
from tests.bank.streams import MAKE, Alone, Samples, assert_same, flat, kalman, process, window
from tests.layers.models import normals
from tests.long_cases import long_except

core = pytest.mark.skipif(native.core().ops is None, reason=native.core().reason)


@core
@pytest.mark.parametrize("kind", MAKE)
def test_is_an_update_that_of_each_key_alone_to_the_last_bit(kind):
    """With keys that come again within a call, absent and new ones, and restored in between."""
    make = MAKE[kind]
    bank, alone = cgp.Bank(make()), Alone(make)
    samples = Samples(bank.estimator, ["a", "b", "c", "d", "e"])
    for count in (1, 12, 30, 3):
        given = samples(count)
        assert_same(bank.update(*given), alone.update(*given))
        bank = cgp.Bank.from_bytes(bank.to_bytes(), make())
    for key, own in alone.estimators.items():
        if hasattr(own, "state"):
            for a, b in zip(bank.state(key)[-len(own.state) :], own.state, strict=True):
                assert a.tobytes() == b.tobytes()


@core
@pytest.mark.parametrize(
    "make",
    [
        lambda: cgp.StateSpaceGP(
            IntegratedRandomWalk(0.5, 1.0), 0.1, mean=cgp.means.Polynomial(1, [0.3 + 0.1j, 0.02j])
        ),
        window(mean=cgp.means.Constant(0.3 - 0.1j)),
        window(policy="growing"),
    ],
    ids=["unknown kernel", "mean", "growing"],
)
def test_is_an_update_that_of_each_key_alone_to_rounding(make):
    bank, alone = cgp.Bank(make()), Alone(make)
    samples = Samples(bank.estimator, range(5))
    for _ in range(2):
        keys, z, x = samples(7)
        first = [keys.index(key) for key in dict.fromkeys(keys)]
        z[[i for i in range(7) if i not in first]] = np.nan  # a growing window has little room
        assert_same(bank.update(keys, z, x), alone.update(keys, z, x), 1e-11)


@pytest.mark.parametrize(
    "kind", long_except(["widely linear filter", "process", "windows"], "process")
)
def test_is_an_update_the_same_without_the_core_and_nothing_is_traced_again(kind, without_core):
    make = MAKE[kind]

    def run():
        bank, alone = cgp.Bank(make()), Alone(make)
        samples = Samples(bank.estimator, [1, 2, "a"])
        given = [samples(count) for count in (5, 9, 1)]
        found = bank.update(*given[0])
        programs = traces(bank)
        expected = [alone.update(*one) for one in given]
        assert_same(found, expected[0], 1e-11)
        for one, own in zip(given[1:], expected[1:], strict=True):
            assert_same(bank.update(*one), own, 1e-11)
        assert traces(bank) == programs
        return bank.to_bytes()

    again = cgp.Bank.from_bytes(without_core(run), make())
    assert set(again) == {1, 2, "a"}


def traces(bank):
    """How many programs a bank has traced."""
    return len(bank._states.rounds.graphs)


@pytest.mark.long
@pytest.mark.parametrize("by_xla", [False, True])
def test_may_a_filter_be_nonlinear(by_xla):
    def make():
        model = statespace.NonlinearGaussian(
            lambda x: 0.9 * x + 0.1 * x * x * np.conj(0.3),
            lambda x: x,
            Q=[[0.1]],
            R=[[0.5]],
            initial_mean=[0.3 + 0.1j],
            initial_covariance=[[1.0]],
            jit_compile=by_xla,
        )
        return cgp.KalmanFilter(model)

    bank, alone = cgp.Bank(make()), Alone(make)
    given = Samples(bank.estimator, ["a", "b"])(6)
    assert_same(bank.update(*given), alone.update(*given), 1e-11)


@core
@pytest.mark.parametrize("kind", ["filter", "process", "windows"])
def test_are_more_samples_than_go_together_the_same(kind):
    """Two calls of a half each leave what one call of all leaves."""
    make = MAKE[kind]
    one, two = cgp.Bank(make()), cgp.Bank(make())
    samples = Samples(one.estimator, range(700))
    keys, *arrays = samples(5000 if kind == "process" else 1500)
    keys = np.array(keys)
    found = one.update(keys, *arrays)
    half = len(keys) // 2
    parts = [
        two.update(keys[part], *(a[part] for a in arrays))
        for part in (slice(half), slice(half, None))
    ]
    for a, b, c in zip(*(flat(step) for step in (found, *parts)), strict=True):
        np.testing.assert_array_equal(a, np.concatenate([b, c]))
    assert one.to_bytes() == two.to_bytes()


@core
def test_is_there_memory_for_more_windows_than_at_first():
    bank = cgp.Bank(window()())
    for count in (1, 40, 3):
        bank.update(range(count), np.ones(count, complex), np.zeros(count))
    assert len(bank) == 40


def test_does_time_stand_still_without_a_sample_and_go_on_with_a_missing_one():
    bank = cgp.Bank(kalman("proper")())
    z = normals(np.random.default_rng(0), 2, 2)
    bank.update(["a", "b"], z)
    before = bank.state(["a", "b"])
    bank.update(["b"], np.full((1, 2), np.nan + 0j))
    assert (bank.state("a").mean == before.mean[0]).all()
    F = bank.estimator.F
    np.testing.assert_allclose(bank.state("b").mean, F @ before.mean[1], rtol=1e-12)


# --- hyperparameters that change ------------------------------------------------------------------


def test_do_states_of_a_filter_go_on_with_new_matrices():
    layer = cgp.layers.Covariance([[0.1 + 0j]])
    model = statespace.LinearGaussian([[0.9j]], [[0.1]], [[1.0]], [[0.5]])

    def make():
        return cgp.KalmanFilter(model, learn={"Q": layer})

    bank, alone = cgp.Bank(make()), Alone(make)
    samples = Samples(bank.estimator, "abc")
    for _ in range(2):
        given = samples(4)
        assert_same(bank.update(*given), alone.update(*given), 1e-12)
        for variable in layer.trainable_variables:
            variable.assign(variable + 0.5)
    bank.reset()
    given = samples(1)
    assert_same(bank.update(*given), Alone(make).update(*given), 1e-12)


def test_are_factors_of_windows_computed_again_for_new_hyperparameters():
    kernel = cgp.kernels.Matern32(1.0, 3.0)

    def make():
        return cgp.RecursiveGP(kernel, 0.1, capacity=3)

    bank, alone = cgp.Bank(make()), Alone(make)
    samples = Samples(bank.estimator, "abc")
    given = samples(8)
    assert_same(bank.update(*given), alone.update(*given), 1e-12)
    written = bank.to_bytes()
    kernel.lengthscale.assign(1.3)
    given = samples(8)
    expected = alone.update(*given)
    assert_same(bank.update(*given), expected, 1e-11)
    again = cgp.Bank.from_bytes(written, bank.estimator)
    assert_same(again.update(*given), expected, 1e-11)


def test_are_states_of_a_process_refused_at_other_hyperparameters_until_a_reset():
    kernel = cgp.kernels.Matern12(1.0, 3.0)
    gp = cgp.StateSpaceGP(kernel, 0.1)
    bank = cgp.Bank(gp)
    bank.update(["a"], [1j], [0.0])
    written = bank.to_bytes()
    kernel.lengthscale.assign(1.3)
    for call in (
        lambda: bank.update(["a"], [1j], [1.0]),
        lambda: cgp.Bank.from_bytes(written, gp),
    ):
        with pytest.raises(ValueError, match=r"hyperparameters have changed.*reset the bank"):
            call()
    assert bank.to_bytes() == written
    bank.reset()
    found = bank.update(["a", "a"], [1j, 0.5j], [1.0, 2.0])
    alone = Alone(lambda: cgp.StateSpaceGP(kernel, 0.1))
    assert_same(found, alone.update(["a", "a"], [1j, 0.5j], [1.0, 2.0]), 1e-12)


def test_are_states_of_a_process_refused_at_another_mean():
    """They are of samples less the mean function."""
    gp = cgp.StateSpaceGP(cgp.kernels.Matern12(1.0, 3.0), 0.1, mean=cgp.means.Constant(1j))
    bank = cgp.Bank(gp)
    bank.update(["a"], [1j], [0.0])
    gp.mean.value.assign(2j)
    with pytest.raises(ValueError, match="hyperparameters have changed"):
        bank.update(["a"], [1j], [1.0])


# --- what is refused ------------------------------------------------------------------------------


def held(kind, **arguments):
    """A bank with some keys, and a sample of one of them."""
    bank = cgp.Bank(MAKE[kind](), **arguments)
    bank.update(*Samples(bank.estimator, ["a", "b"])(6))
    z = np.full((3, *bank.estimator.cell.sample_spec().z.shape), 0.3j)
    return bank, z, [] if "filter" in kind else [np.array([90.0, 91.0, 92.0])]


@pytest.mark.parametrize(
    ("kind", "z", "x", "message"),
    [
        ("filter", np.inf, None, "infinite"),
        ("process", np.inf, 91.0, "infinite"),
        ("process", 1e200, 91.0, "z is too large"),
        ("process", 1.0, np.nan, "x must be finite"),
        ("process", 1.0, 1e200, "x must be finite"),
        ("windows", 1.0, np.inf, "x must be finite"),
    ],
)
def test_does_an_error_name_the_key_and_change_nothing(kind, z, x, message):
    """Not even the keys that would have made room."""
    bank, values, places = held(kind, capacity=3)
    values[1] = z
    if places:
        places[0][1] = x
    before = bank.to_bytes(), list(bank), bank.evicted
    with pytest.raises(ValueError, match=rf"{message}.*sample 1, of key 'new'; no state"):
        bank.update(["a", "new", "newer"], values, *places)
    assert (bank.to_bytes(), list(bank), bank.evicted) == before


def test_does_an_error_name_the_key_whose_first_sample_a_diffuse_state_is_not_wide_beside():
    model = statespace.LinearGaussian(
        [[0.9j]], [[0.1]], [[1.0]], [[1.0]], initial_covariance="diffuse"
    )
    bank = cgp.Bank(cgp.KalmanFilter(model))
    bank.update(["a"], [1j])
    before = bank.to_bytes()
    with pytest.raises(ValueError, match=r"diffuse.*sample 2, of key 'c'; no state has changed"):
        bank.update(["b", "a", "c", "c"], [1j, 1j, 1e12j, 1j])
    assert bank.to_bytes() == before


def test_may_time_not_go_back_of_any_key():
    bank = cgp.Bank(process()())
    bank.update(["a", "b"], [1j, 1j], [5.0, 1.0])
    before = bank.to_bytes()
    for x in ([2.0, 4.0, 6.0], [2.0, 7.0, 6.0]):
        with pytest.raises(ValueError, match=r"go back: got . after ..*of key 'a'"):
            bank.update(["b", "a", "a"], [1j, 1j, 1j], x)
        assert bank.to_bytes() == before


def test_does_a_growing_window_say_which_key_is_full():
    bank = cgp.Bank(window(policy="growing")())
    bank.update(["a"] * 3, [1j, 2j, np.nan], [0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match=r"capacity is 3.*sample 2, of key 'a'"):
        bank.update(["b", "a", "a", "a"], [1j] * 4, [0.0, 3.0, 4.0, 5.0])
    assert list(bank) == ["a"]


@core
def test_is_a_state_that_fails_found_among_those_beside_it():
    bank = cgp.Bank(kalman("proper")())
    keys = list(range(20))
    bank.update(keys, np.ones((20, 2), complex))
    mean, chol = bank.state(13)
    bank.set_state(13, (mean, chol * 6e153))
    before = bank.to_bytes()
    with pytest.raises(ValueError, match=r"not be finite.*sample 13, of key 13"):
        bank.update(keys, np.ones((20, 2), complex))
    assert bank.to_bytes() == before


@pytest.mark.parametrize("likelihood", [None, StudentT(4.0)])
def test_is_the_first_of_several_samples_named_that_are_refused(likelihood):
    bank, count = cgp.Bank(process()()), 600  # more than go through a step together
    bank.update(np.arange(count), np.full(count, 1j), np.ones(count))
    stored, x = bank.to_bytes(), np.full(count, 2.0)
    x[[3, 590]] = 0.5
    with pytest.raises(ValueError, match="sample 3, of key 596"):
        bank.update(np.arange(count)[::-1], np.full(count, 1j), x, likelihood=likelihood)
    assert bank.to_bytes() == stored


@pytest.mark.parametrize(
    ("kind", "keys", "z", "x", "error", "message"),
    [
        ("filter", "ab", np.ones((2, 2)) + 0j, None, TypeError, "keys must be a list"),
        ("filter", [["a"], "b"], np.ones((2, 2)) + 0j, None, TypeError, "hashable"),
        ("filter", np.ones((2, 2), int), np.ones((2, 2)) + 0j, None, ValueError, "make each row"),
        ("filter", np.ones(2), np.ones((2, 2)) + 0j, None, TypeError, "float64"),
        ("filter", ["a", "b"], np.ones(2) + 0j, None, ValueError, r"\(2, 2\) for 2 keys"),
        ("filter", ["a", "b"], np.ones((2, 2)), None, TypeError, "complex"),
        (
            "filter",
            ["a", "b"],
            np.ones((2, 2)) + 0j,
            [0.0, 1.0],
            ValueError,
            "x is given, which samples of this estimator do not have",
        ),
        ("process", ["a", "b"], np.ones(2) + 0j, None, ValueError, "x is missing"),
        ("process", ["a", "b"], np.ones((2, 1)) + 0j, [0.0, 1.0], ValueError, "for 2 keys"),
        ("process", ["a", "b"], np.ones(2) + 0j, [0.0], ValueError, r"x must be \[2\]"),
        ("process", ["a", "b"], np.ones(2) + 0j, np.ones((2, 2)), ValueError, "1 dimensions"),
        ("process", ["a", "b"], np.ones(2) + 0j, [1j, 2j], TypeError, "x"),
        ("windows", ["a", "b"], np.ones(2) + 0j, np.ones((2, 2)), ValueError, "1 dimensions"),
    ],
)
def test_are_samples_refused(kind, keys, z, x, error, message):
    bank, *_ = held(kind)
    before = bank.to_bytes()
    with pytest.raises(error, match=message):
        bank.update(keys, z, x)
    assert bank.to_bytes() == before


def test_is_a_place_refused_that_would_be_rounded():
    gp = cgp.StateSpaceGP(cgp.kernels.Matern12(1.0, 1.0, dtype="float32"), 0.1)
    bank, z = cgp.Bank(gp), np.ones(2, np.complex64)
    with pytest.raises(ValueError, match=r"rounded in float32.*of key 'b'"):
        bank.update(["a", "b"], z, np.array([1.0, 2.0 + 1e-9]))
    bank.update(["a", "b"], z, np.array([1, 2]))


def test_are_estimators_refused_that_have_no_states_for_each_key():
    model = statespace.LinearGaussian([[0.9]], [[0.1]], [[1.0]], [[0.5]])
    varying = statespace.LinearGaussian([[0.9]], [[0.1]], [[[1.0]], [[2.0]]], [[0.5]])
    kernel = cgp.kernels.Matern12(1.0, 1.0)
    for make, error, message in (
        (lambda: cgp.KalmanFilter(varying), ValueError, "each time"),
        (
            lambda: cgp.StateSpaceGP(kernel, 0.1, likelihood=cgp.likelihoods.StudentT()),
            ValueError,
            "normal noise",
        ),
        (lambda: model, TypeError, "LinearGaussian"),
    ):
        with pytest.raises(error, match=message):
            cgp.Bank(make())
    with pytest.raises(ValueError, match="capacity"):
        cgp.Bank(cgp.KalmanFilter(model), capacity=0)
