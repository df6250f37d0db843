"""Act with a policy that `qpensieve export-policy` wrote. This file needs NumPy alone: copy it to your program.

policy = load("policy.npz")
action = policy.act(obs, [0.7, 0.3])  # as the environment's step takes it
action = policy.act(obs, [0.7, 0.3], deterministic=False, rng=np.random.default_rng(0))
action = policy.act(obs, policy.ask([0.7, 0.3]))  # the preference to ask for, where the policy was calibrated
values = policy.value(obs, action, [0.7, 0.3])  # discounted return of each objective, where critics were exported
"""

import json
import zipfile

import numpy as np

FORMAT = "qpensieve policy 2"


def load(path):
    """Read a policy file; ValueError if `qpensieve export-policy` did not write it or it has another format."""
    try:
        with zipfile.ZipFile(path) as archive, np.load(path, allow_pickle=False) as file:
            if any(entry.compress_type for entry in archive.infolist()):  # a small file could fill the memory
                raise ValueError("its arrays must not be compressed")
            about = json.loads(str(file["about"]))
            if about["format"] == FORMAT:
                return Policy(about, {name: file[name] for name in about["arrays"]})
    except (ValueError, KeyError, TypeError, zipfile.BadZipFile, MemoryError) as error:
        raise ValueError(f"{path} must be a file of 'qpensieve export-policy': {error}") from error
    raise ValueError(f"{path} must be of format {FORMAT!r}, got {about['format']!r}: use the loader that came with it")


