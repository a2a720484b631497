"""Everything that cgp uses of the private parts of SciPy, in one place, each with its reason.

A version of SciPy without them leaves the compiled core without LAPACK, and nothing else changes.
"""

import ctypes
import re

# The type of a matrix has a name of SciPy's own. Integers of 64 bits would not be called int.
_POTRF = rb"void \(char \*, int \*, \w+ \*, int \*, int \*\)"
_ZTRSM = rb"void \((char \*, ){4}(int \*, ){2}\w+ \*, \w+ \*, int \*, \w+ \*, int \*\)"


def lapack_addresses(names: list[str]) -> list[int | None]:
    """The addresses of routines of LAPACK with the arguments of `potrf`, as "dpotrf", in SciPy.

    After them come the address of BLAS's ztrsm, and those of two functions of OpenBLAS that set and
    get its number of threads; None for these if SciPy is linked to another BLAS.

    Raises:
        ImportError, AttributeError, KeyError, ValueError, OSError: SciPy has no such routines.
    """
    from scipy.linalg import cython_blas, cython_lapack  # here: importing them takes long

    addresses: list[int | None] = [
        _address(cython_lapack.__pyx_capi__[name], _POTRF) for name in names
    ]
    addresses.append(_address(cython_blas.__pyx_capi__["ztrsm"], _ZTRSM))
    blas = ctypes.CDLL(cython_lapack.__file__)  # with what it is linked to
    return [*addresses, *(thread_function(blas, verb) for verb in ("set", "get"))]


def thread_function(blas: ctypes.CDLL, verb: str) -> int | None:
    """The address of OpenBLAS's function for its number of threads; None if it is another BLAS."""
    for prefix in ("scipy_", ""):
        function = getattr(blas, f"{prefix}openblas_{verb}_num_threads", None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value
    return None


def _address(capsule: object, signature: bytes) -> int:
    """The address in a capsule, or a ValueError for a function of other arguments than expected."""
    python = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", python))
    address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", python)
    )
    name = name_of(capsule)
    if not re.fullmatch(signature, name):
        raise ValueError(f"the signature {name.decode()} is not known")
    return address_of(capsule, name)
