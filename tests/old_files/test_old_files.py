"""Whatever earlier versions have saved loads, and answers as it did then."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import cgp
from tests.long_cases import long_except
from tests.old_files import objects

FOLDERS = sorted(
    path for path in Path(__file__).parent.iterdir() if (path / "answers.npz").exists()
)
SOON_TRACED = objects.MODELS.keys() - {"phase", "state_space_outliers"}
versions = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
pytestmark = pytest.mark.filterwarnings("ignore:The package 'cgp.tests'")


def assert_answers(folder, name, answers):
    """The answers are those recorded, to the rounding of another machine."""
    with np.load(folder / "answers.npz") as recorded:
        names = [key for key in recorded if key.startswith(f"{name}: ")]
        assert set(names) == {f"{name}: {key}" for key in answers}
        for key in names:
            answer = answers[key.removeprefix(f"{name}: ")]
            np.testing.assert_allclose(answer, recorded[key], rtol=1e-9, atol=1e-10, err_msg=key)


@versions
@pytest.mark.parametrize("name", long_except(objects.MODELS, *SOON_TRACED))
def test_does_a_model_answer_as_it_did(folder, name):
    model = cgp.load_model(folder / f"{name}.keras")
    assert_answers(folder, name, objects.MODELS[name][1](model))


@versions
@pytest.mark.parametrize("name", objects.BANKS)
def test_does_a_bank_go_on_as_it_did(folder, name):
    data = (folder / f"{name}.bytes").read_bytes()
    bank = cgp.Bank.from_bytes(data, objects.BANKS[name]())
    assert set(bank) == {"a", "b", 3, ("c", 1)}
    assert_answers(folder, name, objects.of_bank(bank))


@versions
@pytest.mark.parametrize("name", objects.EXPORTED)
def test_does_a_saved_model_step_as_it_did(folder, name, tmp_path):
    shutil.unpack_archive(folder / f"{name}.saved_model.zip", tmp_path)
    module = tf.saved_model.load(str(tmp_path))
    answers = objects.of_exported(module, objects.EXPORTED[name][1])
    assert_answers(folder, f"exported {name}", answers)
