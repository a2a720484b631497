"""Problems of ten trades: two quick ones, and the table of the page."""

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def problems(monkeypatch):
    pytest.importorskip("skrf")
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("ten_problems")


@pytest.mark.long
def test_a_channel_from_its_pilots_has_a_smaller_error_than_by_loading(problems):
    (row,) = problems.solve("wifi_channel", seeds=2)

    assert row["blind"] < -20.0  # a baseline that works
    assert row["cgp"] < row["hindsight"] - 0.17
    assert 0.9 < row["coverage"] < 0.98


@pytest.mark.long
def test_a_notch_has_the_error_of_its_equation_by_least_squares(problems):
    response, quality = problems.solve("notch_resonator", seeds=1)

    assert response["blind"] < -33.0
    assert response["cgp"] < response["blind"] + 0.17
    assert quality["cgp"] < quality["blind"] + 0.17
    assert 0.8 < response["coverage"] < 1.0


def test_is_the_table_of_the_page_that_of_the_record(problems):
    record = json.loads((BENCHMARKS / "results" / "ten_problems.json").read_text())
    page = (ROOT / "docs" / "trades" / "ten_problems.md").read_text(encoding="utf-8")

    assert [*dict.fromkeys(row["name"] for row in record["rows"])] == [*problems.PROBLEMS]
    assert problems.table(record["rows"]) in page
    losses = [row for row in record["rows"] if row["cgp"] > row["blind"] + 0.5]
    assert all(problems.reason(row) for row in losses)
