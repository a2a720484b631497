"""The growing policy: every sample is kept, and a full window takes no more.

Until then the process is the exact one of all samples.
"""

import numpy as np
import tensorflow as tf

from cgp.gp.recursive.window import Window
from cgp.gp.recursive.window_recursion import Policy


class Growing(Policy):
    """The policy of a window that keeps all its points; arguments as for `Policy`."""

    replaces = False
    is_compiled = True

    def check_room(self, capacity: int, sizes: np.ndarray, coming: np.ndarray) -> None:
        """Raises a ValueError for observations beyond the capacity."""
        if np.any(sizes + coming > capacity):
            raise ValueError(
                f"capacity is {capacity}: a growing process that holds {np.max(sizes)} points "
                f"cannot take in {np.max(coming)} more. Make it with a larger capacity, or with "
                'policy="sliding" or policy="budget"'
            )

    def room(self, window: Window, coming: tf.Tensor) -> list[tf.Operation]:
        """Asserts that the capacity is enough."""
        capacity = window.x.shape[1]
        has_room = tf.reduce_all(window.size + coming <= capacity)
        message = f"capacity is {capacity}: a growing process takes in no more; points held, coming"
        return [tf.debugging.Assert(has_room, [message, window.size, coming])]
