"""States of a bank, set and read, and as bytes."""

import copy
import json
import pickle
import struct
import zlib

import numpy as np
import pytest

import cgp
from tests.bank.streams import MAKE, Samples, assert_same, kalman

KINDS = ["filter", "widely linear filter", "process", "improper process", "windows"]


def filled(kind, keys=("a", "b", "c")):
    bank = cgp.Bank(MAKE[kind]())
    samples = Samples(bank.estimator, keys)
    bank.update(*samples(12))
    return bank, samples


@pytest.mark.parametrize("kind", KINDS)
def test_does_a_bank_go_on_from_states_that_were_set(kind):
    """To the last bit, but for the factors of windows, which are computed again."""
    bank, samples = filled(kind)
    other = cgp.Bank(bank.estimator)
    other.set_state(list(bank), bank.state())
    one = cgp.Bank(bank.estimator)
    for key in bank:
        one.set_state(key, bank.state(key))
    tolerance = 1e-12 if kind == "windows" else None
    assert other.to_bytes() == one.to_bytes()
    assert tolerance or bank.to_bytes() == one.to_bytes()
    given = samples(5)
    expected = bank.update(*given)
    for again in (other, one):
        found = again.update(*given)
        assert_same(found, [expected.map(lambda a, i=i: a[i]) for i in range(5)], tolerance)


def test_has_a_state_the_form_of_the_estimator():
    bank, _ = filled("widely linear filter")
    own = bank.estimator.state
    one, several, every = bank.state("a"), bank.state(["a", "b"]), bank.state()
    assert type(one) is type(own)
    assert [a.shape for a in one] == [a.shape for a in own]
    assert [a.dtype for a in one] == [a.dtype for a in own]
    assert [a.shape[0] for a in several] == [2, 2]
    assert (several.mean[0] == one.mean).all()
    assert (every.mean[list(bank).index("b")] == several.mean[1]).all()
    before = bank.to_bytes()
    one.mean[:] = 7.0
    assert bank.to_bytes() == before


def test_is_one_state_set_for_several_keys():
    bank = cgp.Bank(kalman("proper")())
    mean, chol = np.array([1.0 + 1j, 2.0]), np.eye(2) + 0j
    bank.set_state([1, 2], (mean, chol))
    assert list(bank) == [1, 2]
    assert (bank.state([1, 2]).mean == mean).all()
    assert (bank.state(2).chol == chol).all()


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        ((np.ones(2),), TypeError, "tuple"),
        ((np.ones(3), np.eye(2)), ValueError, r"mean of a state must be \(2,\)"),
        ((np.ones(2), np.ones((2, 2))), ValueError, "lower triangular"),
        ((np.ones(2), -np.eye(2)), ValueError, "not negative"),
        ((np.ones(2) * np.nan, np.eye(2)), ValueError, "finite"),
    ],
)
def test_are_states_refused(state, error, message):
    bank, _ = filled("filter")
    before = bank.to_bytes()
    with pytest.raises(error, match=message):
        bank.set_state("a", state)
    with pytest.raises(ValueError, match="twice"):
        bank.set_state(["d", "d"], (np.ones(2), np.eye(2)))
    assert bank.to_bytes() == before


def test_is_a_state_of_another_kind_refused():
    real = cgp.Bank(kalman("real")())
    with pytest.raises(TypeError, match="float64"):
        real.set_state("a", (np.ones(2) * 1j, np.eye(2)))
    windows, _ = filled("windows")
    size, *rest = windows.state("a")
    with pytest.raises(ValueError, match="0 to 3 points"):
        windows.set_state("a", (size + 9, *rest))


def windows_of(kernel, count=6, **arguments):
    """A bank of windows of three points, of one key, and samples of it."""
    bank = cgp.Bank(cgp.RecursiveGP(kernel, 0.1, **{"capacity": 3, **arguments}))
    samples = Samples(bank.estimator, ["a"])
    bank.update(*samples(count))
    return bank, samples


@pytest.mark.parametrize("forgetting", [1.0, 0.9, 1e-7])
@pytest.mark.parametrize("pseudo_variance", [0.0, 0.05])
def test_is_the_factor_of_a_window_that_is_set_that_of_its_points(forgetting, pseudo_variance):
    """Whatever factor is given; of points that are forgotten too."""
    given = {"forgetting": forgetting, "noise_pseudo_variance": pseudo_variance}
    bank, samples = windows_of(cgp.kernels.Matern32(1.0, 2.0), **given)
    own, state = cgp.Bank(bank.estimator), bank.state("a")
    shorter, _ = windows_of(cgp.kernels.Matern32(1.0, 0.5), **given)
    own.set_state("a", state._replace(chol=np.eye(len(state.chol))))
    shorter.set_state(["a", "b"], state)
    bank.estimator.kernel.lengthscale.assign(0.5)
    expected = bank.state("a")
    np.testing.assert_allclose(own.state("a").chol, expected.chol, rtol=1e-9)
    np.testing.assert_allclose(shorter.state("b").chol, expected.chol, rtol=1e-9)
    given = samples(3)
    expected = bank.update(*given)
    assert_same(shorter.update(*given), [expected.map(lambda a, i=i: a[i]) for i in range(3)], 1e-9)


