"""Comparison of models on one set of data: scores, weights, predictions of all together."""

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np

from cgp.distributions.marginals import (
    Marginals,
    marginals,
    mixture,
    normalized_innovation_squared,
)
from cgp.gp import ExactGP, GridGP
from cgp.gp.data import as_inputs_and_targets, check_labels
from cgp.gp.maximum_likelihood import MaximumLikelihoodGP
from cgp.gp.noise import NoiseArguments
from cgp.linalg.arguments import ArrayLike, check_whole, complex_dtype, generator_of
from cgp.metrics import coverage, log_predictive_densities, normalized_error_db
from cgp.observations import as_observations
from cgp.training.batches import where_watched

_HEADS = {
    "log_likelihood": "log likelihood",
    "parameters": "parameters",
    "effective_parameters": "effective",
    "bic": "BIC",
    "cv_density": "CV density",
    "cv_error_db": "CV error (dB)",
    "loo_density": "LOO density",
    "coverage": "in 95 % region",
    "calibration": "error / predicted",
    "weight": "weight",
}


# A model whose squared error in cross-validation is ten times the error of another is out of the
# question. Densities do not always say so: they hardly tell models apart whose errors are far below
# the least noise that a fit assumes.
_LARGEST_EXCESS_ERROR_DB = 10.0
_MOST_CELLS = 500  # of a grid, left out of a fit
_MOST_CELLS_OF_ALL = 2_000_000  # these times all cells: each takes about an evaluation
_LEAST_WEIGHT = 1e-3  # a model of less has none, and is not asked for predictions
_CHANCE = 3.0  # standard errors of the mean of squared errors over predicted variances


class Scores(NamedTuple):
    """The scores of one model."""

    log_likelihood: float
    """The log marginal likelihood of all data, at its maximum."""
    parameters: int
    """The number of real numbers that were learned."""
    bic: float
    """`parameters · log N − 2 log_likelihood`: the lower, the better. Coefficients and
    poles that a mean marginalises are not counted: use cross-validation to choose its order."""
    cv_density: float
    """The mean log predictive density of targets left out of a fit, in nats."""
    cv_error_db: float
    """The squared error of these targets over their power, in decibels; of several outputs over
    the power of each."""
    loo_density: float
    """The mean log predictive density of each target given all others, without a fit; or NaN."""
    coverage: float
    """The share of targets left out of a fit inside their 95 % regions."""
    weight: float
    """The share of the model in predictions of all together."""
    calibration: float = 1.0
    """The mean squared error of targets left out of a fit, each over its predicted variance: 1 for
    a model whose regions are right, above 1 where they are too narrow."""
    inflation: float = 1.0
    """What variances of the model are multiplied by in predictions of all together: what the
    calibration is above 1 by more than chance, three of its standard errors."""
    effective_parameters: float = math.nan
    """How many complex parameters a linear regression as flexible as the fit has, its degrees of
    freedom: the sum over all targets of the variance of the signal there over that of the noise,
    and of coefficients that a mean has learned."""

    @property
    def calibrated_density(self) -> float:
        """The mean log predictive density in cross-validation of variances times `inflation`.

        `cv_density + c (1 − 1/f) − log f`, c being the calibration and f the inflation.
        """
        gained = self.calibration * (1.0 - 1.0 / self.inflation)
        return self.cv_density + gained - math.log(self.inflation)


