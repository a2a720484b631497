"""The compiled core: ops in C++ for work on the CPU, where it was built with the package.

They serve eagerly, and in the graphs of training steps. Results are the same as by the TensorFlow
path of a function, which is taken in other graphs, under XLA, on a GPU, and where an op refuses its
input eagerly: the path then raises the error. The environment variable `CGP_NATIVE=0` turns the
core off. `python -m cgp.native` says whether it is active, and why not.
"""

import contextlib
import contextvars
import ctypes
import functools
import importlib.machinery
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.native.scipy_private import lapack_addresses
from cgp.tensorflow_private import EagerTensor, is_part_of_graph

_HERE = Path(__file__).parent
_log = logging.getLogger("cgp")


class Core(NamedTuple):
    """The compiled core, loaded or not."""

    ops: ModuleType | None  # the compiled ops; None if the core is not active
    reason: str  # where it was loaded from, or why it is not active
    library: ctypes.CDLL | None = None
    """The library of its C functions; None if the core is not active."""


@functools.cache
def core() -> Core:
    """Loads the compiled core, once. The log has a warning where it should exist but does not."""
    if os.environ.get("CGP_NATIVE") == "0":
        return Core(None, "turned off by CGP_NATIVE=0")
    suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
    libraries = sorted(path for path in _HERE.glob("_ops*") if path.name.endswith(suffixes))
    if not libraries:
        return _missing("it was not built: there was no C++ compiler, or it failed")
    path = str(libraries[0])
    try:
        # TensorFlow 2.18 loads its C interface with local symbols; ops look for them globally.
        framework = next(Path(tf.sysconfig.get_lib()).glob("libtensorflow_framework.*"))
        ctypes.CDLL(str(framework), mode=ctypes.RTLD_GLOBAL)
        ops = tf.load_op_library(path)
        library = ctypes.CDLL(path)
        refusal = library.cgp_refusal
    except (OSError, tf.errors.OpError, AttributeError) as error:
        return _missing(f"{path} could not be loaded: {error}")
    refusal.restype = ctypes.c_char_p
    if refusal():
        return _missing(f"{path}: {refusal().decode()}")
    return Core(ops, f"loaded from {path}", library)


def _missing(reason: str) -> Core:
    _log.warning("cgp runs without its compiled core, slower and with the same results: %s", reason)
    return Core(None, reason)


@functools.cache
def has_lapack() -> bool:
    """Whether the core has LAPACK, SciPy's. The first call hands over pointers to its functions."""
    library = core().library
    if library is None:
        return False
    names = [kind + name for kind in "zcds" for name in ("potrf", "potri")]
    try:
        addresses = lapack_addresses(names)
    except (ImportError, AttributeError, KeyError, ValueError, OSError):
        return False
    library.cgp_use_lapack((ctypes.c_void_p * len(addresses))(*addresses))
    return True


# The precision of the numbers that ops compute with, by their dtypes in NumPy and TensorFlow.
_PRECISIONS = {
    key: dtype.real_dtype
    for dtype in (tf.complex128, tf.complex64, tf.float64, tf.float32)
    for key in (dtype, np.dtype(dtype.as_numpy_dtype))
}


def serves(*arrays: Any) -> bool:
    """Whether compiled ops take these: eager tensors or NumPy arrays of one dtype, on the CPU."""
    if not tf.executing_eagerly() or core().ops is None or not all(map(is_array, arrays)):
        return False
    dtype = arrays[0].dtype
    return dtype in _PRECISIONS and all(array.dtype == dtype for array in arrays[1:])


def op(name: str) -> Callable[..., Any]:
    """The compiled op of a name, where ops serve."""
    return getattr(core().ops, name)


def attempt(name: str, *arguments: Any, **named: Any) -> Any:
    """The result of an op, eagerly; None where it refuses its input."""
    try:
        return op(name)(*arguments, **named)
    except tf.errors.InvalidArgumentError:
        return None


