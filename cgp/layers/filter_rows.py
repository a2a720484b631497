"""What a Kalman filter is made of, as notebooks show it."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from cgp.training.hyperparameters import Row, array_text
from cgp.training.keras_private import flatten_layers
from cgp.training.parameters import Parameterized


def filter_rows(kf: Any, stream: Any) -> Iterator[Row]:
    """The model, how it is linearised, the present values of learned matrices, and the streams.

    Args:
        kf: The `KalmanFilter`.
        stream: Its `KalmanStream`, or None.
    """
    yield Row("model", repr(kf.learned_model.start))
    for name in ("rule", "likelihood"):
        if getattr(kf, name) is not None:
            yield Row(name, repr(getattr(kf, name)))
    uses = Counter(map(id, kf.learned.values()))
    for name, layer in kf.learned.items():
        notes = [] if uses[id(layer)] == 1 else [f"shared by {uses[id(layer)]} matrices"]
        inside = [x for x in flatten_layers(layer) if isinstance(x, Parameterized)]
        fixed = [p.name for x in inside for p in x.own_parameters if p.fixed]
        if fixed:
            notes.append(f"fixed: {', '.join(fixed)}")
        value = array_text(kf.learned_model.matrix(name))
        yield Row(name, value, ", ".join(["learned", *notes]))
    streams = "none yet" if stream is None else str(stream.streams or 1)
    yield Row("streams", streams)
