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


def eagerly_and_in_a_graph(names, cases, kept, in_a_graph, **options):
    """The cases eagerly, and few of them in a graph too, which is long.

    To trace a graph takes ten times as long as to go through little data eagerly, and adds to a
    case that runs eagerly only what is one for all those that take the same path.

    Args:
        names: The arguments of a case, to which `eagerly` is added.
        cases: What they are, of several arguments as tuples.
        kept: Those of the default run.
        in_a_graph: Those that run in a graph too, one for each path through it.
        **options: Of `pytest.mark.parametrize`.
    """
    assert all(case in cases for case in in_a_graph), "a case in a graph is not there"
    eager = long_except(
        [(*_arguments(c), True) for c in cases], *((*_arguments(c), True) for c in kept)
    )
    graphs = [_long((*_arguments(case), False)) for case in in_a_graph]
    return pytest.mark.parametrize((*names, "eagerly"), eager + graphs, **options)


def _arguments(case):
    return case if type(case) is tuple else (case,)


def _long(case):
    return pytest.param(*_arguments(case), marks=pytest.mark.long)