def test_is_a_state_that_is_read_that_of_the_present_hyperparameters():
    bank, _ = windows_of(cgp.kernels.Matern32(1.0, 2.0))
    bank.estimator.noise_variance.assign(5.0)
    found = bank.state("a").chol
    bank.update(["a"], [np.nan + 0j], [90.0])
    assert (bank.state("a").chol == found).all()
    assert found[0, 0].real ** 2 == pytest.approx(6.0)
    gp = cgp.StateSpaceGP(cgp.kernels.Matern12(1.0, 3.0), 0.1)
    bank = cgp.Bank(gp)
    bank.update(["a"], [1j], [0.0])
    gp.kernel.lengthscale.assign(1.0)
    with pytest.raises(ValueError, match="hyperparameters have changed"):
        bank.state("a")


def test_may_hyperparameters_change_before_the_first_sample():
    bank = cgp.Bank(cgp.RecursiveGP(cgp.kernels.Matern32(1.0, 2.0), 0.1, capacity=3))
    bank.estimator.noise_variance.assign(5.0)
    assert bank.state().size.shape == (0,)
    assert bank.update(["a"], [1j], [0.0]).predicted.variance == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"age": [-1.0, 0.0, 0.0]}, "age of a state must not be negative"),
        ({"age": [np.inf, 0.0, 0.0]}, "finite"),
        ({"age": [0.0, 0.0, 1.0]}, "zero in rows after"),
        ({"x": [[0.0], [1.0], [2.0]]}, "zero in rows after"),
        ({"z": [1j, 1j, 1j]}, "zero in rows after"),
        ({"z": [1j, 1e200j, 0j]}, "too large"),
        ({"x": [[0.0], [1e200], [0.0]]}, "x must be finite"),
    ],
)
def test_are_windows_refused_that_no_samples_leave(changes, message):
    bank = cgp.Bank(cgp.RecursiveGP(cgp.kernels.Matern32(1.0, 2.0), 0.1, capacity=3))
    bank.update(["a", "a"], [1j, 2j], [0.0, 1.0])
    before = bank.to_bytes()
    with pytest.raises(ValueError, match=message):
        bank.set_state("a", bank.state("a")._replace(**changes))
    assert bank.to_bytes() == before


def test_are_states_refused_that_would_be_rounded():
    """As samples are; Python's own numbers have no precision."""
    gp = cgp.StateSpaceGP(cgp.kernels.Matern12(1.0, 1.0, dtype="float32"), 0.1)
    bank = cgp.Bank(gp)
    mean, chol = np.ones(1, np.complex64), np.ones((1, 1), np.complex64)
    with pytest.raises(ValueError, match="x is rounded in float32"):
        bank.set_state("a", (np.array(0.1), mean, chol))
    with pytest.raises(TypeError, match="mean of a state is complex128, but the model is complex"):
        bank.set_state("a", (np.array(0.5), mean.astype(complex), chol))
    with pytest.raises(TypeError, match="chol of a state is float64"):
        bank.set_state("a", (np.array(0.5), mean, np.ones((1, 1))))
    bank.set_state("a", (np.array(0.5), [0.1], [[1.0]]))
    assert bank.state("a").mean == np.float32(0.1)


def test_is_a_state_refused_where_the_kernel_refuses_its_place():
    bank = cgp.Bank(cgp.StateSpaceGP(cgp.kernels.RandomWalk(1.0, start=0.0), 0.1))
    with pytest.raises(ValueError, match="start"):
        bank.set_state("a", (-1.0, np.zeros(1), np.eye(1)))


# --- bytes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        [1, -(2**63), 2**63 - 1],
        ["a", "\ud800ä", ""],
        [(1, ("b", b"\x00\xff")), b"", 2**80, True, "1"],
    ],
    ids=["integers", "strings", "mixed"],
)
def test_are_keys_written_as_they_are(keys):
    bank = cgp.Bank(kalman("proper")())
    bank.update(keys, np.ones((len(keys), 2), complex))
    again = cgp.Bank.from_bytes(bank.to_bytes(), bank.estimator)
    assert list(again) == keys
    assert list(map(type, again)) == list(map(type, keys))
    assert again.to_bytes() == bank.to_bytes()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))])