def function(name: str) -> Callable[..., int]:
    """A plain C function of the core, for arrays in memory; it exists where the core is active."""
    return getattr(core().library, name)


class MomentArrays(ctypes.Structure):
    """The addresses of the arrays to which a C function writes moments."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("mean", "variance", "pseudo")]


class MomentRecord:
    """The moments of a step, which a C function writes into one record: it is copied at once.

    Args:
        arguments: The structure of the function, whose fields `predicted` and `filtered` are
            `MomentArrays`.
        shapes: The shape of the moments of each.
        of_mean: The dtype of means and pseudo-variances.
        of_variance: The dtype of variances.
        pairs: The shape of covariance and pseudo-covariance of all predicted components, which
            `predicted` has too; None for none.
    """

    def __init__(
        self,
        arguments: Any,
        shapes: Mapping[str, tuple[int, ...]],
        of_mean: np.dtype,
        of_variance: np.dtype,
        pairs: tuple[int, ...] | None = None,
    ):
        kinds = {"mean": of_mean, "variance": of_variance, "pseudo": of_mean}
        fields: list[tuple] = [
            (f"{name} {moment}", kind, shape)
            for name, shape in shapes.items()
            for moment, kind in kinds.items()
        ]
        if pairs is not None:
            joint = ("predicted covariance", "predicted pseudo_covariance")
            fields += [(name, of_mean, pairs) for name in joint]
        self._record = np.zeros((), fields)
        for field, *_ in fields:
            name, moment = field.split()
            setattr(getattr(arguments, name), moment, self._record[field].ctypes.data)
        # E(x − m)² of a real number is its variance; of a proper one it is zero.
        is_complex = np.dtype(of_mean).kind == "c"
        moments = ("mean", "variance", "pseudo" if is_complex else "variance")
        self._names = [[f"{name} {moment}" for moment in moments] for name in shapes]
        if pairs is not None:
            self._names.append(list(joint) if is_complex else [joint[0], joint[0]])

    def moments(self) -> list[Iterator[Any]]:
        """Mean, variance and pseudo-variance of each, then the joint moments, if there are any.

        New arrays, or numbers where they have no axes.
        """
        record = self._record.copy()[()]
        return [map(record.__getitem__, names) for names in self._names]


def serves_graphs() -> bool:
    """Whether compiled ops may be part of a graph that XLA does not compile and nobody exports."""
    return core().ops is not None and not _has_gpu()


_own_graph: contextvars.ContextVar[Any] = contextvars.ContextVar("_own_graph", default=None)


@contextlib.contextmanager
def own_graph(is_own: bool = True) -> Iterator[None]:
    """A context in which compiled ops may become part of the graph that is being traced.

    XLA must not compile this graph, and nobody may export it: the graph of a training step,
    for instance. Another function that is traced on the way is not included, since XLA may compile
    it, and it is kept for later calls.
    """
    is_traced = is_own and not tf.executing_eagerly()
    token = _own_graph.set(tf.compat.v1.get_default_graph() if is_traced else None)
    try:
        yield
    finally:
        _own_graph.reset(token)


def serves_own_graph() -> bool:
    """Whether compiled ops may be part of the graph that is being traced."""
    graph = tf.compat.v1.get_default_graph()
    return is_part_of_graph(graph, _own_graph.get()) and serves_graphs()


def serves_here(*arrays: Any) -> bool:
    """Whether compiled ops take these eagerly, or may be part of the graph that is being traced."""
    return serves(*arrays) if tf.executing_eagerly() else serves_own_graph()


def is_array(x: Any) -> bool:
    """Whether this is an eager tensor on the CPU or a NumPy array, one with a mask excepted."""
    if type(x) is EagerTensor:
        return not _has_gpu() or "CPU" in x.device
    return type(x) is np.ndarray


def precision(array: Any) -> tf.DType:
    """The real dtype of an array that ops serve, float64 or float32."""
    return _PRECISIONS[array.dtype]


@functools.cache
def _has_gpu() -> bool:
    return bool(tf.config.list_physical_devices("GPU"))
