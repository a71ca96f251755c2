"""Propose the next configurations: a classifier tells which are likely to be better than most.

Source: Song et al. 2022, likelihood-free Bayesian optimization (LFBO, arXiv 2206.13035): what a
classifier says, trained on improvements as weights, is the expected improvement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpudeck.accel.search.space import Config, Space, key

_BETTER = 0.33
"""The share of the measured configurations that counts as good."""
_POOL = 256
_ELITE = 4
_ENOUGH = 6
_EXPLORED = 0.15
"""The share of proposals that is drawn without the surrogate."""


def propose(
    space: Space,
    timed: Sequence[tuple[Config, float]],
    known: Mapping[tuple[tuple[str, int], ...], object],
    count: int,
    random: np.random.Generator,
) -> list[Config]:
    """Return up to `count` configurations that were not tried, the most promising first.

    Args:
        space: where they lie.
        timed: what was measured, in microseconds.
        known: all that was tried, also without success.
        count: how many are needed.
        random: draws the pool.
    """
    pool = _pool(space, timed, random)
    fresh = [config for config in pool if key(config) not in known]
    if len(timed) < _ENOUGH:
        return fresh[:count]
    scores = _scores(space, timed, fresh)
    ranked = [fresh[i] for i in np.argsort(-scores, kind="stable")]
    chosen = ranked[:count]
    for place in range(len(chosen)):
        if random.random() < _EXPLORED and len(ranked) > count:
            chosen[place] = ranked[int(random.integers(count, len(ranked)))]
    return list({key(config): config for config in chosen}.values())


def _pool(
    space: Space, timed: Sequence[tuple[Config, float]], random: np.random.Generator
) -> list[Config]:
    """Return neighbours of the best, then any others; all there are if these are few."""
    if len(space) <= _POOL:
        everything = list(space.all())
        return [everything[i] for i in random.permutation(len(everything))]
    best = sorted(timed, key=lambda entry: entry[1])[:_ELITE]
    near = [neighbour for config, _ in best for neighbour in space.neighbours(config)]
    far = [space.draw(random) for _ in range(_POOL)]
    return list({key(config): config for config in (*near, *far)}.values())


def _scores(
    space: Space, timed: Sequence[tuple[Config, float]], fresh: Sequence[Config]
) -> np.ndarray:
    if not fresh:
        return np.zeros(0)
    from sklearn.ensemble import GradientBoostingClassifier

    times = np.log([us for _, us in timed])
    threshold = np.quantile(times, _BETTER)
    points = np.array([space.vector(config) for config, _ in timed])
    good = times <= threshold
    gains = np.maximum(threshold - times[good], 0) + 1e-3
    model = GradientBoostingClassifier(n_estimators=40, max_depth=3, random_state=0)
    model.fit(
        np.concatenate([points[good], points]),
        np.concatenate([np.ones(good.sum()), np.zeros(len(points))]),
        np.concatenate([gains / gains.mean(), np.ones(len(points))]),
    )
    found: np.ndarray = model.predict_proba([space.vector(config) for config in fresh])[:, 1]
    return found
