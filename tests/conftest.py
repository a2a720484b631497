"""Fixtures of all tests."""

import pytest
import tensorflow as tf

from cgp import native


@pytest.fixture
def eager_functions():
    """Runs functions eagerly: to trace and compile them takes longer than a few steps."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def without_core(monkeypatch):
    """A function that calls another without the compiled core."""

    def call(function, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(native, "core", lambda: native.Core(None, "turned off by a test"))
            return function(*arguments)

    return call


@pytest.fixture
def run(has_core, without_core):
    """Calls a function with the compiled core, or without it, as the test has `has_core`."""
    if has_core and native.core().ops is None:
        pytest.skip(native.core().reason)
    return (lambda function: function()) if has_core else without_core
