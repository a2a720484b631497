"""Saving and loading of models: files are replaced as a whole, and damaged ones are refused.

Estimators are exported as SavedModels, which plain TensorFlow runs where cgp is not. Configs name
rules and likelihoods by the registered name of their class, beside its numbers. Classes of cgp are
registered with Keras here, classes of users by the users; the names of the former are written
without the package.
"""

import contextlib
import contextvars
import inspect
import json
import os
import re
import shutil
import socket
import tempfile
import traceback
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from cgp.likelihoods import Likelihood, Magnitude, OneBit, StudentT, VonMises
from cgp.linalg.arguments import as_flag
from cgp.statespace import Iterated, Rule, SigmaPoints, Taylor
from cgp.training.keras_private import ask_to_proceed_with_overwrite, get_input_signature
from cgp.training.sharing import sharing_scope

_bytes_of_file = contextvars.ContextVar[int | None]("_bytes_of_file", default=None)


@contextlib.contextmanager
def arrays_of_file(size: int | None) -> Iterator[None]:
    """A context in which weights are read from a file of this many bytes, if known, unpacked."""
    token = _bytes_of_file.set(size)
    try:
        yield
    finally:
        _bytes_of_file.reset(token)


def check_size(count: int, holder: str, dtype: str, remedy: str) -> None:
    """Raises a ValueError for arrays larger than the memory of the machine, or than their file.

    They hold `count` real numbers, and belong to `holder`, in words. `remedy` says what to do where
    they do not fit into memory.
    """
    needed, stored = count * (8 if dtype == "float64" else 4), _bytes_of_file.get()
    if stored is not None and needed > stored:
        raise ValueError(
            f"{holder} has arrays of {_in_words(needed)}, but the file has {_in_words(stored)}: "
            "the numbers in its config were changed after it was saved"
        )
    if hasattr(os, "sysconf"):  # Windows does not tell
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if needed > memory:
            machine = f"this machine has {_in_words(memory)} of memory"
            raise ValueError(f"{holder} needs {_in_words(needed)}, but {machine}: {remedy}")


def _in_words(size: int) -> str:
    return f"{size / 1e9:.3g} GB" if size >= 1e8 else f"{size / 1e3:.3g} kB"


Outputs = dict[str, tf.Tensor]

# Nobody differentiates what is exported; and gradients of ours call Python.
WITHOUT_GRADIENTS = tf.saved_model.SaveOptions(experimental_custom_gradients=False)


class ServedStep(NamedTuple):
    """The step of an estimator as a pure function, for a SavedModel."""

    step: Callable[..., tuple[Any, Outputs]]  # of state and arguments, the next and results
    arguments: Sequence[tf.TensorSpec]  # the arguments of a step
    # Assertions against states and arguments that a step refuses.
    check: Callable[..., list[tf.Operation]] = lambda state, *arguments: []


