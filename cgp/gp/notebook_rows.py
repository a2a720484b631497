"""How many data a Gaussian process holds, in words, as notebooks show it."""

from typing import Any

import numpy as np

from cgp.gp.data import Data


def data_in_words(data: Data) -> str:
    """The numbers of series, of samples and of those that are missing."""
    series, samples = data.z.shape
    if not series * samples:
        return "none"
    missing = int(np.sum(~data.present.numpy()))
    words = f"{samples} samples" if data.is_single else f"{series} series of {samples} samples"
    return words + (f", {missing} missing" if missing else "")


def window_in_words(gp: Any) -> str:
    """How full the window of a `RecursiveGP` is, or the windows of its streams."""
    sizes = np.atleast_1d(gp.size)
    least, most = sizes.min(), sizes.max()
    points = f"{most}" if least == most else f"{least} to {most}"
    streams = f" in each of {len(sizes)} streams" if np.ndim(gp.size) else ""
    return f"{points} points of at most {gp.capacity}{streams}, {gp.policy}"
