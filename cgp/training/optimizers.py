"""The L-BFGS optimizer, for `compile` and `fit`."""

from typing import Any

import keras
import numpy as np

from cgp.linalg.arguments import check_whole
from cgp.training.layer_arguments import ReadOnlyArguments


@keras.saving.register_keras_serializable(package="cgp")
class LBFGS(ReadOnlyArguments, keras.optimizers.Optimizer):
    """SciPy's L-BFGS-B over all trainable variables, through `compile` and `fit`.

    The usual way to fit the hyperparameters of a Gaussian process: a few dozen evaluations of the
    full-batch loss, each by one compiled function, and no learning rate. An epoch is an iteration;
    `epochs` of `fit` caps their number, and None runs to convergence. It works in `cgp.Model` and
    `cgp.Functional` only, since it replaces the training loop of `fit`.

    The line search turns back where the loss cannot be evaluated (a covariance that is not positive
    definite, NaN) or a hyperparameter leaves its constraint (a variance that underflows to zero).
    Compiled metrics are not computed; validation is.

    After `fit`, `result` holds SciPy's `OptimizeResult` with its `message`, `nit` and `nfev`. `fit`
    warns when the line search stopped far from a stationary point, and names the parameters there.

    Args:
        maxcor: The number of correction pairs that approximate the Hessian; None for as many as
            there are variables, at least 10 and at most 100.
        ftol: Converged when an iteration lowers the loss by less than this, relative to the larger
            of 1 and the fall of the loss so far, at most a hundred. At least ten times the
            rounding of the variables is taken: 2e-15, or 1e-6 of float32.
        gtol: Converged when no component of the gradient exceeds this.
        name: Name of the optimizer.

    Example:
        >>> import cgp
        >>> optimizer = cgp.optimizers.LBFGS(gtol=1e-6)
        >>> optimizer.result is None  # until it has been used in fit
        True
    """

    def __init__(
        self,
        maxcor: int | None = None,
        ftol: float = 1e-11,
        gtol: float = 1e-7,
        name: str = "lbfgs",
    ) -> None:
        super().__init__(learning_rate=1.0, name=name)
        if maxcor is not None:
            check_whole(maxcor, "maxcor")
        for name_of, tolerance in (("ftol", ftol), ("gtol", gtol)):
            if not isinstance(tolerance, int | float | np.number):
                raise TypeError(f"{name_of} must be a number, got {tolerance!r}")
            if not 0 <= tolerance < np.inf:
                raise ValueError(f"{name_of} must be finite and not negative, got {tolerance}")
        self.maxcor = None if maxcor is None else int(maxcor)
        self.ftol, self.gtol = float(ftol), float(gtol)
        self.record_result(None)

    @property
    def result(self) -> Any:
        """The `OptimizeResult` of SciPy for the last fit, or None."""
        return self._result

    def record_result(self, result: Any) -> None:
        """Stores the `OptimizeResult` of a fit as `result`."""
        # Past Keras's attribute tracking, which would replace the result by a plain dictionary.
        object.__setattr__(self, "_result", result)

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Raises an error: L-BFGS makes no single gradient steps.

        Raises:
            NotImplementedError: Always.
        """
        remedy = "use it through the fit of a cgp.Model or cgp.Functional"
        raise NotImplementedError(f"LBFGS takes no single gradient steps: {remedy}")

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {"maxcor": self.maxcor, "ftol": self.ftol, "gtol": self.gtol, "name": self.name}
