"""Compiled rank-one operations against those in TensorFlow, which `tests/linalg/test_updates.py`
compares with NumPy."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import native
from cgp.linalg import native_updates, tensorflow_updates
from cgp.linalg.arguments import marked_lower_triangular
from tests.linalg.problems import DTYPES, hard_chol, is_single, random, random_chol
from tests.long_cases import long_except

pytestmark = pytest.mark.skipif(native.core().ops is None, reason="there is no compiled core")

SIZES = [0, 1, 2, 3, 4, 5, 8, 9, 31, 64]
FEW_SIZES = (0, 1, 5, 9)
OPERATIONS = ["update", "downdate", "condition", "append", "append to buffer"] + [
    f"remove {which}{kind}" for which in ("first", "inner", "last") for kind in ("", " of buffer")
]


def problem(operation, n, dtype, batch=(), chol=None):
    """Name, differentiable arguments and integer arguments of an operation on a factor."""
    rng = np.random.default_rng([n, len(operation)])
    chol = random_chol(rng, n, dtype, batch) if chol is None else chol
    v = random(rng, (*batch, n), dtype)
    positive = np.asarray(rng.uniform(0.5, 2.0, batch), np.dtype(dtype).type(0).real.dtype)
    match operation.split():
        case ["update"]:
            return "update", [chol, v, positive], []
        case ["downdate"]:
            v = (chol @ (v / (2 * np.linalg.norm(v, axis=-1, keepdims=True)))[..., None])[..., 0]
            return "update", [chol, v, -positive], []
        case ["condition"]:
            return "condition", [chol, v, positive], []
        case ["append", *buffer]:
            cross = (chol @ (v / (2 * np.linalg.norm(v, axis=-1, keepdims=True)))[..., None])[
                ..., 0
            ]
            if not buffer:
                return "append", [chol, cross, positive], []
            size = n // 2
            chol = np.where(np.arange(n)[:, None] < size, chol, np.eye(n)).astype(dtype)
            return "append", [chol, cross, positive], [np.full(batch, size, np.int32)]
        case ["remove", which, *buffer]:
            index = {"first": 0, "inner": n // 2, "last": n - 1}[which]
            integers = [np.full(batch, index, np.int32)]
            return "remove", [chol], integers + [np.full(batch, n, np.int32)] * bool(buffer)


def flat(result):
    return [np.asarray(x) for x in tf.nest.flatten(result)]


def assert_close(found, wanted, tolerance):
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        if b.size:
            assert np.max(np.abs(a - b)) <= tolerance * max(1.0, np.max(np.abs(b)))


@pytest.mark.parametrize("batch", [(), (2, 3)])
@pytest.mark.parametrize(
    ("operation", "n"),
    [
        (operation, n) if n in FEW_SIZES else pytest.param(operation, n, marks=pytest.mark.long)
        for operation in OPERATIONS
        for n in SIZES
        if n or ("remove" not in operation and "buffer" not in operation)  # these need a row
    ],
)
@pytest.mark.parametrize("dtype", long_except(DTYPES, "complex128", "float32"))
def test_do_values_equal_those_of_tensorflow(operation, dtype, n, batch):
    name, arguments, integers = problem(operation, n, dtype, batch)
    result = getattr(native_updates, name)(*arguments, *integers)
    assert result is not None
    expected = getattr(tensorflow_updates, name)(*arguments, *integers)
    assert_close(flat(result), flat(expected), 1e-6 if is_single(dtype) else 1e-13)


@pytest.mark.parametrize("n", long_except([1, 2, 5, 33], 5))
@pytest.mark.parametrize("dtype", long_except(DTYPES, "complex128", "float32"))
@pytest.mark.parametrize("operation", OPERATIONS)
def test_do_gradients_equal_those_of_tensorflow(operation, dtype, n):
    name, arguments, integers = problem(operation, n, dtype)
    arguments = [tf.constant(x) for x in arguments]
    gradients = []
    for path in (native_updates, tensorflow_updates):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            values = tf.nest.flatten(getattr(path, name)(*arguments, *integers))
        rng = np.random.default_rng(1)
        bars = [random(rng, x.shape, x.dtype.as_numpy_dtype) for x in values]
        # Above the diagonal the result is zero whatever the arguments are.
        bars = [tf.constant(np.tril(bar) if bar.ndim == 2 else bar) for bar in bars]
        gradients.append(flat(tape.gradient(values, arguments, output_gradients=bars)))
    assert_close(*gradients, 2e-5 if is_single(dtype) else 1e-12)


@pytest.mark.parametrize("operation", ["update", "downdate", "condition", "append", "remove inner"])
def test_do_second_derivatives_equal_those_of_tensorflow(operation):
    name, arguments, integers = problem(operation, 4, "complex128")
    arguments = [tf.constant(x) for x in arguments]
    result = []
    for path in (native_updates, tensorflow_updates):
        with tf.GradientTape() as outer:
            outer.watch(arguments)
            with tf.GradientTape() as tape:
                tape.watch(arguments)
                values = tf.nest.flatten(getattr(path, name)(*arguments, *integers))
                total = sum(tf.reduce_sum(tf.math.real(x) ** 3) for x in values)
            first = tape.gradient(total, arguments)
            total = sum(tf.reduce_sum(tf.math.real(x) ** 2) for x in first)
        result.append(flat(outer.gradient(total, arguments)))
    assert_close(*result, 1e-12)


@pytest.mark.parametrize(
    "operation", long_except(["update", "downdate", "condition", "append"], "append")
)
def test_do_forward_derivatives_agree_with_central_differences(operation):
    name, arguments, _ = problem(operation, 3, "complex128")
    step, tangents = 1e-5, [0.1 * x for x in arguments]
    ahead, behind = (
        flat(getattr(native_updates, name)(*[(1 + 0.1 * s) * x for x in arguments]))
        for s in (step, -step)
    )
    arguments, tangents = ([tf.constant(x) for x in part] for part in (arguments, tangents))
    with tf.autodiff.ForwardAccumulator(arguments, tangents) as forward:
        values = tf.nest.flatten(getattr(native_updates, name)(*arguments))
    result = flat([forward.jvp(x) for x in values])
    expected = [(a - b) / (2 * step) for a, b in zip(ahead, behind, strict=True)]
    assert_close(result, expected, 1e-9)


@pytest.mark.parametrize("kind", ["spectrum", "rbf", "pivot"])
@pytest.mark.parametrize("dtype", long_except(DTYPES, "complex128", "float32"))
def test_are_gradients_of_hard_problems_those_of_tensorflow(dtype, kind):
    """Relative to the largest: the condition of 1e12 is in both."""
    rng = np.random.default_rng(2)
    chol = hard_chol(kind, 17, dtype, rng)
    arguments = [tf.constant(x) for x in problem("condition", 17, dtype, chol=chol)[1]]
    gradients = []
    for path in (native_updates, tensorflow_updates):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            value = path.condition(*arguments).chol
        bar = tf.constant(random(np.random.default_rng(3), value.shape, dtype))
        gradients.append(flat(tape.gradient(value, arguments, output_gradients=bar)))
    for a, b in zip(*gradients, strict=True):
        assert np.max(np.abs(a - b)) <= (1e-3 if is_single(dtype) else 1e-9) * np.max(np.abs(b))


BAD = {
    "a negative diagonal": lambda: cgp.linalg.cholesky_update(-np.eye(2), np.ones(2)),
    "an imaginary diagonal": lambda: cgp.linalg.cholesky_update(1j * np.eye(2), np.ones(2) + 0j),
    "NaN in chol": lambda: cgp.linalg.cholesky_update(np.array([[1, 0], [np.nan, 1]]), np.ones(2)),
    "NaN in v": lambda: cgp.linalg.cholesky_update(np.eye(2), np.array([np.nan, 1.0])),
    "NaN multiplier": lambda: cgp.linalg.cholesky_update(np.eye(2), np.ones(2), np.nan),
    "infinite v": lambda: cgp.linalg.cholesky_update(np.eye(2), np.array([1.0, np.inf])),
    "a downdate too far": lambda: cgp.linalg.cholesky_update(np.eye(2), np.ones(2), -1.0),
    "an overflow": lambda: cgp.linalg.cholesky_update(np.eye(2), np.full(2, 1e200)),
    "not square": lambda: cgp.linalg.cholesky_update(np.ones((2, 3)), np.ones(3)),
    "a long v": lambda: cgp.linalg.cholesky_update(np.eye(2), np.ones(3)),
    "a complex multiplier": lambda: cgp.linalg.cholesky_update(np.eye(2), np.ones(2), 1j),
    "batches": lambda: cgp.linalg.cholesky_update(np.ones((2, 1, 1)), np.ones((3, 1))),
    "negative noise": lambda: cgp.linalg.cholesky_condition(np.eye(2), np.ones(2), -1.0),
    "an overflowing h": lambda: cgp.linalg.cholesky_condition(np.eye(2), np.full(2, 1e200), 1.0),
    "NaN in h": lambda: cgp.linalg.cholesky_condition(np.eye(2), np.full(2, np.nan), 1.0),
    "a dependent row": lambda: cgp.linalg.cholesky_append(np.eye(2), np.ones(2), 2.0),
    "a full buffer": lambda: cgp.linalg.cholesky_append(np.eye(2), np.ones(2), 5.0, size=2),
    "a negative size": lambda: cgp.linalg.cholesky_append(np.eye(2), np.ones(2), 5.0, size=-1),
    "a float size": lambda: cgp.linalg.cholesky_append(np.eye(2), np.ones(2), 5.0, size=1.0),
    "an index too large": lambda: cgp.linalg.cholesky_remove(np.eye(2), 2),
    "a negative index": lambda: cgp.linalg.cholesky_remove(np.eye(2), -1),
    "an index not in use": lambda: cgp.linalg.cholesky_remove(np.eye(2), 1, size=1),
    "a huge index": lambda: cgp.linalg.cholesky_remove(np.eye(2), 2**40),
    "zero below the row": lambda: cgp.linalg.cholesky_remove(np.diag([1.0, 0.0]), 0),
}


@pytest.mark.parametrize("name", BAD)
def test_are_errors_those_of_tensorflow(name, monkeypatch):
    with pytest.raises(Exception) as result:
        BAD[name]()
    monkeypatch.setattr(native, "core", lambda: native.Core(None, "turned off"))
    with pytest.raises(Exception) as expected:
        BAD[name]()
    assert type(result.value) is type(expected.value)
    assert str(result.value) == str(expected.value)


def test_is_nothing_above_the_diagonal_read():
    for operation in OPERATIONS:
        name, arguments, integers = problem(operation, 6, "complex128")
        expected = flat(getattr(native_updates, name)(*arguments, *integers))
        if "buffer" in operation and name == "append":
            continue  # other rows of a buffer are copied
        dirty = np.where(np.triu(np.ones((6, 6)), 1), np.nan, arguments[0])
        arguments[0] = marked_lower_triangular(tf.constant(dirty))  # or it would be refused
        result = flat(getattr(native_updates, name)(*arguments, *integers))
        if name != "append":
            assert all(np.array_equal(a, b) for a, b in zip(result, expected, strict=True))


@pytest.mark.long
def test_do_random_shapes_and_values_give_an_error_or_the_answer_of_tensorflow():
    """Sizes 0 and 1, batches that fit or do not, strides, NaN, infinities, huge and tiny values."""
    rng = np.random.default_rng(4)
    answered = refused = 0
    for _ in range(150):
        n = int(rng.integers(0, 6))
        batches = [(), (1,), (2,), (2, 1), (0,), (3, 2)]
        batch, other = (batches[i] for i in rng.integers(0, len(batches), 2))
        dtype = DTYPES[rng.integers(4)]
        chol, v = random_chol(rng, n, dtype, batch), random(rng, (*other, n), dtype)
        if rng.random() < 0.3 and v.size:
            v.flat[rng.integers(v.size)] = [np.nan, np.inf, 1e30, 1e-30][rng.integers(4)]
        if rng.random() < 0.2 and chol.size:
            chol.flat[rng.integers(chol.size)] = [np.nan, -1.0, 0.0][rng.integers(3)]
        if rng.random() < 0.3:
            chol, v = np.asfortranarray(chol), np.repeat(v, 2, axis=-1)[..., ::2]
        alpha = float(rng.normal())
        results = []
        for path in (cgp.linalg.cholesky_update, tensorflow_updates.update):
            try:
                results.append(path(chol, v, alpha).numpy())
            except (ValueError, TypeError) as error:
                results.append(str(error))
        if isinstance(results[1], str):
            refused += 1
            # No matrix is left of a bad one broadcast against a batch of none.
            assert np.size(results[0]) == 0 or results[0] == results[1]
        else:
            answered += 1
            assert_close(results[:1], results[1:], 1e-5 if is_single(dtype) else 1e-13)
    assert answered > 20
    assert refused > 20
