"""Memory of large results is used again only once nobody looks at it."""

import gc
import threading

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import native

pytestmark = pytest.mark.skipif(native.core().ops is None, reason=native.core().reason)

N = 200  # 640 kB


def updated(scale):
    """The factor of (1 + scale) in each element of the diagonal."""
    return cgp.linalg.cholesky_update(
        tf.eye(N, dtype=tf.complex128), tf.constant(np.eye(N)[0] * scale, tf.complex128)
    )


def test_does_an_array_outlive_its_tensor():
    views = [np.asarray(updated(scale)) for scale in range(5)]
    gc.collect()
    others = [updated(100.0) for _ in range(20)]
    for scale, view in enumerate(views):
        assert view[0, 0] == pytest.approx(np.hypot(1, scale), rel=1e-15)
    assert len({np.asarray(a).ctypes.data for a in [*views, *others]}) == 25


def test_do_results_that_are_dropped_leave_their_memory_to_the_next():
    places = set()
    for scale in range(20):
        places.add(np.asarray(updated(scale)).ctypes.data)
    assert len(places) < 5


def test_do_threads_get_memory_of_their_own():
    wrong = []

    def work(scale):
        for _ in range(30):
            result = np.asarray(updated(scale))
            if abs(result[0, 0] - np.hypot(1, scale)) > 1e-12 or np.any(result[1:, 0]):
                wrong.append(scale)

    threads = [threading.Thread(target=work, args=(scale,)) for scale in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
