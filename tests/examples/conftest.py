"""Examples run as scripts do, with their figures checked and no file left behind."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Loads an example; afterwards nothing may lie beside it that was not there before."""
    pytest.importorskip("matplotlib").use("Agg")
    before = _contents()

    def load(name):
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield load
    assert _contents() == before


def _contents():
    return {path: path.stat().st_mtime_ns for path in EXAMPLES.iterdir() if path.is_file()}
