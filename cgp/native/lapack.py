"""LAPACK for the compiled core: pointers to the functions that SciPy brings."""

import ctypes
import functools

from cgp import native

# In the order that the core takes them in.
_NAMES = [kind + name for kind in "zcds" for name in ("potrf", "potri")]


@functools.cache
def is_there() -> bool:
    """Whether the core has LAPACK. The first call hands it over, and imports `scipy.linalg`."""
    library = native.core().library
    if library is None:
        return False
    try:
        from scipy.linalg import cython_lapack  # here: importing it takes long

        pointers = [_pointer(cython_lapack.__pyx_capi__[name]) for name in _NAMES]
    except (ImportError, AttributeError, KeyError, ValueError):
        return False
    library.cgp_use_lapack((ctypes.c_void_p * len(pointers))(*pointers))
    return True


def _pointer(capsule: object) -> int:
    """The address in a capsule, whose name is the signature of the function.

    Raises:
        ValueError: The function takes other arguments than the core gives it.
    """
    api = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", api)
    )
    name = name_of(capsule)
    result, _, arguments = name.decode().rstrip(")").partition(" (")
    kinds = arguments.split(", ")
    # Those of the matrix are named by SciPy; a build with integers of 64 bits would not say int.
    if result != "void" or kinds[:2] + kinds[3:] != ["char *", "int *", "int *", "int *"]:
        raise ValueError(f"the signature {name!r} is not known")
    return address_of(capsule, name)
