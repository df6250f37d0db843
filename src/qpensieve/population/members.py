"""Members of a population: what is copied with a policy, and how policies act on the host."""

import equinox as eqx
import numpy as np

from qpensieve.learning.acting import HostMlp, Plain, num_parameters
from qpensieve.population import ppo
from qpensieve.population.moments import Moments
from qpensieve.types import Actions, Observations, Parameters

OBS_CLIP = np.float32(10.0)
"""Normalised observations are clipped to plus or minus this."""


class Member(eqx.Module):
    """Everything that belongs to a policy and is copied with it; leaves lead with an axis of members."""

    state: ppo.State
    moments: Moments
    """Statistics of observations, then of discounted returns."""


class MemberPolicy:
    """Gaussian policies of a population's members: unsquashed, with one standard deviation for all states.

    Args:
        flat: The actors' parameters, network first, then the logarithms of the standard deviations.
        widths: Widths of the network.
    """

    def __init__(self, flat: Parameters, widths: tuple[int, ...]):
        self.net = HostMlp(flat, widths, activation=np.tanh)
        start = num_parameters(widths)
        self.std = np.exp(flat[:, None, start : start + widths[-1]])

    def explore(self, obs: Observations, noise: Actions) -> Actions:
        """Sampled actions; they may be outside the action box: only the environment clips them."""
        return self.net(obs) + self.std * noise

    def exploit(self, obs: Observations) -> Actions:
        """Mean actions, within the box."""
        return np.clip(self.net(obs), -1.0, 1.0)


class KeptPolicy:
    """Policies of an archive: actors with the observation statistics they were stored with, which no longer change.

    Args:
        flat: Parameters of the actor, then mean and standard deviation of the observations.
        widths: Widths of the network.
    """

    def __init__(self, flat: Parameters, widths: tuple[int, ...]):
        size = widths[0]
        self._actor = MemberPolicy(flat[:, : -2 * size], widths)
        self._mean, self._scale = flat[:, None, -2 * size : -size], flat[:, None, -size:]

    def explore(self, obs: Observations, noise: Actions) -> Actions:
        return np.clip(self._actor.explore(self._normalize(obs), noise), -1.0, 1.0)

    def exploit(self, obs: Observations) -> Actions:
        return self._actor.exploit(self._normalize(obs))

    def plain(self, step: int) -> Plain:
        del step
        moments = {"obs_mean": self._mean[:, 0], "obs_std": self._scale[:, 0]}
        return Plain("gaussian", self._actor.net, False, {"std": self._actor.std[:, 0], **moments})

    def _normalize(self, obs: Observations) -> Observations:
        return np.clip((obs - self._mean) / self._scale, -OBS_CLIP, OBS_CLIP)
