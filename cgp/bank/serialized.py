"""Keys and states as bytes.

     8 bytes  a signature, and the version of the format
     4        CRC-32 of all that follows
     4        the length of the head
     ...      the head, JSON: values of the caller, keys that are not all integers, fields
     ...      keys that are integers of 64 bits
     ...      the arrays of the fields, one after another; of factors the lower triangles

Numbers are little-endian. Reading runs no code that bytes bring along: nothing is unpickled.
"""

import base64
import functools
import json
import struct
import zlib
from typing import Any, TypeAlias

import numpy as np

from cgp.bank.keys import Keys, as_keys

Rows: TypeAlias = dict[str, np.ndarray]

_KIND, _VERSION = b"cgpBank", b"\x01"
_START, _LENGTH = struct.Struct("<8sI"), struct.Struct("<I")
_DAMAGED = "the bytes of the bank are damaged: they were changed, or cut short"


def to_bytes(head: dict[str, Any], keys: Keys, rows: Rows) -> bytes:
    """Keys, and the arrays of their states, `[K, ...]`, with a head of JSON values.

    Raises:
        TypeError: A key that is no integer, string, bytes, or tuple of such.
    """
    arrays = [_lower(a) if name == "chol" else a for name, a in rows.items()]
    if isinstance(keys, np.ndarray):
        arrays.insert(0, keys)
    text = {
        **head,
        "count": len(keys),
        "keys": None if isinstance(keys, np.ndarray) else list(map(_as_json, keys)),
        "fields": [[name, a.shape[1:], a.dtype.name] for name, a in rows.items()],
    }
    written = json.dumps(text).encode()
    little = (np.ascontiguousarray(a, a.dtype.newbyteorder("<")) for a in arrays)
    body: list[Any] = [
        _LENGTH.pack(len(written)),
        written,
        *(a.reshape(-1).view(np.uint8) for a in little),
    ]
    check = functools.reduce(lambda crc, chunk: zlib.crc32(chunk, crc), body, 0)
    return b"".join([_START.pack(_KIND + _VERSION, check), *body])


def from_bytes(data: bytes) -> tuple[dict[str, Any], Keys, Rows]:
    """The head, the keys and the arrays that `to_bytes` has written.

    Raises:
        TypeError: Not bytes.
        ValueError: Bytes of something else, or damaged ones.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"a bank is read from bytes, got {type(data).__name__}")
    view = memoryview(data).cast("B")
    start = bytes(view[: _START.size])
    if not start.startswith(_KIND):
        raise ValueError("these are not the bytes of a cgp.Bank, which to_bytes() writes")
    if start[len(_KIND) : len(_KIND) + 1] not in (_VERSION, b""):
        raise ValueError("these bytes of a cgp.Bank were written by a later version of cgp")
    body = view[_START.size :]
    if len(start) < _START.size or zlib.crc32(body) != _START.unpack(start)[1]:
        raise ValueError(_DAMAGED)
    try:
        return _parsed(body)
    except (ArithmeticError, LookupError, TypeError, ValueError, struct.error) as error:
        raise ValueError(_DAMAGED) from error


def _parsed(body: memoryview) -> tuple[dict[str, Any], Keys, Rows]:
    end = _LENGTH.size + _LENGTH.unpack(body[: _LENGTH.size])[0]
    head = json.loads(bytes(body[_LENGTH.size : end]))
    count, keys = head["count"], head["keys"]

    def array(shape: list[int], dtype: str) -> np.ndarray:
        nonlocal end
        native_dtype, begin = np.dtype(dtype), end
        end += count * int(np.prod(shape, dtype=int)) * native_dtype.itemsize
        array_of_file = np.frombuffer(body[begin:end], native_dtype.newbyteorder("<"))
        return array_of_file.astype(native_dtype, copy=False).reshape(count, *shape)

    keys = array([], "int64") if keys is None else as_keys(list(map(_of_json, keys)))
    rows = {}
    for name, shape, dtype in head["fields"]:
        is_factor = name == "chol"
        a = array([shape[-1] * (shape[-1] + 1) // 2] if is_factor else shape, dtype)
        rows[name] = _of_lower(a, shape[-1]) if is_factor else a
    if end != len(body) or len(keys) != count:
        raise ValueError(_DAMAGED)
    return head, keys, rows


def _lower(a: np.ndarray) -> np.ndarray:
    """The lower triangles of matrices `[K, n, n]`, row by row, `[K, n (n + 1) / 2]`."""
    n = a.shape[-1]
    return a.reshape(len(a), n * n).take(np.flatnonzero(np.tri(n)), axis=1)


def _of_lower(lower: np.ndarray, n: int) -> np.ndarray:
    """`_lower` undone."""
    matrices = np.zeros((len(lower), n * n), lower.dtype)
    matrices[:, np.flatnonzero(np.tri(n))] = lower
    return matrices.reshape(-1, n, n)


def _as_json(key: Any) -> Any:
    """A key as JSON: bytes as an object, a tuple as a list."""
    if isinstance(key, str | int):
        return key
    if isinstance(key, bytes):
        return {"bytes": base64.b64encode(key).decode()}
    if isinstance(key, tuple):
        return list(map(_as_json, key))
    raise TypeError(
        "keys that are written must be integers, strings, bytes, or tuples of such, got "
        f"{key!r} of {type(key).__name__}"
    )


def _of_json(key: Any) -> Any:
    """`_as_json` undone."""
    if isinstance(key, list):
        return tuple(map(_of_json, key))
    return base64.b64decode(key["bytes"]) if isinstance(key, dict) else key
