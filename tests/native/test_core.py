"""The compiled core is found, chosen by where the data are, and can be done without."""

import logging
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import native

pytestmark = pytest.mark.filterwarnings("default")


def built():
    return native.core().ops is not None


needs_core = pytest.mark.skipif(not built(), reason="the core is not built, or turned off")


def run_module(**environment):
    command = [sys.executable, "-m", "cgp.native"]
    environment = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.long
@needs_core
def test_does_the_module_say_that_the_core_is_active():
    result = run_module()
    assert result.returncode == 0
    assert "compiled core: active, loaded from" in result.stdout


def test_does_the_environment_turn_the_core_off(monkeypatch):
    monkeypatch.setenv("CGP_NATIVE", "0")
    result = native.core.__wrapped__()
    assert result.ops is None
    assert result.reason == "turned off by CGP_NATIVE=0"


@pytest.mark.long
def test_does_the_module_say_that_the_core_is_off():
    result = run_module(CGP_NATIVE="0")
    assert result.returncode == 1
    assert "compiled core: not active, turned off by CGP_NATIVE=0" in result.stdout


def test_is_a_core_that_is_not_there_told_in_one_line_of_the_log(tmp_path, monkeypatch, caplog):
    monkeypatch.delenv("CGP_NATIVE", raising=False)
    monkeypatch.setattr(native, "_HERE", tmp_path)
    with caplog.at_level(logging.WARNING, "cgp"):
        result = native.core.__wrapped__()
    assert result.ops is None
    assert [record.message for record in caplog.records] == [
        "cgp runs without its compiled core, slower and with the same results: it was not built: "
        "there was no C++ compiler, or it failed"
    ]


def test_is_a_damaged_core_told_and_done_without(tmp_path, monkeypatch, caplog):
    monkeypatch.delenv("CGP_NATIVE", raising=False)
    monkeypatch.setattr(native, "_HERE", tmp_path)
    (tmp_path / "_ops.so").write_bytes(b"not a library")
    with caplog.at_level(logging.WARNING, "cgp"):
        result = native.core.__wrapped__()
    assert result.ops is None
    assert "_ops.so could not be loaded" in caplog.text


@pytest.mark.long
def test_may_threads_be_set_after_the_import():
    """A tensor made at import would settle TensorFlow's devices and threads."""
    code = "import tensorflow as tf, cgp; tf.config.threading.set_intra_op_parallelism_threads(1)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@needs_core
@pytest.mark.parametrize("dtype", ["complex128", "complex64", "float64", "float32"])
def test_are_eager_arrays_and_tensors_of_one_dtype_served(dtype):
    x = np.ones(2, dtype)
    assert native.serves(x, tf.constant(x))
    assert native.precision(x) == native.precision(tf.constant(x)) == tf.as_dtype(dtype).real_dtype


@needs_core
def test_is_everything_else_left_to_tensorflow():
    x = np.ones(2) + 0j
    others = [[1.0], 1.0, x.astype("complex64"), np.ma.array(x), tf.Variable(x), np.ones(2, int)]
    assert not any(native.serves(x, other) for other in others)
    assert not native.serves(np.ones(2, int))
    seen = []

    @tf.function(autograph=False)
    def graph(y):
        seen.append(native.serves(y, x))
        return y

    graph(tf.constant(x))
    assert seen == [False]


@needs_core
def test_does_an_op_refuse_arguments_that_do_not_fit():
    ops, eye = native.core().ops, np.eye(2)
    for arguments in (
        (np.ones((2, 3)), np.ones(3), 1.0),
        (eye, np.ones(3), 1.0),
        (eye, np.ones(2), np.ones(1)),
        (np.ones(2), np.ones(2), 1.0),
    ):
        arguments = [tf.constant(x, tf.float64) for x in arguments]
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"fit|square"):
            ops.cgp_cholesky_update(*arguments)


@needs_core
def test_do_batches_on_several_threads_equal_single_matrices():
    rng = np.random.default_rng(0)
    n, count = 64, 200
    chol = np.tril(rng.normal(size=(count, n, n)), -1) / n + np.eye(n) + 0j
    v = rng.normal(size=(count, n)) + 1j * rng.normal(size=(count, n))
    new = cgp.linalg.cholesky_update(chol, v, 0.5).numpy()
    each = [cgp.linalg.cholesky_update(c, w, 0.5).numpy() for c, w in zip(chol, v, strict=True)]
    assert np.array_equal(new, each)
    chol[137] *= -1.0
    with pytest.raises(cgp.NotPositiveDefiniteError, match="diagonal"):
        cgp.linalg.cholesky_update(chol, v, 0.5)
