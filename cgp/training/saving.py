"""Files of models: an old file stays whole until the new one is, and a damaged one says so."""

import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import keras

from cgp.training.keras_private import ask_to_proceed_with_overwrite
from cgp.training.sharing import sharing_scope


def load_model(
    filepath: str | os.PathLike[str],
    custom_objects: dict[str, Any] | None = None,
    compile: bool = True,
    safe_mode: bool = True,
) -> keras.Model:
    """Loads a model that `model.save(filepath)` has written; layers it shared are shared again.

    It is `keras.saving.load_model` inside a `cgp.sharing_scope`, hence for Keras models of every
    kind, and tells a file that is damaged from one that does not exist.

    Args:
        filepath: The path of a `.keras` file, or whatever else Keras loads.
        custom_objects: Classes and functions by name, beside those that are registered with Keras.
            Those of cgp are.
        compile: Whether to compile the model, if it was compiled when it was saved.
        safe_mode: Whether to refuse pickled lambdas, which may run any code.

    Returns:
        The model, with its weights and, if it was compiled, the state of its optimizer.

    Raises:
        FileNotFoundError: No file of this name.
        ValueError: The file is damaged: empty, cut short, or changed. Also what Keras raises, as
            for a class that is not registered.

    Example:
        >>> import tempfile, cgp
        >>> gp = cgp.ExactGP(cgp.kernels.RBF(), noise_variance=0.1)
        >>> gp.condition([0.0, 1.0], [1j, 2j])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     gp.save(f"{folder}/signal.keras")
        ...     loaded = cgp.load_model(f"{folder}/signal.keras")
        >>> bool(loaded.predict([0.5])["mean"] == gp.predict([0.5])["mean"])
        True
    """
    path = os.fspath(filepath)
    if "://" not in path and not os.path.exists(path):
        raise FileNotFoundError(f"there is no file {path!r} to load a model from")
    check_undamaged(path)
    with sharing_scope():
        return keras.saving.load_model(filepath, custom_objects, compile, safe_mode)


def check_undamaged(filepath: str | os.PathLike[str]) -> None:
    """Raises if a file of a model or of weights exists here and cannot be read as a whole.

    Args:
        filepath: The path; one that is neither `.keras` nor HDF5 is not looked at.

    Raises:
        ValueError: The file is damaged.
    """
    path = os.fspath(filepath)
    if not os.path.isfile(path):
        return
    damage = None
    if path.endswith(".keras"):
        damage = _damage_of_archive(path)
    elif path.endswith((".h5", ".hdf5")):
        damage = _damage_of_hdf5(path)
    if damage:
        damage = "it is empty" if os.path.getsize(path) == 0 else damage
        raise ValueError(
            f"the file {path!r} is damaged: {damage}. It was cut short or changed after it was "
            "saved; load a copy, or save the model again"
        )


def _damage_of_archive(path: str) -> str | None:
    try:
        with zipfile.ZipFile(path) as archive:
            if "config.json" not in archive.namelist():
                return "it holds no config.json"
            wrong = archive.testzip()  # reads everything and compares checksums
    except (zipfile.BadZipFile, EOFError, zlib.error) as error:
        return f"it is not a whole zip archive ({error})"
    return None if wrong is None else f"the checksum of {wrong} in it is wrong"


def _damage_of_hdf5(path: str) -> str | None:
    import h5py  # a dependency of Keras, imported where Keras would import it

    try:
        h5py.File(path, "r").close()
    except OSError as error:
        return f"it is not a whole HDF5 file ({error})"
    return None


def can_be_replaced(filepath: Any, *endings: str) -> bool:
    """Whether a path is that of one file of a known kind, in a folder that exists here."""
    if not isinstance(filepath, str | os.PathLike):
        return False
    path = os.fspath(filepath)
    return path.endswith(endings) and os.path.isdir(os.path.dirname(path) or os.curdir)


def write_beside(
    filepath: str | os.PathLike[str], overwrite: bool, write: Callable[[str], None]
) -> None:
    """Writes a file beside its place, and moves it there once it is complete.

    A process that is killed on the way leaves what was there before, and a folder of temporary
    files, whose name begins with a dot and the name of the file.

    Args:
        filepath: The path, for which `can_be_replaced`. A symbolic link is followed.
        overwrite: Whether to replace an existing file without asking at the prompt.
        write: Writes a file of the path that it is given.

    Raises:
        Exception: What `write` raises; the existing file stays then.
    """
    path = os.fspath(filepath)
    if os.path.exists(path) and not overwrite and not ask_to_proceed_with_overwrite(path):
        return
    place, name = os.path.realpath(path), os.path.basename(path)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=os.path.dirname(place)) as folder:
        written = os.path.join(folder, name)
        write(written)
        if os.path.exists(place):
            shutil.copymode(place, written)
        with open(written, "rb+") as file:
            os.fsync(file.fileno())  # else a power cut could leave the new name without content
        os.replace(written, place)