class Comparison(Mapping[str, Scores]):
    """The scores of several models by name, as a mapping; its text is a table.

    `compare` makes it.

    Args:
        models: The models by name, each fitted to all data.
        scores: Their scores by name.

    Example:
        >>> import cgp
        >>> from cgp.comparison import Scores
        >>> models = {"smooth": cgp.ExactGP(cgp.kernels.RBF(), 0.1)}
        >>> scores = Scores(-3.0, 3, 9.0, -1.0, -9.0, -1.0, coverage=0.9, weight=1.0)
        >>> found = cgp.Comparison(models, {"smooth": scores})
        >>> found.best, found["smooth"].coverage
        ('smooth', 0.9)
    """

    def __init__(self, models: Mapping[str, MaximumLikelihoodGP], scores: Mapping[str, Scores]):
        self.models, self._scores = dict(models), dict(scores)

    def __getitem__(self, name: str) -> Scores:
        return self._scores[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._scores)

    def __len__(self) -> int:
        return len(self._scores)

    @property
    def best(self) -> str:
        """The name of the model with the highest weight.

        Raises:
            ValueError: There is no model.
        """
        if not self._scores:
            raise ValueError("there is no model in this comparison")
        return max(self, key=lambda name: self[name].weight)

    def predict(
        self, x: ArrayLike, *, observed: bool = False, **noise: Any
    ) -> dict[str, np.ndarray]:
        """Predictions of all models together, each with its weight, in the form of `gp.predict`.

        The moments are of the mixture: where the models disagree, its variance is larger than
        theirs. The variances of a model that is too sure are multiplied by `scores.inflation`.

        Args:
            x: Inputs, as for `gp.predict`.
            observed: Whether to add the noise of a measurement to the signal.
            **noise: `noise_variance` and `noise_groups`, as for `gp.predict`.

        Returns:
            NumPy arrays `[..., M]`: "mean", "variance" and "pseudo_variance".
        """
        weighted = []
        for name, scores in self.items():
            if scores.weight > 0:
                mean, *variances = marginals(
                    self.models[name].predict(x, observed=observed, **noise)
                )
                inflated = (scores.inflation * variance for variance in variances)
                weighted.append((scores.weight, Marginals(mean, *inflated)))
        return mixture(weighted)._asdict()

    def __str__(self) -> str:
        names = ["model", *self]
        columns = [[name.ljust(max(map(len, names))) for name in names]]
        for field, head in _HEADS.items():
            cells = [head, *(_text(field, getattr(scores, field)) for scores in self.values())]
            columns.append([cell.rjust(max(map(len, cells))) for cell in cells])
        return "\n".join("  ".join(row) for row in zip(*columns, strict=True))

    __repr__ = __str__


def _text(field: str, score: float) -> str:
    if np.isnan(score):
        return "–"
    if field == "parameters":
        return str(int(score))
    return f"{score:.0%}" if field == "coverage" else f"{score:.2f}"