def test_goes_a_copy_on_by_itself(copied):
    bank = cgp.Bank(kalman("proper")(), capacity=3)
    samples = Samples(bank.estimator, "abc")
    bank.update(*samples(12))
    again, before = copied(bank), bank.to_bytes()
    assert (again.capacity, list(again)) == (3, list(bank))
    given = samples(5)
    found = again.update(*given)
    assert bank.to_bytes() == before != again.to_bytes()
    expected = bank.update(*given)
    assert_same(found, [expected.map(lambda a, i=i: a[i]) for i in range(5)])


@pytest.mark.parametrize("key", [1.5, ("a", None), frozenset([1]), ("a", 1.5)])
def test_are_other_keys_not_written(key):
    bank = cgp.Bank(kalman("proper")())
    bank.update(["a", key], np.ones((2, 2), complex))
    with pytest.raises(TypeError, match="integers, strings, bytes, or tuples"):
        bank.to_bytes()


def test_may_a_bank_without_keys_be_written():
    for kind in KINDS:
        empty = cgp.Bank(MAKE[kind]())
        again = cgp.Bank.from_bytes(empty.to_bytes(), empty.estimator)
        assert len(again) == 0
        again.update(*Samples(again.estimator, "ab")(3))


def test_are_bytes_compact():
    """Of each key eight bytes, its mean and the triangle of its factor."""
    bank = cgp.Bank(kalman("proper")())
    bank.update(np.arange(1000), np.ones((1000, 2), complex))
    assert len(bank.to_bytes()) < 1000 * (8 + 16 * (2 + 3)) + 400


def test_is_no_damage_read():
    """Every byte counts."""
    bank, _ = filled("filter", [1, 2])
    data = bank.to_bytes()
    rng = np.random.default_rng(0)
    for at in [*range(16), *rng.integers(16, len(data), 40)]:
        bad = bytearray(data)
        bad[at] ^= 1 << rng.integers(8)
        with pytest.raises(ValueError, match=r"damaged|not the bytes|later version"):
            cgp.Bank.from_bytes(bytes(bad), bank.estimator)
    for length in (0, 3, 8, 12, 15, len(data) - 1):
        with pytest.raises(ValueError, match=r"damaged|not the bytes"):
            cgp.Bank.from_bytes(data[:length], bank.estimator)
    with pytest.raises(ValueError, match="damaged"):
        cgp.Bank.from_bytes(data + b"\x00", bank.estimator)
    assert list(cgp.Bank.from_bytes(memoryview(data), bank.estimator)) == list(bank)


def test_are_bytes_refused_whose_head_does_not_say_what_follows():
    """Made by someone who knows the form."""
    bank, _ = filled("filter", [1, 2])
    data = bank.to_bytes()
    (length,) = struct.unpack("<I", data[12:16])
    head, rest = json.loads(data[16 : 16 + length]), data[16 + length :]
    for changes in (
        {"count": 3},
        {"count": -1},
        {"count": "2"},
        {"fields": []},
        {"fields": [["mean", [2], "object"]]},
        {"fields": [["mean", [1e9], "complex128"]]},
        {"keys": [1]},
    ):
        text = json.dumps({**head, **changes}).encode()
        body = struct.pack("<I", len(text)) + text + rest
        with pytest.raises(ValueError, match="damaged"):
            cgp.Bank.from_bytes(
                data[:8] + struct.pack("<I", zlib.crc32(body)) + body, bank.estimator
            )


def test_are_foreign_bytes_refused():
    bank, _ = filled("filter")
    for data, error, message in (
        (b"PK\x03\x04 a zip file", ValueError, "not the bytes of a cgp.Bank"),
        ("text", TypeError, "str"),
        (filled("process")[0].to_bytes(), ValueError, "got StateSpaceGP"),
        (filled("widely linear filter")[0].to_bytes(), ValueError, "got widely linear"),
    ):
        with pytest.raises(error, match=message):
            cgp.Bank.from_bytes(data, bank.estimator)
    with pytest.raises(ValueError, match="more than the capacity, 2"):
        cgp.Bank.from_bytes(bank.to_bytes(), bank.estimator, capacity=2)


def process_of(kernel, noise_variance=0.1, **arguments):
    return lambda: cgp.StateSpaceGP(kernel(), noise_variance, **arguments)