class Policy:
    """A policy: `about` describes it (domain, objectives, step, seed, ...), and `arrays` are its numbers."""

    def __init__(self, about, arrays):
        self.about, self.objectives = about, about["objectives"]
        self.arrays = {name: x.astype(np.float32) if x.dtype == np.float16 else x for name, x in arrays.items()}

    def act(self, obs, preference, deterministic=True, rng=None):
        """Return action(s) for an observation or a batch of them, under one preference or one for each."""
        (rows, is_single), rng, noise = self._rows(obs), rng or np.random.default_rng(), None
        lam, shape = self._preferences(preference, len(rows)), (len(rows), self.about["action_size"])
        if not deterministic:
            is_greedy = self.about["head"] == "greedy"
            noise = rng.random((len(rows), 2), np.float32) if is_greedy else rng.standard_normal(shape).astype("f4")
        actions, served_by = np.empty(shape, np.float32), self._served_by(lam)
        for number in np.unique(served_by):
            own = served_by == number
            actions[own] = self._decide(number, rows[own], lam[own], None if noise is None else noise[own])
        return self._native(actions, [] if is_single else [-1])

    def ask(self, preference):
        """Return the preference to ask for in place of `preference`, by the nearest row of the calibration."""
        lam = self._preferences(preference, 1)[0]
        if "calibration_asks" not in self.arrays:
            raise ValueError("ask needs a calibration: run 'qpensieve calibrate RUN' and export the policy again")
        rows, asks = self.arrays["calibration_preferences"], self.arrays["calibration_asks"]
        near = np.square(rows - lam).sum(axis=1).argmin()
        return lam if asks[near] == near else rows[asks[near]].astype(np.float32)

    def value(self, obs, action, preference):
        """Return the critics' discounted return of each objective; of two critics the one with the smaller sum."""
        if self.about["critic"] is None:
            raise ValueError("value needs critics: export the policy with 'qpensieve export-policy RUN --critics'")
        (rows, is_single), low, high = self._rows(obs), np.array(self.about["low"]), np.array(self.about["high"])
        lam = self._preferences(preference, len(rows))
        actions = np.asarray(action, np.float64).reshape(len(rows), -1)
        x = np.concatenate([rows, (2 * (actions - low) / (high - low) - 1).astype(np.float32), lam], axis=1)
        count = len(self.arrays["critic_bias_0"])
        twins = np.stack([self._network("critic_", twin, x, self.about["critic"]) for twin in range(count)])
        smaller = np.einsum("tnd,nd->tn", twins, lam).argmin(axis=0)
        values = twins[smaller, np.arange(len(rows))]
        return values[0] if is_single else values

    def _rows(self, obs):
        values, own, entries = np.asarray(obs, np.float32), tuple(self.about["obs_shape"]), self.about["obs_indices"]
        shapes = [own] if entries else [own, (self.about["obs_size"],)]
        is_single = values.shape in shapes
        if not is_single and (values.ndim == 0 or values.shape[1:] not in shapes):
            raise ValueError(f"obs must have shape {own}, or one more axis in front for several; got {values.shape}")
        rows = values.reshape(1 if is_single else len(values), -1)
        if not np.isfinite(rows).all() or any(set(rows[:, i]) - set(each) for i, each in enumerate(entries or [])):
            raise ValueError(f"obs must be finite{f' and of these values: {entries}' if entries else ''}; got {obs}")
        if entries:  # a number for each value: 1 for the one observed, 0 for the others
            rows = np.concatenate([rows[:, [i]] == np.array(each) for i, each in enumerate(entries)], axis=1)
        return rows.astype(np.float32), is_single

    def _preferences(self, preference, num):
        lam, d = np.asarray(preference, np.float64), len(self.objectives)
        if lam.shape not in ((d,), (1, d), (num, d)):
            each = f", once or {num} times" if num > 1 else ""
            raise ValueError(f"preference must be {d} numbers ({', '.join(self.objectives)}){each}, got {preference}")
        if not (np.isfinite(lam).all() and (lam >= 0).all() and (abs(lam.sum(axis=-1) - 1) <= 1e-6).all()):
            raise ValueError(f"preference must be 0 or more and sum to 1, got {lam.tolist()}")
        return np.broadcast_to(lam, (num, d)).astype(np.float32)

    def _served_by(self, lam):
        if "returns" in self.arrays:  # what each policy brings: the best for each preference
            return (lam.astype(np.float64) @ self.arrays["returns"].T).argmax(axis=1)
        return np.square(lam[:, None] - self.arrays["preferences"]).sum(axis=2).argmin(axis=1)  # the nearest policy

    def _decide(self, number, x, lam, noise):
        about, get = self.about, lambda name: self.arrays[name][number]
        x = np.clip((x - get("obs_mean")) / get("obs_std"), -10, 10) if "obs_mean" in self.arrays else x
        x = self._network("", number, np.concatenate([x, lam], axis=1) if about["is_conditioned"] else x, about)
        if about["head"] == "greedy":
            best = np.einsum("rad,rd->ra", x.reshape(len(x), -1, lam.shape[1]), lam).argmax(axis=1)
            if noise is not None:
                best = np.where(noise[:, 0] < about["epsilon"], noise[:, 1] * len(self.arrays["actions"]), best)
            return self.arrays["actions"][best.astype(int)]
        if about["head"] == "squashed gaussian":
            mean, log_std = np.split(x, 2, axis=1)
            return np.tanh(mean if noise is None else mean + np.exp(np.clip(log_std, -20, 2)) * noise)
        x = np.tanh(x) if about["head"] == "squashed" else x
        return np.clip(x if noise is None else x + get("std") * noise, -1, 1)

    def _network(self, name, number, x, words):
        for i in range(words["num_layers"]):
            if i and words["is_normalized"]:
                x = x - x.mean(axis=1, keepdims=True)
                x = x / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + np.float32(1e-5))
            x = (np.tanh(x) if words["activation"] == "tanh" else np.maximum(x, 0)) if i else x
            x = x @ self.arrays[f"{name}weight_{i}"][number] + self.arrays[f"{name}bias_{i}"][number]
        return x

    def _native(self, actions, several):
        if self.about["num_actions"] is not None:
            return self.about["first_action"] + (actions[:, 0] if several else actions[0, 0]).astype(np.int64)
        low, high = np.array(self.about["low"]), np.array(self.about["high"])
        points = np.clip(low + (actions.astype(np.float64) + 1) / 2 * (high - low), low, high)
        return points.astype(self.about["action_dtype"]).reshape([*several, *self.about["action_shape"]])
