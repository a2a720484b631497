"""Which long tests the checks run after a change."""

import subprocess

import pytest

from tests import changes


@pytest.fixture(scope="module")
def graph():
    return changes.imports()


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("cgp/kernels/rotation.py", "cgp.kernels.rotation"),
        ("cgp/bank/__init__.py", "cgp.bank"),
        ("cgp/native/source/rank_one.cpp", "cgp.native"),
        ("tests/gp/problems.py", "tests.gp.problems"),
        ("examples/polar_motion.py", None),
        ("docs/tour.md", None),
        ("README.md", None),
    ],
)
def test_is_a_file_known_by_its_module(path, module):
    assert changes.module_of(path) == module


def test_reaches_a_change_those_that_use_it_by_whatever_name(graph):
    users = graph.find_downstream_modules("cgp.bank.rounds")
    assert "tests.bank.test_bank" in users
    assert "tests.kernels.test_algebra" not in users
    assert "tests.kernels.test_markov" in graph.find_downstream_modules("cgp.gp.exact_gp")
    assert "tests.gp.test_fit" in graph.find_downstream_modules("cgp.kernels.rotation")


def test_belong_scripts_and_fixtures_to_the_tests_of_their_folder(graph):
    assert "tests.training.test_training_steps" in graph.find_downstream_modules(
        "tests.training.two_replicas"
    )
    assert "tests.linalg.test_updates" in graph.find_downstream_modules("tests.conftest")


def affected_by(*paths, monkeypatch):
    monkeypatch.setattr(changes, "names_changed_since", lambda _: {*paths})
    return {
        path.relative_to(changes.ROOT / "tests").as_posix(): distance
        for path, distance in changes.tests_affected_since("main").items()
    }


def test_count_changes_from_where_the_history_was_left_and_what_is_not_committed(
    monkeypatch, tmp_path
):
    def git(*command):
        names = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        subprocess.run(["git", *names, *command], cwd=tmp_path, check=True, capture_output=True)

    def commit(name):
        (tmp_path / name).write_text(name)
        git("add", ".")
        git("commit", "-m", name)

    git("init", "--initial-branch=main")
    commit("old")
    git("checkout", "-b", "change")
    commit("ours")
    git("checkout", "main")
    commit("theirs")
    git("checkout", "change")
    monkeypatch.setattr(changes, "ROOT", tmp_path)
    assert changes.names_changed_since("main") == {"ours"}
    (tmp_path / "old").write_text("edited")
    (tmp_path / "not added").write_text("")
    assert changes.names_changed_since("main") == {"ours", "old", "not added"}
    with pytest.raises(subprocess.CalledProcessError):
        changes.names_changed_since("mian")


def test_come_the_tests_nearest_to_a_change_before_those_that_only_run_it(monkeypatch):
    distances = affected_by(
        "cgp/bank/rounds.py", "tests/bank/test_bank.py", monkeypatch=monkeypatch
    )
    assert distances["bank/test_bank.py"] == 0
    assert 0 < distances["bank/test_keys.py"] < distances["examples/test_signals.py"]


@pytest.mark.long
def test_are_examples_and_pages_affected_by_themselves_and_by_the_package(monkeypatch):
    examples = {
        f"examples/test_{of}.py"
        for of in ("grids", "polar_motion", "several_signals", "signals", "steps", "ten_problems")
    }
    pages = {"test_docs.py", "test_tour.py", "test_pipelines.py"}
    assert affected_by("examples/polar_motion.py", monkeypatch=monkeypatch).keys() == examples
    assert affected_by("docs/tour.md", monkeypatch=monkeypatch).keys() == pages
    assert affected_by("README.md", monkeypatch=monkeypatch).keys() == {"test_docs.py"}
    assert affected_by("LICENSE", monkeypatch=monkeypatch) == {}
    by_plots = affected_by("cgp/plotting/__init__.py", monkeypatch=monkeypatch).keys()
    assert by_plots >= examples | pages | {"test_quick.py", "test_house.py", "native/test_core.py"}
    assert "linalg/test_updates.py" not in by_plots
    everything = affected_by("setup.py", monkeypatch=monkeypatch).keys()
    assert everything == affected_by("cgp/__init__.py", monkeypatch=monkeypatch).keys()
    assert everything >= by_plots | {"linalg/test_updates.py"}
