"""PPO with a vector critic in float64 NumPy: loops over steps, lanes and objectives, gradients by differences."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.oracles.numeric import adam, slope_of

Net = list[np.ndarray]
"""Weight and bias of the first, second and last layer."""


@dataclass(frozen=True)
class Rollout:
    """Steps [K, l, ...] and the observations after them."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    last_obs: np.ndarray


@dataclass
class Learner:
    """The whole state, changed in place: policy, critic and Adam's moments for all of their arrays."""

    actor: Net
    log_std: np.ndarray
    critic: Net
    moments: list[tuple[np.ndarray, np.ndarray]] = field(init=False)
    num_steps: int = 0

    def __post_init__(self) -> None:
        self.moments = [(np.zeros_like(array), np.zeros_like(array)) for array in self.arrays]

    @property
    def arrays(self) -> list[np.ndarray]:
        return [*self.actor, self.log_std, *self.critic]


@dataclass(frozen=True)
class Rows:
    """Transitions and what is known of them before the first step; advantages are standardised."""

    obs: np.ndarray
    action: np.ndarray
    logp: np.ndarray
    values: np.ndarray
    returns: np.ndarray
    advantage: np.ndarray

    def at(self, index: np.ndarray) -> "Rows":
        return Rows(*(array[index] for array in vars(self).values()))


def net_of(net: Any) -> Net:
    layers = (net.first, net.second, net.last)
    return [np.array(array, np.float64) for layer in layers for array in (layer.weight, layer.bias)]


def learner_of(state: Any) -> Learner:
    """A learner whose optimiser is still fresh."""
    return Learner(net_of(state.actor.net), np.array(state.actor.log_std, np.float64), net_of(state.critic))


def rollout_of(rollout: Any) -> Rollout:
    plain, flag = (lambda x: np.asarray(x, np.float64)), (lambda x: np.asarray(x, bool))
    steps = (plain(rollout.obs), plain(rollout.action), plain(rollout.reward))
    return Rollout(*steps, flag(rollout.terminated), flag(rollout.truncated), plain(rollout.last_obs))


def forward(net: Net, x: np.ndarray) -> np.ndarray:
    for weight, bias in ((net[0], net[1]), (net[2], net[3])):
        x = np.tanh(x @ weight + bias)
    return x @ net[4] + net[5]


def log_prob(mean: np.ndarray, log_std: np.ndarray, action: np.ndarray) -> float:
    density = 1.0
    for m, s, a in zip(mean, np.exp(log_std), action, strict=True):
        density *= np.exp(-((a - m) ** 2) / (2 * s**2)) / (s * np.sqrt(2 * np.pi))
    return float(np.log(density))


def returns(cfg: Any, critic: Net, rollout: Rollout) -> tuple[np.ndarray, np.ndarray]:
    """Each return as the sum that defines the estimate, step by step until the episode or the rollout stops."""
    num_steps, num_lanes, d = rollout.reward.shape
    values = np.array([[forward(critic, obs) for obs in row] for row in rollout.obs])
    after = np.array([forward(critic, obs) for obs in rollout.last_obs])
    out = np.zeros_like(values)
    for t in range(num_steps):
        for lane in range(num_lanes):
            for i in range(d):
                estimate = 0.0
                for u in range(t, num_steps):
                    if rollout.truncated[u, lane]:
                        break
                    following = values[u + 1, lane, i] if u + 1 < num_steps else after[lane, i]
                    if rollout.terminated[u, lane]:
                        following = 0.0
                    error = rollout.reward[u, lane, i] + cfg.discount * following - values[u, lane, i]
                    estimate += (cfg.discount * cfg.gae_lambda) ** (u - t) * error
                    if rollout.terminated[u, lane]:
                        break
                out[t, lane, i] = values[t, lane, i] + estimate
    return out, values


def advantages(lam: np.ndarray, scale: np.ndarray, returns: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Both back to the raw scale, both scalarised, then the difference, standardised."""
    raw = np.sum(lam * (scale * returns), axis=-1) - np.sum(lam * (scale * values), axis=-1)
    return (raw - raw.mean()) / (np.sqrt(np.mean((raw - raw.mean()) ** 2)) + 1e-5)


def loss(cfg: Any, learner: Learner, rows: Rows) -> tuple[float, dict[str, float]]:
    gains, errors, kl, clipped = [], [], [], []
    for j in range(len(rows.obs)):
        ratio = np.exp(log_prob(forward(learner.actor, rows.obs[j]), learner.log_std, rows.action[j]) - rows.logp[j])
        near = min(max(ratio, 1 - cfg.clip), 1 + cfg.clip)
        gains.append(min(ratio * rows.advantage[j], near * rows.advantage[j]))
        kl.append(ratio - 1 - np.log(ratio))
        clipped.append(float(ratio < 1 - cfg.clip or ratio > 1 + cfg.clip))
        for v, old, target in zip(forward(learner.critic, rows.obs[j]), rows.values[j], rows.returns[j], strict=True):
            near = min(max(v, old - cfg.clip), old + cfg.clip)
            errors.append(max((v - target) ** 2, (near - target) ** 2))
    policy, value = -float(np.mean(gains)), 0.5 * float(np.mean(errors))
    total = policy + cfg.value_coefficient * value
    info = {"policy_loss": policy, "value_loss": value, "kl": float(np.mean(kl)), "clip_share": float(np.mean(clipped))}
    return total, info


def judge(cfg: Any, learner: Learner, rollout: Rollout, lam: np.ndarray, scale: np.ndarray) -> Rows:
    """Lane by lane within each step."""
    targets, values = returns(cfg, learner.critic, rollout)
    advantage = advantages(lam, scale, targets, values)
    rows = [(t, lane) for t in range(len(targets)) for lane in range(targets.shape[1])]
    pick = lambda array: np.array([array[row] for row in rows])
    obs, action = pick(rollout.obs), pick(rollout.action)
    logp = np.array([log_prob(forward(learner.actor, s), learner.log_std, a) for s, a in zip(obs, action, strict=True)])
    return Rows(obs, action, logp, pick(values), pick(targets), pick(advantage))


def update(
    cfg: Any, learner: Learner, rows: Rows, learning_rate: float, orders: list[np.ndarray]
) -> tuple[dict[str, float], list[float]]:
    """All steps, one pass for each order; gives the mean of what they report and the gradients' lengths."""
    infos, norms = [], []
    for order in orders:
        for index in np.split(order, cfg.minibatches):
            infos.append(loss(cfg, learner, rows.at(index))[1])
            total = lambda index=index: loss(cfg, learner, rows.at(index))[0]
            slopes = [slope_of(total, array) for array in learner.arrays]
            norms.append(float(np.sqrt(sum(np.sum(slope**2) for slope in slopes))))
            learner.num_steps += 1
            for array, moments, slope in zip(learner.arrays, learner.moments, slopes, strict=True):
                cut = slope * min(1.0, cfg.max_gradient_norm / norms[-1])
                adam(array, moments, cut, learner.num_steps, (learning_rate, cfg.adam_epsilon))
    return {name: float(np.mean([info[name] for info in infos])) for name in infos[0]}, norms
