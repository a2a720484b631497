"""Fixtures of tests of state-space models."""

import pytest


@pytest.fixture(params=["eager", pytest.param("compiled", marks=pytest.mark.long)])
def execution(request):
    """How functions run that XLA compiles."""
    if request.param == "eager":
        request.getfixturevalue("eager_functions")
    return request.param
