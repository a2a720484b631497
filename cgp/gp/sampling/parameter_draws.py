"""Draws of hyperparameters, their convergence, and predictions averaged over them."""

import copy
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Marginals, mixture
from cgp.gp.sampling.density import in_words, weak_priors
from cgp.gp.sampling.diagnostics import convergence_problems, effective_size, r_hat
from cgp.gp.sampling.moved_process import MovedProcess
from cgp.gp.sampling.nuts import Chains, Sampler
from cgp.linalg.arguments import ArrayLike, check_whole
from cgp.training.batches import where_watched

_PATIENCE = 5.0  # seconds without a progress bar
_COLUMNS = {"mean": "mean", "deviation": "deviation", "low": "2.5 %", "high": "97.5 %"}
_COLUMNS |= {"r_hat": "R-hat", "effective_size": "effective"}


class ParameterDraws(Mapping[str, np.ndarray]):
    """Draws of hyperparameters by name, as a mapping; its text is a table.

    `gp.sample_parameters` makes it. It has a copy of the process and of its data: later changes of
    the process do not affect it.

    Attributes:
        r_hat: By name, like a value: R-hat of ranks, of halves of chains and folded (Vehtari et
            al., Bayesian Analysis 16, 2021), the larger of both parts of a complex value; near 1
            where all chains have drawn from the same distribution.
        effective_sizes: By name, like a value: the number of independent draws that tell as much of
            the middle of its posterior, the bulk size of the same paper, the smaller of both parts
            of a complex value.
        divergences: `[chains, draws]`, bool: steps that ran out of bounds, near which draws are
            missing.
        acceptance: `[chains, draws]`: the mean acceptance probability of each step.
        log_density: `[chains, draws]`: log density of unconstrained weights, weak priors included.
        weights: `[chains, draws, P]`, the unconstrained weights one after the other.
        weak_priors: Descriptions, by name, of the weak priors of hyperparameters without a given
            one; for a noise variance that was left out, of the prior of the fit.
    """

    def __init__(self, gp: Any, weak_priors: dict[str, str], chains: Chains):
        self._process, self._chains = MovedProcess(gp), chains
        self._draws = self._process.coordinates.constrained(chains.points)
        self.weights, self.log_density = chains.points, chains.log_density
        self.divergences, self.acceptance = chains.diverged, chains.acceptance
        self.weak_priors = weak_priors
        self.r_hat: dict[str, np.ndarray] = {}
        self.effective_sizes: dict[str, np.ndarray] = {}
        for name, draws in self._draws.items():
            self.r_hat[name] = _of_elements(r_hat, draws, np.max)
            self.effective_sizes[name] = _of_elements(effective_size, draws, np.min)

    def __reduce__(self) -> tuple:
        """Pickles and copies the process too; a copy finds the weights in its own process."""
        return type(self), (self._process.gp, self.weak_priors, self._chains)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._draws:
            raise KeyError(f"{name!r} is none of the hyperparameters drawn: {', '.join(self)}")
        return self._draws[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._draws)

    def __len__(self) -> int:
        return len(self._draws)

    # --- what the draws say -----------------------------------------------------------------------

    def summary(self) -> dict[str, dict[str, np.ndarray]]:
        """Moments and diagnostics of each hyperparameter, all chains together.

        Returns:
            By name: "mean", "deviation", the standard deviation `√E|θ − mean|²`, "low" and "high",
            the quantiles of 2.5 and 97.5 %, of both parts where complex, "r_hat" and
            "effective_size"; NumPy, each like a value.
        """
        summary = {}
        for name, draws in self.items():
            flat = draws.reshape(-1, *draws.shape[2:])
            moments = (np.mean(flat, axis=0), np.std(flat, axis=0), *_quantiles(flat))
            columns = (*moments, self.r_hat[name], self.effective_sizes[name])
            summary[name] = dict(zip(_COLUMNS, columns, strict=True))
        return summary

    def __str__(self) -> str:
        rows = [["hyperparameter", *_COLUMNS.values()]]
        for name, columns in self.summary().items():
            shape = np.shape(columns["mean"])
            for index in np.ndindex(shape):
                label = f"{name}[{', '.join(map(str, index))}]" if shape else name
                rows.append([label, *(_text(key, columns[key][index]) for key in _COLUMNS)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for name, *cells in rows:
            right = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
            lines.append("  ".join([name.ljust(widths[0]), *right]))
        chains, draws = self.divergences.shape
        diverged = int(np.sum(self.divergences))
        lines.append(f"{chains} chains of {draws} draws, {diverged} divergences")
        return "\n".join(lines)

    __repr__ = __str__

    # --- predictions ------------------------------------------------------------------------------

    def predict_each(
        self, x: ArrayLike, *, count: int = 200, observed: bool = False, **noise: Any
    ) -> Marginals:
        """Predictions at new points under each of some draws.

        The log density of a held-out z under the mixture is the log of the mean over the draws of
        `exp(cgp.metrics.log_predictive_densities(z, prediction))`.

        Args:
            x: Inputs, as for `gp.predict`.
            count: Number of draws, at even distances along all chains; fewer if there are fewer.
            observed: Whether to add the noise of a measurement to the signal.
            **noise: `noise_variance` and `noise_groups`, as for `gp.predict`.

        Returns:
            A named tuple of NumPy arrays `[count, ..., M]`: mean, variance and pseudo_variance.
        """
        check_whole(count, "count")
        points = self.weights.reshape(-1, self.weights.shape[-1])
        chosen = np.linspace(0, len(points) - 1, min(count, len(points))).round().astype(int)
        self._process.gp.predict(x, observed=observed, **noise)  # which checks the arguments
        return self._process.predict_at(points[chosen], x, observed, **noise)

    def predict(
        self, x: ArrayLike, *, count: int = 200, observed: bool = False, **noise: Any
    ) -> dict[str, np.ndarray]:
        """Predictions averaged over draws of the hyperparameters, as from `gp.predict`.

        They are moments of the mixture: by the law of total covariance the variance is the mean of
        the variances plus the variance of the means, the pseudo-variance likewise.
        Arguments are as for `predict_each`.

        Returns:
            NumPy arrays `[..., M]`: "mean", "variance" and "pseudo_variance".
        """
        each = self.predict_each(x, count=count, observed=observed, **noise)
        share = 1.0 / len(each.mean)
        components = [(share, Marginals(*moments)) for moments in zip(*each, strict=True)]
        return mixture(components)._asdict()

    # --- elsewhere --------------------------------------------------------------------------------

    def to_arviz(self) -> Any:
        """The draws for ArviZ, with "lp", "diverging" and "acceptance_rate".

        A complex hyperparameter becomes two, with "_real" and "_imag" appended to its name.

        Raises:
            ImportError: ArviZ is not installed.
        """
        try:
            import arviz
        except ImportError as error:
            raise ImportError('to_arviz needs ArviZ: pip install "cgp[arviz]"') from error
        return arviz.from_dict(posterior=self.real_draws(), sample_stats=self.statistics())

    def real_draws(self) -> dict[str, np.ndarray]:
        """Draws as real arrays `[chains, draws, ...]`; a complex value as "_real" and "_imag"."""
        real = {}
        for name, draws in self.items():
            if np.iscomplexobj(draws):
                real[f"{name}_real"], real[f"{name}_imag"] = draws.real, draws.imag
            else:
                real[name] = draws
        return real

    def statistics(self) -> dict[str, np.ndarray]:
        """Statistics of the sampler for each draw, by ArviZ's names, `[chains, draws]`."""
        return {
            "lp": self.log_density,
            "diverging": self.divergences,
            "acceptance_rate": self.acceptance,
        }


def draw_parameters(
    gp: Any, sampler: Sampler, chains: int, draws: int, warmup: int, seed: int | None, verbose: Any
) -> ParameterDraws:
    """Draws the hyperparameters of a `MaximumLikelihoodGP`, which keeps its own.

    Arguments, errors and warnings as for its `sample_parameters`.
    """
    for name, count, least in (("chains", chains, 1), ("draws", draws, 4), ("warmup", warmup, 0)):
        check_whole(count, name, least=least)
    if seed is not None:
        check_whole(seed, "seed", least=0)
    if verbose not in ("auto", 0, 1):
        raise ValueError(f'verbose must be "auto", 0 or 1, got {verbose!r}')
    data = gp.stored_data()
    coordinates = sampler.coordinates
    if not bool(tf.reduce_any(data.present)):
        raise ValueError("all samples are missing: there is nothing to learn from")
    if coordinates.without_parameter:
        raise ValueError(
            f"the weights {coordinates.without_parameter} belong to no hyperparameter, and "
            "have no prior: set trainable=False of their layers"
        )
    if coordinates.size == 0:
        raise ValueError("no trainable hyperparameters: there is nothing to draw")
    weak = weak_priors(gp, coordinates, data)
    progress = _Progress(warmup + draws, verbose)
    priors = tuple(weak.get(name) for name in coordinates.parameters)
    samples = sampler.run(data, priors, chains, draws, warmup, seed, progress.update)
    # A copy of the process, which goes on without the draws.
    result = ParameterDraws(copy.deepcopy(gp), in_words(gp, data, weak), samples)
    problems = convergence_problems(samples, result.r_hat, result.effective_sizes)
    if problems:
        warnings.warn("of these draws " + "; ".join(problems), RuntimeWarning, stacklevel=3)
    return result


class _Progress:
    """A progress bar that appears after some seconds."""

    def __init__(self, total: int, verbose: int | str):
        self._total, self._verbose = total, where_watched(verbose)
        self._begin = time.monotonic()
        self._bar: Any = None

    def update(self, done: int) -> None:
        """Shows the number of draws that are done."""
        late = time.monotonic() - self._begin > _PATIENCE
        if self._bar is None and (self._verbose == 1 or (self._verbose == "auto" and late)):
            self._bar = keras.utils.Progbar(self._total, unit_name="draw")
        if self._bar is not None:
            self._bar.update(done)


def _of_elements(
    diagnostic: Callable[[np.ndarray], float], draws: np.ndarray, worst: Any
) -> np.ndarray:
    """A diagnostic of draws `[chains, draws, ...]`, `[...]`, the worst one of complex parts."""
    if np.iscomplexobj(draws):
        diagnostics = [_of_elements(diagnostic, a, worst) for a in (draws.real, draws.imag)]
        return np.asarray(worst(diagnostics, axis=0))
    shape = draws.shape[2:]
    return np.reshape([diagnostic(draws[(..., *i)]) for i in np.ndindex(shape)], shape)


def _quantiles(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if np.iscomplexobj(flat):
        re, im = (np.quantile(a, [0.025, 0.975], axis=0) for a in (flat.real, flat.imag))
        return re[0] + 1j * im[0], re[1] + 1j * im[1]
    low, high = np.quantile(flat, [0.025, 0.975], axis=0)
    return low, high


def _text(key: str, number: Any) -> str:
    digits = {"r_hat": ".3f", "effective_size": ".0f"}.get(key, ".4g")
    return f"{number:{digits}}"
