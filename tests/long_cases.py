"""Cases of one test, of which the default run has some, and `--all` the long ones too."""

import pytest

# Eagerly, as little data are sooner gone through than a graph is traced, and in a graph when long.
eagerly_or_in_a_graph = pytest.mark.parametrize(
    "eagerly", [True, pytest.param(False, marks=pytest.mark.long)]
)


def long_except(cases, *kept):
    """The cases as parameters, of several where they are tuples: those not kept are long."""
    cases = list(cases)
    assert all(case in cases for case in kept), "a case that is kept is not there"
    return [case if case in kept else _long(case) for case in cases]


def _long(case):
    return pytest.param(*(case if type(case) is tuple else (case,)), marks=pytest.mark.long)
