"""Random problems for hypothesis: a MOMDP, preferences, a temperature, sets W and policies whose Q are on offer."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from qpensieve.preferences import draw_preferences
from qpensieve.theory import iteration, soft
from qpensieve.theory.momdp import Momdp, RandomSpec, random_momdp


@dataclass(frozen=True)
class Problem:
    momdp: Momdp
    prefs: np.ndarray
    alpha: float
    seed: int
    method: iteration.Method

    def generator(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    def members(self) -> np.ndarray:
        """Any W with lam in W(lam)."""
        generator, num = self.generator(), len(self.prefs)
        return (generator.random((num, num)) < generator.random()) | np.eye(num, dtype=bool)

    def policies(self, num: int) -> np.ndarray:
        """Log-probabilities [k, m, s, a] of arbitrary policies, from near uniform to near deterministic."""
        generator = self.generator()
        shape = (num, len(self.prefs), self.momdp.num_states, self.momdp.num_actions)
        values = generator.standard_normal(shape) * generator.choice([0.1, 1.0, 20.0], size=(*shape[:3], 1))
        return np.stack([soft.soft_policy(value, 1.0) for value in values])


def make_problem(seed: int, num_objectives: int, discount: float, alpha: float) -> Problem:
    generator = np.random.default_rng(seed)
    num_states = int(generator.integers(1, 9))
    spec = RandomSpec(
        num_states=num_states,
        num_actions=int(generator.integers(1, 5)),
        num_objectives=num_objectives,
        num_successors=int(generator.integers(1, num_states + 1)),
        reward_density=float(generator.choice([0.3, 1.0])),
        end_probability=float(generator.choice([0.0, 0.2, 1.0])),
        discount=discount,
    )
    num_prefs = int(generator.integers(1, 7))
    method = iteration.Method(
        "any",
        num_preferences=int(generator.integers(1, num_prefs + 1)),
        num_snapshots=int(generator.integers(0, 5)),
    )
    prefs = draw_preferences(generator, num_prefs, num_objectives, "dirichlet")
    return Problem(random_momdp(generator, spec), prefs, alpha, seed, method)


def problems(max_objectives: int = 5) -> st.SearchStrategy[Problem]:
    return st.builds(
        make_problem,
        seed=st.integers(0, 2**32 - 1),
        num_objectives=st.integers(1, max_objectives),
        discount=st.sampled_from([0.0, 0.5, 0.9, 0.99]),
        alpha=st.floats(-2.5, 1.0).map(lambda exponent: 10.0**exponent),
    )


def sparse_problem(seed: int) -> Problem:
    """A larger one with one successor per action and few rewards: a policy can be good here and useless there."""
    generator = np.random.default_rng(seed)
    spec = RandomSpec(40, 2, 2, num_successors=1, reward_density=0.15, discount=0.95)
    momdp, prefs = random_momdp(generator, spec), draw_preferences(generator, 6, 2)
    return Problem(momdp, prefs, 0.02, seed, iteration.pensieve(3, num_preferences=4))