def recursive_of(kernel, **arguments):
    return lambda: cgp.RecursiveGP(kernel(), 0.1, **{"capacity": 3, **arguments})


def walk(start):
    return lambda: cgp.kernels.RandomWalk(1.0, start=start)


def turned():
    return cgp.kernels.Matern32(1.0, 5.0) * cgp.kernels.Rotation(0.1)


def matern12():
    return cgp.kernels.Matern12(1.0, 2.0)


def rbf():
    return cgp.kernels.RBF(1.0, 2.0)


def shared(kernel=matern12):
    one, two = kernel(), kernel()
    return one + two + one, one + two + two


def trend(center):
    return cgp.means.Polynomial(1, [0.3, 0.2j], center=center)


@pytest.mark.parametrize(
    ("writes", "reads", "message"),
    [
        (recursive_of(rbf), recursive_of(matern12), r"kernel: expected Matern12\(\), got RBF\(\)"),
        (recursive_of(rbf), recursive_of(rbf, policy="growing"), "expected growing, got sliding"),
        (recursive_of(rbf), recursive_of(rbf, forgetting=0.9), r"expected 0\.9, got 1\.0"),
        (recursive_of(rbf), recursive_of(rbf, capacity=4), "capacity: expected 4, got 3"),
        (
            process_of(turned),
            process_of(lambda: cgp.kernels.Conjugate(turned())),
            r"expected Conjugate\(kernel=Product.*, got Product\(parts=\[Matern32\(\), Rotation",
        ),
        (process_of(walk(0)), process_of(walk(-50.0)), r"expected .*start=-50.*, got .*start=0\)"),
        (
            process_of(matern12, mean=trend(0.0)),
            process_of(matern12, mean=trend(1.0)),
            "mean: expected .*center=1",
        ),
        (process_of(lambda: shared()[0]), process_of(lambda: shared()[1]), "as number"),
        (
            kalman("improper"),
            lambda: cgp.KalmanFilter(
                cgp.statespace.LinearGaussian(0.5 * np.eye(4), np.eye(4), np.eye(4)[:2], np.eye(2))
            ),
            "states: expected 4, got 2; form: expected linear, got widely linear",
        ),
        (kalman("proper"), kalman("real"), "float64.* got .*complex128"),
        (
            process_of(turned),
            kalman("proper"),
            "estimator: expected KalmanFilter, got StateSpaceGP",
        ),
    ],
)
def test_are_bytes_of_another_model_refused(writes, reads, message):
    bank = cgp.Bank(writes())
    bank.update(*Samples(bank.estimator, ["a"])(3))
    with pytest.raises(ValueError, match=f"of another model. .*{message}"):
        cgp.Bank.from_bytes(bank.to_bytes(), reads())


def test_are_bytes_read_by_a_model_that_differs_in_names_and_training_alone(tmp_path):
    kernel = matern12() * cgp.kernels.Rotation(0.1) + cgp.kernels.RandomWalk(1.0, start=0)
    gp = cgp.StateSpaceGP(kernel, 0.1, mean=trend(0.0))
    bank = cgp.Bank(gp)
    bank.update(*Samples(gp, "ab")(6))
    gp.save(tmp_path / "gp.keras")
    named = cgp.kernels.Matern12(1.0, 2.0, fixed="variance", name="level")
    other = named * cgp.kernels.Rotation(0.1) + cgp.kernels.RandomWalk(1.0, start=0.0)
    for model in (
        cgp.load_model(tmp_path / "gp.keras"),
        cgp.clone_model(gp),
        cgp.StateSpaceGP(other, 0.1, mean=trend(0), name="other", fixed="noise_variance"),
    ):
        assert cgp.Bank.from_bytes(bank.to_bytes(), model).to_bytes() == bank.to_bytes()


def test_are_values_told_apart_whichever_of_them_is_trained():
    """Keras has weights that are trained before others."""
    bank = cgp.Bank(process_of(lambda: cgp.kernels.Matern12(1.0, 2.0, fixed="variance"))())
    bank.update(["a"], [1j], [0.0])
    with pytest.raises(ValueError, match="hyperparameters have changed"):
        cgp.Bank.from_bytes(bank.to_bytes(), process_of(lambda: cgp.kernels.Matern12(2.0, 1.0))())


def test_does_a_restored_bank_drop_the_same_keys():
    bank, samples = filled("filter", range(6))
    again = cgp.Bank.from_bytes(bank.to_bytes(), bank.estimator, capacity=len(bank))
    assert list(again) == list(bank)
    oldest = next(iter(bank))
    _, z = samples(1)
    again.update(["new"], z)
    assert again.evicted == [oldest]
