"""What a process is called on, as a layer: x, or the pair (x, z)."""

from typing import Any

from cgp.training.complex_graphs import is_complex


def check_pair(inputs: Any) -> None:
    """Raises a TypeError for complex values where positions are wanted, symbolic tensors too.

    Args:
        inputs: Positions alone, or a tuple or list that begins with them.
    """
    is_pair = isinstance(inputs, tuple | list)
    x = inputs[0] if is_pair and len(inputs) else inputs
    if not is_complex(x):
        return
    came = f"{getattr(x.dtype, 'name', x.dtype)} of shape {tuple(x.shape)}"
    if is_pair:
        raise TypeError(
            f"the pair (x, z) begins with x, real positions, got {came}: a complex position is two "
            "real coordinates, np.stack([x.real, x.imag], axis=-1)"
        )
    raise TypeError(
        f"a process is called on the pair (x, z), positions and complex observations, or on real x "
        f"alone, got {came} alone: gp((x, z)). A model of such a layer has two inputs: "
        'cgp.Functional([x, z], gp((x, z))["mean"]) of x = keras.Input((N, D), dtype="float64") '
        'and z = keras.Input((N,), dtype="complex128"), not a Sequential'
    )
