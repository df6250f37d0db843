"""Settings as keyword arguments of agents. Written by tools/keywords.py: do not edit."""

from typing import Literal, TypedDict

from qpensieve.preferences import ArrayLike


class Keywords(TypedDict, total=False):
    """Every setting of a run or of a method. An agent refuses those that its method does not have."""

    first_seed: int
    steps: int
    random_steps: int | float | None
    random_noise: Literal["white", "ar1"]
    block: int
    updates_per_step: int
    replay_capacity: int
    eval_period: int | None
    eval_stride: int
    full_eval_period: int | None
    full_eval_stride: int
    full_eval_episodes: int
    max_eval_steps: int
    log_period: int | None
    checkpoint_seconds: float
    parameters_period: int | None
    keep_replay: Literal["on", "off"]
    reference: ArrayLike
    num_threads: int | None
    hidden: int
    learning_rate: float
    discount: float
    tau: float | None
    batch_size: int
    learning_rate_end: float | None
    sampler: Literal["uniform-sum", "dirichlet", "abs-normal"]
    guards: bool
    target_entropy_end: float | None
    anneal_updates: int | None
    pessimism: float
    num_preferences: int
    num_snapshots: int
    snapshots_per_update: int | None
    push_period: int | None
    push_after: int | None
    memory_updates: int | None
    preferences: ArrayLike
    switch_after: int
    noise_for: Literal["both", "helper"]
    layer_norm: bool
    priority_exponent: float
    bins: int | None
    width_factors: ArrayLike
    target_period: int
    acts_with: Literal["newest", "target"]
    twin: bool
    scale_obs: bool
    envelope: bool
    loss_a: Literal["squared", "huber"]
    loss_b: Literal["squared", "absolute", "huber"]
    epsilon_start: float
    epsilon_end: float
    anneal_steps: int | None
    divisions: int | None
    warmup_iterations: int
    generation_iterations: int
    total: Literal["shared", "per-task"]
    fitness_episodes: int
    num_lanes: int
    rollout_steps: int
    epochs: int
    minibatches: int
    num_buffers: int
    buffer_size: int
    num_candidates: int
    sparsity_weight: float
