"""What tests of the compiled core share."""

import pytest

from cgp import native


@pytest.fixture
def without_core(monkeypatch):
    """A function that calls another without the compiled core."""

    def call(function, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(native, "core", lambda: native.Core(None, "turned off by a test"))
            return function(*arguments)

    return call