def compare(
    models: Mapping[str, MaximumLikelihoodGP],
    x: ArrayLike,
    z: ArrayLike,
    *,
    missing: ArrayLike | None = None,
    noise_variance: ArrayLike | None = None,
    noise_groups: ArrayLike | None = None,
    folds: int = 5,
    restarts: int = 8,
    seed: int = 0,
    verbose: int | str = "auto",
) -> Comparison:
    """Fits models to the same data, and scores how well each predicts data left out of a fit.

    A likelihood tells which hyperparameters of one model fit best. Between models it favours the
    flexible, and BIC corrects for that where there are many data. Cross-validation measures
    prediction: each of the folds is left out of a fit of its own, from the values of the full fit,
    and predicted. Of inputs in one dimension each of K folds has every K-th point, except the first
    and the last point, which would be extrapolated; of others the points are drawn, of a grid at
    most 500 cells. Of several outputs a fold has such points of each output, at other places than
    of the output before it.

    Few data hardly tell which of several good models is the best. `shares` therefore gives weights
    by how many standard errors the log density of a model is behind the highest, and more to the
    simpler of two that predict equally well. A model that predicts well may be too sure, as where
    its errors are at the peaks of resonances, and its density far below that of a bad model with
    wide regions. The variances of a model that is too sure are therefore multiplied by one factor
    first, so that errors in cross-validation are as large as predicted, but for chance. A model
    whose squared error is ten times the smallest has no weight.

    In 104 simulated problems of eight kinds the mixture was .06 dB behind the best model of
    hindsight in mean and 1.3 dB at worst, and within .3 dB of it in 90 %: what is left is chance.
    Weights from stacking, of the highest log density of the mixture (Yao, Vehtari, Simpson &
    Gelman, Bayesian Analysis 13, 2018), were .20 and 2.5 dB behind, and within .3 dB in 81 %. The
    model with the highest weight was .22 and 3.4 dB behind: the mixture is the safer choice. Its
    95 % regions contained 94 % of new measurements.

    Args:
        models: `ExactGP`, `StateSpaceGP`, `SparseGP` or `VecchiaGP` by name, all of one signal or
            of the same number of outputs; or `GridGP`, all of them. Each is compiled with `LBFGS`
            if it has not been compiled, and left fitted to all data.
        x: Inputs, as for `fit`.
        z: Complex targets, as for `fit`.
        missing: Bool, broadcast against z: True where missing.
        noise_variance: The known part of the noise, a number or `[N]`, as for `fit`; of P outputs
            broadcast against `[N, P]`.
        noise_groups: The group of each sample, likewise, as for `fit`.
        folds: The number of parts that cross-validation leaves out in turn, at least 2.
        restarts: As for `fit`, for the fits to all data.
        seed: The seed of the starts that are drawn, and of folds in several dimensions.
        verbose: 0 is silent, 1 a progress bar; "auto" is one in a terminal or a notebook.

    Returns:
        A `Comparison`: `print` shows a table, `comparison[name].cv_density` is one score,
        `comparison.best` a name, `comparison.predict` a prediction of all together. Columns:

        - log likelihood of all data at its maximum, the number of parameters that were learned, and
          `BIC = parameters · log N − 2 log likelihood`, the lower, the better. Coefficients and
          poles that a mean marginalises are not counted: between means that marginalise other
          numbers, neither likelihood nor BIC decides.
        - effective: how many parameters a linear regression as flexible as the fit has, these
          coefficients included.
        - CV density: the mean log predictive density of targets left out of a fit, in nats, the
          higher, the better (its level follows the unit of z: differences count); CV error: their
          squared error over their power, in decibels, the noise of the targets included; in 95 %
          region: how many of them are inside theirs; error / predicted: the mean of squared errors
          over predicted variances, 1 where these are right.
        - LOO density: the same of each target given all others, without another fit; for an
          `ExactGP` alone.
        - weight: the share of the model in predictions of all together.

    Raises:
        TypeError: Other models, names that are no strings, data that a model refuses.
        ValueError: No models, models that share hyperparameters or have other outputs, or data
            that a model refuses; fewer than two folds, or points than folds. A note says of which
            model.

    Example:
        >>> import numpy as np, cgp
        >>> from cgp.kernels import RBF, Matern12
        >>> rng, x = np.random.default_rng(0), np.linspace(0.0, 3.0, 20)
        >>> z = x * np.exp(1j * x) + 0.05 * (rng.normal(size=20) + 1j * rng.normal(size=20))
        >>> models = {"smooth": cgp.ExactGP(RBF()), "rough": cgp.ExactGP(Matern12())}
        >>> found = cgp.compare(models, x, z, restarts=2, verbose=0)
        >>> found.best
        'smooth'
    """
    outputs = _checked_outputs(models)
    check_whole(folds, "folds", least=2)
    check_labels(x, z, missing, NoiseArguments(noise_variance, noise_groups), outputs=outputs)
    targets = np.array(as_observations(z, missing, "complex128", promote=True))
    is_grid = any(isinstance(model, GridGP) for model in models.values())
    if not is_grid:
        as_inputs_and_targets(x, targets, None, "float64", outputs)  # may refuse them
    if not np.nansum(np.abs(targets)) > 0:
        raise ValueError(
            "the targets are all zero or missing: errors relative to them have no size"
        )
    noise: dict[str, Any] = {"noise_variance": noise_variance, "noise_groups": noise_groups}
    if is_grid:
        left_out = _folds_of_grid(_checked_grid(models, x, targets), targets, folds, seed)
    else:
        left_out = _folds(np.asarray(x, float), targets, folds, seed, outputs)
    samples = left_out.shape[1:]
    noise = {name: np.broadcast_to(a, samples) for name, a in noise.items() if a is not None}
    shown = 1 if where_watched(verbose) else 0
    bar = keras.utils.Progbar(len(models), verbose=shown, unit_name="model")
    fit_scores: dict[str, dict[str, Any]] = {}
    predictions: dict[str, Marginals] = {}
    for number, (name, model) in enumerate(models.items()):
        series = targets.astype(complex_dtype(model.variable_dtype).name)
        try:
            model.fit(x, series, restarts=restarts, seed=seed, verbose=0, **noise)
            fit_scores[name] = _scores_of_fit(model, x, series, noise)
            predictions[name] = _cross_validated(model, x, series, left_out, noise)
        except Exception as error:
            error.add_note(f"in the comparison, of the model {name!r}")
            raise
        bar.update(number + 1)

    is_tested = np.broadcast_to(np.any(left_out, axis=0), targets.shape) & ~np.isnan(targets)
    tested = targets[is_tested]
    axes = tuple(range(targets.ndim - (outputs is not None)))
    size = np.sqrt(np.nanmean(np.abs(targets) ** 2, axis=axes, keepdims=True))  # outputs have units
    size = np.broadcast_to(np.maximum(size, 1e-300), targets.shape)[is_tested]
    predictions = {name: p.map(lambda a: a[is_tested]) for name, p in predictions.items()}
    densities = np.stack([log_predictive_densities(tested, p) for p in predictions.values()])
    errors = np.array(
        [normalized_error_db(tested / size, p.mean / size) for p in predictions.values()]
    )
    possible = _eligible(errors)
    over_predicted = np.stack([_over_predicted(tested, p) for p in predictions.values()])
    calibrations = np.mean(over_predicted, axis=1)
    inflations = np.maximum(calibrations / (1.0 + _CHANCE / math.sqrt(tested.size)), 1.0)
    factors = inflations[:, None]
    calibrated = densities + over_predicted * (1.0 - 1.0 / factors) - np.log(factors)
    weights = np.zeros(len(models))
    effective = np.array([of_fit["effective_parameters"] for of_fit in fit_scores.values()])
    weights[possible] = shares(calibrated[possible], effective[possible])
    for i, (name, of_fit) in enumerate(fit_scores.items()):
        of_fit |= {"cv_density": float(np.mean(densities[i])), "cv_error_db": float(errors[i])}
        of_fit |= {"coverage": coverage(tested, predictions[name]), "weight": float(weights[i])}
        of_fit |= {"calibration": float(calibrations[i]), "inflation": float(inflations[i])}
    return Comparison(models, {name: Scores(**of_fit) for name, of_fit in fit_scores.items()})


