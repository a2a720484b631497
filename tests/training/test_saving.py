"""Files of models: replaced as a whole, and honest about damage."""

import os
import re
import stat
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest

import cgp
from cgp.training import saving
from tests.training import toys


@keras.saving.register_keras_serializable(package="toys")
class Watched(cgp.Model):
    """Calls a function in the middle of being saved."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.weight = self.add_weight(shape=(3,), initializer="ones", name="weight")
        self.built = True
        self.while_saving = lambda: None

    def save_own_variables(self, store):
        super().save_own_variables(store)
        self.while_saving()


def save(model, path, how):
    model.save(path) if how == "save" else model.save_weights(path)


PATHS = {"save": "model.keras", "save_weights": "model.weights.h5"}


@pytest.mark.parametrize("how", PATHS)
def test_the_old_file_is_whole_until_the_new_one_is(how, tmp_path):
    model, path = Watched(), tmp_path / PATHS[how]
    save(model, path, how)
    old, seen = path.read_bytes(), []
    model.while_saving = lambda: seen.append(path.read_bytes())  # what a kill would leave
    model.weight.assign(2.0 * model.weight.value)
    save(model, path, how)
    assert seen == [old]
    assert path.read_bytes() != old
    other = Watched()
    other.load_weights(path)
    np.testing.assert_array_equal(other.weight.numpy(), [2.0, 2.0, 2.0])
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("how", PATHS)
def test_saving_that_fails_leaves_the_old_file(how, tmp_path):
    def fail():
        raise KeyboardInterrupt

    model, path = Watched(), tmp_path / PATHS[how]
    save(model, path, how)
    old = path.read_bytes()
    model.while_saving = fail
    with pytest.raises(KeyboardInterrupt):
        save(model, path, how)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == [path.name]


def test_a_functional_model_is_saved_in_the_same_way(tmp_path, monkeypatch):
    replaced, replace = [], os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: replaced.append(b) or replace(a, b))
    x = keras.Input((1,), dtype="float64")
    cgp.Functional(x, keras.layers.Dense(1)(x)).save(tmp_path / "model.keras")
    assert replaced == [str(tmp_path / "model.keras")]


@pytest.mark.skipif(os.name != "posix", reason="file modes and links are those of POSIX")
def test_mode_and_link_of_the_old_file_stay(tmp_path):
    model, path, link = Watched(), tmp_path / "model.keras", tmp_path / "link.keras"
    mask = os.umask(0o022)
    try:
        model.save(path)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    path.chmod(0o600)
    link.symlink_to(path)
    before = path.stat().st_ino
    model.save(link)
    assert link.is_symlink()
    assert path.stat().st_ino != before
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("answer", "written"), [("n", False), ("y", True)])
def test_a_file_that_must_not_be_overwritten_is_asked_about(answer, written, tmp_path, monkeypatch):
    path = tmp_path / "model.keras"
    path.write_bytes(b"mine")
    monkeypatch.setattr("builtins.input", lambda *_: answer)
    Watched().save(path, overwrite=False)
    assert zipfile.is_zipfile(path) is written
    assert written or path.read_bytes() == b"mine"


def test_what_is_no_single_file_is_left_to_keras(tmp_path):
    model = Watched()
    with pytest.raises(FileNotFoundError, match="absent"):
        model.save(tmp_path / "absent" / "model.keras")
    with pytest.raises(ValueError, match="Invalid filepath extension"):
        model.save(tmp_path / "model.txt")
    model.save(tmp_path / "folder", zipped=False)
    assert (tmp_path / "folder" / "config.json").is_file()
    model.save_weights(tmp_path / "model.weights.json", max_shard_size=1)
    assert isinstance(cgp.load_model(tmp_path / "folder"), Watched)


def test_a_model_is_loaded_and_shares_what_it_shared(tmp_path):
    model = toys.network(model=keras.Model)
    model.save(tmp_path / "model.keras")
    loaded = cgp.load_model(tmp_path / "model.keras")
    assert loaded.get_layer("features").kernel is loaded.get_layer("similarity").kernel
    x = np.ones((2, 1))
    np.testing.assert_array_equal(loaded(x), model(x))


def test_no_file_and_a_damaged_file_are_told_apart(tmp_path):
    path = tmp_path / "model.keras"
    with pytest.raises(FileNotFoundError, match=r"there is no file .*model\.keras"):
        cgp.load_model(path)
    Watched().save(path)
    whole = path.read_bytes()
    config = whole.index(b"class_name")
    for damaged, message in (
        (b"", "is damaged: it is empty"),
        (whole[: len(whole) // 2], "is damaged: it is not a whole zip"),
        (whole[:-1], "is damaged: it is not a whole zip"),
        (b"a note", "is damaged: it is not a whole zip"),
        (
            whole[:config] + b"X" + whole[config + 1 :],
            r"is damaged: the checksum of config\.json",
        ),
    ):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=message):
            cgp.load_model(path)
        with pytest.raises(ValueError, match=message):
            Watched().load_weights(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("note.txt", "nothing")
    with pytest.raises(ValueError, match=r"it holds no config\.json"):
        cgp.load_model(path)


def test_damaged_weights_say_so(tmp_path):
    path = tmp_path / "model.weights.h5"
    with pytest.raises(FileNotFoundError):
        Watched().load_weights(path)
    Watched().save_weights(path)
    whole = path.read_bytes()
    for damaged, message in ((b"", "it is empty"), (whole[:-100], "it is not a whole HDF5 file")):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"is damaged: {message}"):
            Watched().load_weights(path)


def test_other_errors_of_keras_stay(tmp_path):
    path = tmp_path / "model.txt"
    path.write_text("text")
    with pytest.raises(ValueError, match="File format not supported"):
        cgp.load_model(path)


@pytest.mark.skipif(os.name != "posix", reason="there is a signal that asks, and kills nobody")
@pytest.mark.parametrize("how", PATHS)
@pytest.mark.long
def test_what_a_killed_save_has_left_is_cleared_by_the_next(how, tmp_path):
    path = tmp_path / PATHS[how]
    code = f"""
import os
import re
from cgp.training.saving import write_beside

def killed(path):
    with open(path, "w") as file:
        file.write("half")
        file.flush()
        os.kill(os.getpid(), 9)

write_beside({str(path)!r}, True, killed)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    (folder,) = os.listdir(tmp_path)
    alive = tmp_path / re.sub(r"-\d+-", f"-{os.getppid()}-", folder)
    elsewhere = tmp_path / folder.replace(saving._processes(), "another.1")
    other = tmp_path / folder.replace(path.name, f"other-{path.name}")
    for kept in (alive, elsewhere, other):
        kept.mkdir()
    save(Watched(), path, how)
    result = set(os.listdir(tmp_path))
    assert result == {path.name, alive.name, elsewhere.name, other.name}