class Served(tf.Module):
    """The functions of an estimator, and its state in variables, to be written as a SavedModel.

    `predict` is a function of the state, a structure of tensors, and of arguments; it returns
    tensors by name. `online` is None for an estimator that takes no samples.
    """

    def __init__(
        self,
        state: Any,
        predict: Callable[..., Outputs],
        arguments: Sequence[tf.TensorSpec],
        online: ServedStep | None = None,
    ):
        super().__init__()
        self._structure = state
        leaves = tf.nest.flatten(state)
        # Of any size: a graph that knew those of large data would write them out as constants.
        self._state = [tf.Variable(leaf, trainable=False) for leaf in leaves]
        self._predict, self._online = predict, online
        self.predict = _graph(lambda *inputs: self._predict(self._read(), *inputs), arguments)
        if online is not None:
            self._first = [tf.Variable(leaf, trainable=False) for leaf in leaves]
            self.step = _graph(self._step, online.arguments)
            self.reset = _graph(self._reset, [])

    def _read(self) -> Any:
        values = [tf.convert_to_tensor(variable) for variable in self._state]
        return tf.nest.pack_sequence_as(self._structure, values)

    def _step(self, *arguments: tf.Tensor) -> Outputs:
        assert self._online is not None
        before = self._read()
        checks = self._online.check(before, *arguments)
        following, outputs = self._online.step(before, *arguments)
        pairs = zip(*map(tf.nest.flatten, (before, following)), strict=True)
        changed = {i: after for i, (leaf, after) in enumerate(pairs) if leaf is not after}
        sound = tf.reduce_all([_is_finite(leaf) for leaf in changed.values()])
        refused = "the state would not be finite any more, and is as it was"
        with tf.control_dependencies([*checks, tf.debugging.Assert(sound, [refused])]):
            tensors = {i: tf.identity(leaf) for i, leaf in changed.items()}
        for i, tensor in tensors.items():
            self._state[i].assign(tensor)
        return outputs

    def _reset(self) -> Outputs:
        for variable, first in zip(self._state, self._first, strict=True):
            variable.assign(first)
        return {"done": tf.constant(True)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the SavedModel to a folder."""
        functions = {"serving_default": self.predict, "predict": self.predict}
        if self._online is not None:
            functions |= {"step": self.step, "reset": self.reset}
        concrete = {name: f.get_concrete_function() for name, f in functions.items()}
        # The hyperparameters that the graphs read, which are attributes of layers elsewhere.
        self._read_by_graphs = [v for f in concrete.values() for v in f.variables]
        tf.saved_model.save(self, os.fspath(path), signatures=concrete, options=WITHOUT_GRADIENTS)


def _graph(function: Callable[..., Outputs], arguments: Sequence[tf.TensorSpec]) -> Any:
    def by_name(*inputs: tf.Tensor) -> Outputs:
        return function(*inputs)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [inspect.Parameter(spec.name, kind) for spec in arguments]
    by_name.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    return tf.function(by_name, input_signature=list(arguments), autograph=False)


def _is_finite(a: tf.Tensor) -> tf.Tensor:
    if not (a.dtype.is_floating or a.dtype.is_complex):
        return tf.constant(True)
    return tf.reduce_all(tf.math.is_finite(tf.abs(a)))


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
        custom_objects: Classes and functions by name, beside those that are registered with Keras,
            as all classes of cgp are.
        compile: Whether to compile the model, if it was compiled when it was saved.
        safe_mode: Whether to refuse pickled lambdas, which may run any code.

    Returns:
        The model, with its weights and, if it was compiled, the state of its optimizer.

    Raises:
        FileNotFoundError: No file of this name.
        ValueError: The file is damaged: empty, cut short, or changed, as where its config asks for
            more than its arrays hold.
        TypeError: An argument of another kind; what Keras raises for a class that is not
            registered.

    Example:
        >>> import tempfile, cgp
        >>> gp = cgp.ExactGP(cgp.kernels.RBF(1.0, 1.0), noise_variance=0.1)
        >>> gp.condition([0.0, 1.0], [1j, 2j])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     gp.save(f"{folder}/signal.keras")
        ...     loaded = cgp.load_model(f"{folder}/signal.keras")
        >>> bool(loaded.predict([0.5])["mean"] == gp.predict([0.5])["mean"])
        True
    """
    if not isinstance(filepath, str | os.PathLike):
        raise TypeError(f"filepath must be a path, got {filepath!r}")
    if not isinstance(custom_objects, Mapping | None):
        raise TypeError(
            f"custom_objects must be a dictionary of classes and functions, got {custom_objects!r}"
        )
    as_flag(compile, "compile"), as_flag(safe_mode, "safe_mode")
    path = os.fspath(filepath)
    if "://" not in path and not os.path.exists(path):
        raise FileNotFoundError(f"there is no file {path!r} to load a model from")
    check_undamaged(path)
    with sharing_scope(), arrays_of_file(_unpacked_size(path)), _errors_of(path):
        return keras.saving.load_model(filepath, custom_objects, compile, safe_mode)


def check_undamaged(filepath: str | os.PathLike[str]) -> None:
    """Raises a ValueError if a file of a model or of weights exists here and is damaged.

    A file that is neither `.keras` nor HDF5 is not looked at.
    """
    path, damage = os.fspath(filepath), None
    if os.path.isfile(path) and path.endswith(".keras"):
        damage = _damage_of_archive(path)
    elif os.path.isfile(path) and path.endswith((".h5", ".hdf5")):
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


def _unpacked_size(path: str) -> int | None:
    """The bytes of a file, or of all files in a folder, unpacked; None where there is none."""
    if path.endswith(".keras") and os.path.isfile(path):
        with zipfile.ZipFile(path) as archive:
            return sum(entry.file_size for entry in archive.infolist())
    files = [Path(path), *Path(path).rglob("*")] if os.path.exists(path) else []
    return sum(file.stat().st_size for file in files if file.is_file()) if files else None


@contextlib.contextmanager
def _errors_of(path: str) -> Iterator[None]:
    """A context in which errors about a config or about arrays name the file that they come from.

    Keras puts the whole config before the reason, and advice to whoever writes a class.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        reason: BaseException | None = error
        while reason is not None and _WRAPPED_BY_KERAS in str(reason):
            reason = reason.__cause__ or reason.__context__
        of_arrays = re.search(_OF_ARRAYS, str(error), re.DOTALL)
        frames = [] if reason is None else [f for f, _ in traceback.walk_tb(reason.__traceback__)]
        modules = [frame.f_globals.get("__name__", "") for frame in frames]
        if of_arrays is None and not (modules and modules[-1].startswith("cgp.")):
            raise
        text = of_arrays.group(1) if of_arrays else str(reason)
        raise ValueError(
            f"the file {path!r} cannot be loaded: {text}. If it was changed after it was saved, "
            "load a copy, or save the model again"
        ) from error


_WRAPPED_BY_KERAS = "Exception encountered: "
_OF_ARRAYS = r"Example error message for object .*?:\n\n(.*?)\n\nList of objects"


def numbered(store: Mapping[str, Any]) -> dict[str, Any]:
    """The weights in the store of a layer, which Keras numbers; other entries are left out."""
    return {key: store[key] for key in store.keys() if key.isdigit()}  # noqa: SIM118


def can_be_replaced(filepath: Any, *endings: str) -> bool:
    """Whether a path names one file with one of these endings, in a folder that exists here."""
    if not isinstance(filepath, str | os.PathLike):
        return False
    path = os.fspath(filepath)
    return path.endswith(endings) and os.path.isdir(os.path.dirname(path) or os.curdir)


def write_beside(
    filepath: str | os.PathLike[str], overwrite: bool, write: Callable[[str], None]
) -> None:
    """Writes a file beside a path that `can_be_replaced`, and renames it once it is complete.

    A process that is killed on the way leaves the earlier file, and a folder of temporary files,
    whose name begins with a dot and the name of the file. The next file that is written there
    removes the folders of processes that have ended. A symbolic link is followed. Without
    `overwrite` an existing file is replaced if a prompt is answered so; where `write` raises, it
    stays.
    """
    path = os.fspath(filepath)
    if os.path.exists(path) and not overwrite and not ask_to_proceed_with_overwrite(path):
        return
    place, name = os.path.realpath(path), os.path.basename(path)
    beside = os.path.dirname(place)
    _clear(beside, name)
    prefix = f".{name}-{_processes()}-{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=beside) as folder:
        written = os.path.join(folder, name)
        write(written)
        if os.path.exists(place):
            shutil.copymode(place, written)
        with open(written, "rb+") as file:
            os.fsync(file.fileno())  # else a power cut could leave the new name without content
        os.replace(written, place)


def _clear(folder: str, name: str) -> None:
    """Removes temporary folders that processes on this machine left when they were killed."""
    if os.name != "posix":  # elsewhere there is no signal that only asks whether a process is there
        return
    temporary = re.compile(rf"\.{re.escape(name)}-{re.escape(_processes())}-(\d+)-\w+")
    for entry in os.listdir(folder):
        match = temporary.fullmatch(entry)
        if match is not None and not _is_running(int(match.group(1))):
            shutil.rmtree(os.path.join(folder, entry), ignore_errors=True)


def _processes() -> str:
    """A name of the machine or container, in which process numbers are unique."""
    host = f"{zlib.crc32(socket.gethostname().encode()):x}"
    try:
        return f"{host}.{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:  # not Linux
        return host


def _is_running(process: int) -> bool:
    with contextlib.suppress(PermissionError, OverflowError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True


@contextlib.contextmanager
def _without_note_of_numpy() -> Iterator[None]:
    """A context without NumPy's warning about `__array__` of Keras variables, for saving.

    `keras.Variable` and `tf.Variable` have an `__array__` without `copy`, up to Keras 3.15 and
    TensorFlow 2.21; their arrays are copies all the same.
    """
    with warnings.catch_warnings():
        words = "__array__ implementation doesn't accept a copy keyword"
        warnings.filterwarnings("ignore", words, DeprecationWarning)
        yield


# To mypy, a class whose attributes are all known to exist; in truth the Keras model comes after the
# mixins, in `cgp.Model` and `cgp.Functional`.
_Base: Any = object


class Saving(_Base):
    """A mixin before a Keras model class: files that are replaced as a whole, and SavedModels."""

    def save(
        self, filepath: Any, overwrite: bool = True, zipped: bool | None = None, **kwargs: Any
    ) -> None:
        """Saves the model: Keras's `save`, made atomic.

        A `.keras` file is written beside its place, and moved there once it is complete: saving
        that fails or is killed leaves the old file. `cgp.load_model` loads it.
        """
        save = super().save

        def write(path: str) -> None:
            save(path, zipped=zipped, **kwargs)
            if path.endswith(".keras"):
                _name_package(path)

        with _without_note_of_numpy():
            if zipped is False or not can_be_replaced(filepath, ".keras", ".h5", ".hdf5"):
                save(filepath, overwrite=overwrite, zipped=zipped, **kwargs)
            else:
                write_beside(filepath, overwrite, write)

    def save_weights(
        self, filepath: Any, overwrite: bool = True, max_shard_size: float | None = None
    ) -> None:
        """Saves the weights: Keras's `save_weights`; a single file is replaced as by `save`."""
        save = super().save_weights
        with _without_note_of_numpy():
            if max_shard_size is None and can_be_replaced(filepath, ".weights.h5"):
                write_beside(filepath, overwrite, save)
            else:
                save(filepath, overwrite=overwrite, max_shard_size=max_shard_size)

    def __reduce__(self) -> Any:
        """Copies or pickles the model, as Keras does, by saving it."""
        with _without_note_of_numpy():
            return super().__reduce__()

    def load_weights(self, filepath: Any, skip_mismatch: bool = False, **kwargs: Any) -> None:
        """Loads weights, as Keras's `load_weights` does, from a file that is not damaged.

        Raises:
            ValueError: The file is damaged; and what Keras raises.
        """
        check_undamaged(filepath)
        path = os.fspath(filepath)
        with arrays_of_file(_unpacked_size(path)), _errors_of(path):
            super().load_weights(filepath, skip_mismatch, **kwargs)

    def export(self, filepath: Any, format: str = "tf_saved_model", **kwargs: Any) -> None:
        """Writes a SavedModel, which TensorFlow runs where neither Keras nor cgp is.

        The SavedModel of an estimator, loaded by `tf.saved_model.load`, has `predict`, and `step`
        and `reset` if the estimator takes samples in one at a time. A step has the arguments and
        results of the method, as tensors by name ("predicted_mean", "innovation", …). It goes on
        from the state of the estimator, and keeps its own in variables; `reset` takes that back to
        the state at the time of the export. There are as many streams as the estimator has: to make
        more, give it a step of missing values first, and reset it. For other models it is Keras's
        `export`.

        Args:
            filepath: The folder to write.
            format: "tf_saved_model".
            **kwargs: Further arguments of Keras's `export`, for models that are no estimators.

        Raises:
            TypeError: Further arguments for an estimator.
            ValueError: Another format: other runtimes have no complex numbers.
        """
        if format != "tf_saved_model":
            why = "other runtimes have no operations on complex128"
            raise ValueError(f'format must be "tf_saved_model", got {format!r}: {why}')
        served = self._served()
        if served is None:
            self._export_call(filepath, **kwargs)
            return
        names = [name for name in kwargs if name != "verbose"]
        if names:
            functions = f"the functions of a {type(self).__name__}"
            raise TypeError(f"{', '.join(names)}: {functions} and their arguments are its own")
        served.save(filepath)

    def _export_call(
        self, filepath: Any, input_signature: Any = None, verbose: bool = True, **kwargs: Any
    ) -> None:
        """Keras's `export`, without gradients: the gradients of cgp call Python."""
        archive = keras.export.ExportArchive()
        signature = get_input_signature(self) if input_signature is None else input_signature
        archive.track_and_add_endpoint("serve", self, signature, **kwargs)
        archive.write_out(filepath, options=WITHOUT_GRADIENTS, verbose=verbose)

    def _served(self) -> Served | None:
        """The functions of an estimator for `export`; None for any other model."""
        return None


# --- a file of a model says that cgp is to be imported before Keras loads it ----------------------

_REMEDY = "import cgp before keras.models.load_model, or load the file with cgp.load_model"
_ANNOTATED = ("config.json", "metadata.json")


def _name_package(path: str | os.PathLike[str]) -> None:
    """Writes into a new `.keras` file of a class of cgp that it needs this package.

    Keras names what it cannot locate by `class_name`, and locates it by `registered_name`; files
    with the plain name, as earlier versions wrote them, load as these do.
    """
    with zipfile.ZipFile(path) as archive:
        contents = {name: json.loads(archive.read(name)) for name in _ANNOTATED}
    config, metadata = contents["config.json"], contents["metadata.json"]
    if not str(config.get("registered_name")).startswith("cgp"):
        return
    config["class_name"] = f"{config['class_name']} of the package cgp ({_REMEDY})"
    metadata["needs"] = f"the package cgp: {_REMEDY}"
    plain = f"{os.fspath(path)}.plain"
    os.rename(path, plain)
    _copy(plain, path, contents)
    os.remove(plain)


def _copy(path: str, to: str | os.PathLike[str], contents: dict[str, Any]) -> None:
    """Copies a zip archive, with other contents for some of its JSON files."""
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(to, "w") as copy:
        for member in archive.infolist():
            if member.filename in contents:
                copy.writestr(member, json.dumps(contents[member.filename]))
                continue
            with archive.open(member) as source, copy.open(member, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target, 2**20)


_PACKAGE = "cgp"
for _class in (Iterated, Magnitude, OneBit, SigmaPoints, StudentT, Taylor, VonMises):
    keras.saving.register_keras_serializable(_PACKAGE)(_class)


def registered_config(rule: Rule | Likelihood | None) -> dict[str, Any] | None:
    """Converts a rule or a likelihood to the name of its class and its arguments."""
    if rule is None:
        return None
    kind = type(rule)
    name = keras.saving.get_registered_name(kind)
    if keras.saving.get_registered_object(name) is not kind:
        word = "rule" if isinstance(rule, Rule) else "likelihood"
        raise ValueError(
            f"a {word} of type {kind.__name__} cannot be saved: register its class with "
            "keras.saving.register_keras_serializable()"
        )
    arguments = {
        key: registered_config(argument) if isinstance(argument, Rule | Likelihood) else argument
        for key, argument in rule.get_config().items()
    }
    return {"name": name.removeprefix(f"{_PACKAGE}>"), **arguments}


def from_registered_config(config: Mapping[str, Any] | None) -> Any:
    """Makes the rule or the likelihood of a `registered_config`."""
    if config is None:
        return None
    arguments = {
        key: from_registered_config(argument) if isinstance(argument, Mapping) else argument
        for key, argument in config.items()
    }
    name = arguments.pop("name", None)
    registered = (name, f"{_PACKAGE}>{name}")
    kind = next(filter(None, map(keras.saving.get_registered_object, registered)), None)
    if not isinstance(kind, type) or not issubclass(kind, Rule | Likelihood):
        raise ValueError(
            "the config of a rule or a likelihood names a class that is registered with Keras, got "
            f"{name!r}: import the module that registers it"
        )
    return kind(**arguments)