def _eligible(errors_db: np.ndarray) -> np.ndarray:
    """Which models may have a weight above zero, bool, `[K]`."""
    return errors_db <= np.nanmin(errors_db) + _LARGEST_EXCESS_ERROR_DB


def _over_predicted(z: np.ndarray, prediction: Marginals) -> np.ndarray:
    """Squared errors over predicted variances, of improper predictions their mean over both axes.

    Real, `[N]`; their expectation is 1 where the variances are right.
    """
    variance, pseudo = (
        a[..., None, None] for a in (prediction.variance, prediction.pseudo_variance)
    )
    deviation = (z - prediction.mean)[..., None]
    return 0.5 * normalized_innovation_squared(deviation, variance, pseudo)


def _checked_outputs(models: Mapping[str, MaximumLikelihoodGP]) -> int | None:
    """The number of outputs of all models, None for one signal; raises where they differ."""
    if not isinstance(models, Mapping) or not models:
        raise ValueError(f"models must be a dictionary of at least one, got {models!r}")
    for name, model in models.items():
        if not isinstance(name, str):
            raise TypeError(f"the name of a model must be a string, got {name!r}")
        if not isinstance(model, MaximumLikelihoodGP):
            raise TypeError(
                f"the model {name!r} must be an ExactGP, StateSpaceGP, SparseGP, VecchiaGP or "
                f"GridGP, got {model!r}"
            )
    names = {model.kernel.outputs: name for name, model in models.items()}
    if len(names) > 1:
        counts = (f"{name!r} has {count or 'one signal'}" for count, name in names.items())
        raise ValueError(
            f"the models must have the same number of outputs, but {' and '.join(counts)}: a "
            "process of each output by itself is Outputs([kernel, ...])"
        )
    owners: dict[int, str] = {}
    for name, model in models.items():
        for variable in model.variables:
            owner = owners.setdefault(id(variable), name)
            if owner != name:
                raise ValueError(
                    f"the models {owner!r} and {name!r} share {variable.path}: a fit of the one "
                    "would change the other, so give each kernels and means of its own"
                )
    return next(iter(names))


def _checked_grid(
    models: Mapping[str, MaximumLikelihoodGP], x: ArrayLike, z: np.ndarray
) -> tuple[int, ...]:
    """The numbers of coordinates of the axes, if all models are of grids, and of this one."""
    for name, model in models.items():
        if not isinstance(model, GridGP):
            raise TypeError(f"models of a grid are compared with each other, but {name!r} is none")
        model.data_of(x, z.astype(complex_dtype(model.variable_dtype).name))  # may refuse
        axes = model.dimensions
    return z.shape[z.ndim - axes :]


def _folds_of_grid(sizes: tuple[int, ...], z: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Which cells each fold leaves out, drawn, bool, `[folds, *sizes]`."""
    present = ~np.isnan(z.reshape(-1, math.prod(sizes))).all(axis=0)
    count = int(np.clip(_MOST_CELLS_OF_ALL // present.size, 20, _MOST_CELLS))
    cells = generator_of(seed).permutation(np.flatnonzero(present))[: folds * count]
    if len(cells) < folds:
        raise ValueError(f"{folds} folds need as many cells, got {len(cells)}")
    left_out = np.zeros((folds, present.size), bool)
    left_out[np.arange(len(cells)) % folds, cells] = True
    return left_out.reshape(folds, *sizes)


def _folds(
    x: np.ndarray, z: np.ndarray, folds: int, seed: int, outputs: int | None = None
) -> np.ndarray:
    """Which samples each fold leaves out, bool, `[folds, N]`, or `[folds, N, P]` of P outputs."""
    samples = z.shape[-1 if outputs is None else -2 :]
    present = ~np.isnan(z).all(axis=tuple(range(z.ndim - len(samples))))
    columns = present.reshape(len(present), -1)
    left_out = np.zeros((folds, *columns.shape), bool)
    line = x if x.ndim == 1 else x[..., 0] if x.shape[-1] == 1 else None
    rng = generator_of(seed)
    for output, column in enumerate(columns.T):
        inside = np.flatnonzero(column)
        if line is not None and line.ndim == 1:
            inside = inside[np.argsort(line[inside], kind="stable")][1:-1]
        else:
            inside = rng.permutation(inside)
        if len(inside) < folds:
            of_output = "" if columns.shape[1] == 1 else f" of output {output}"
            raise ValueError(
                f"{folds} folds need as many points between the ends{of_output}, got {len(inside)}"
            )
        # Other outputs are left out at other places, where this one tells what they show.
        left_out[(np.arange(len(inside)) + output) % folds, inside, output] = True
    return left_out.reshape(folds, *samples)


def _scores_of_fit(
    model: MaximumLikelihoodGP, x: ArrayLike, z: np.ndarray, noise: dict
) -> dict[str, Any]:
    """The scores of a fit to all data."""
    likelihood = float(np.sum(model.log_marginal_likelihood()))
    learned = sum(int(np.prod(v.shape)) for v in model.variables_of_hyperparameters)
    bic = learned * float(np.log(int(np.sum(~np.isnan(z))))) - 2.0 * likelihood
    left_out, density = None, np.nan
    if isinstance(model, ExactGP):
        with contextlib.suppress(ValueError):  # of a point that alone determines a part of a trend
            left_out = Marginals(**model.loo())
    if left_out is not None:
        density = float(np.mean(log_predictive_densities(z, left_out)))
    names = "log_likelihood", "parameters", "bic", "loo_density", "effective_parameters"
    effective = _effective_parameters(model, x, z, noise)
    return dict(zip(names, (likelihood, learned, bic, density, effective), strict=True))


def _effective_parameters(
    model: MaximumLikelihoodGP, x: ArrayLike, z: np.ndarray, noise: dict
) -> float:
    """The trace of the matrix from targets to predictions of them, and what a mean has learned.

    The diagonal is the variance of the signal given the targets over that of the noise: at most 1,
    but for rounding (Hastie, Tibshirani & Friedman, The Elements of Statistical Learning, §7.6).
    Coefficients that a mean learns have no variance there, and are counted: two reals as one.
    """
    signal = marginals(model.predict(x)).variance.astype(float)
    measured = marginals(model.predict(x, observed=True, **noise)).variance.astype(float)
    leverages = signal / np.maximum(np.maximum(measured - signal, signal), 1e-300)
    learned = [] if model.mean is None else model.mean.trainable_variables
    coefficients = sum(float(np.prod(variable.shape)) for variable in learned) / 2.0
    return float(np.sum(leverages * ~np.isnan(z))) + coefficients


def _cross_validated(
    model: MaximumLikelihoodGP, x: ArrayLike, z: np.ndarray, left_out: np.ndarray, noise: dict
) -> Marginals:
    """Predictions of the targets that each fold leaves out; NaN elsewhere."""
    fitted = model.get_weights()
    points = np.zeros(0) if isinstance(model, GridGP) else np.asarray(x)
    dtypes = complex, float, complex
    predictions = Marginals(*(np.full(z.shape, np.nan, dtype) for dtype in dtypes))
    try:
        for fold in left_out:
            model.set_weights(fitted)
            with warnings.catch_warnings():
                # The fit to all data has given the warnings already.
                warnings.simplefilter("ignore", RuntimeWarning)
                # The same shapes in every fold: nothing is compiled again.
                model.fit(x, np.where(fold, z.dtype.type(np.nan), z), verbose=0, **noise)
            if isinstance(model, GridGP):
                predicted = marginals(model.predict(x, observed=True))
                for moment, of_cells in zip(predictions, predicted, strict=True):
                    moment[..., fold] = of_cells[..., fold]
                continue
            rows = fold if fold.ndim == 1 else fold.any(axis=1)
            x_fold = points[rows] if points.ndim == 1 else points[..., rows, :]
            noise_fold = {name: argument[rows] for name, argument in noise.items()}
            predicted = marginals(model.predict(x_fold, observed=True, **noise_fold))
            for moment, of_rows in zip(predictions, predicted, strict=True):
                moment[..., fold] = of_rows[..., fold[rows]]
    finally:
        model.set_weights(fitted)
        model.condition(x, z, **noise)
    return predictions


def shares(log_densities: np.ndarray, effective_parameters: np.ndarray) -> np.ndarray:
    """The weights `[K]` of models, from log densities of left-out points and from simplicity.

    They are not negative, and sum to 1. `log_densities` is `[K, N]`, of N points under K models. Of
    a model whose sum is D below the highest, differences from point to point tell the standard
    error S of D (Vehtari, Gelman & Gabry, Statistics and Computing 27, 2017). Its weight is the
    normal likelihood of D if neither model is better, `exp(−D² / 2(S² + 1))`, where one nat is no
    difference, times a prior `1 / (1 + effective_parameters)`: with few data a flexible model is
    the highest by chance more often.
    """
    below = log_densities[np.argmax(log_densities.sum(axis=1))] - log_densities
    squared_errors = below.shape[1] * below.var(axis=1, ddof=1)
    likelihoods = np.exp(-0.5 * below.sum(axis=1) ** 2 / (squared_errors + 1.0))
    weights = likelihoods / (1.0 + effective_parameters)
    weights /= weights.sum()
    weights[weights < _LEAST_WEIGHT] = 0.0
    return weights / weights.sum()
