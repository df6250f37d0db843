"""One run of a population in memory: PGMORL or PFA. Every task of every seed is a member; all members are one batch.

An iteration: roll out all members on the host, update all of them in one call of the device, measure the objectives of
each, and update the archive. After the warm-up and after every generation, new tasks are chosen and lanes start new
episodes. Everything that changes is in `arrays()`.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32, Float64, Int64, Shaped

from qpensieve import config as configs
from qpensieve.config import RunConfig
from qpensieve.envs import LaneOptions, find_domain, make_lanes
from qpensieve.learning.streams import Purpose, generator
from qpensieve.methods import check_continuous
from qpensieve.population import pgmorl, ppo, prediction
from qpensieve.population.members import Archive, ArchivePredictor, KeptPolicy, Member, MemberPolicy, Policies
from qpensieve.population.pgmorl import OWN, PgmorlConfig, PopulationConfig, Samples, Tasks
from qpensieve.population.ppo import Place, RunningStatistics
from qpensieve.population.rollout import Fitness, RolloutCollector, lane_seeds
from qpensieve.records import search as records
from qpensieve.records.search import SearchRecord
from qpensieve.records.trees import arrays_to_tree, tree_to_arrays, under
from qpensieve.replay.layout import Rows
from qpensieve.train.evaluate import foreign_lanes
from qpensieve.train.memory import check_population
from qpensieve.train.session import Accumulator, Session, check_finite, environment_errors


class PopulationTrainer(Session):
    """A run that advances iteration by iteration.

    Args:
        config: What to train; checked first.
    """

    def __init__(self, config: RunConfig):
        super().__init__()
        configs.check(config)
        assert isinstance(config.agent, PopulationConfig)
        self.config, self._cfg = config, config.agent
        self.spec = configs.spec_of(config)
        check_continuous(config.algo, self.spec)
        pgmorl.check_environment(self._cfg, config.steps, self.spec)
        in_evaluation = foreign_lanes(config.domain, config.seeds, config.full_eval_episodes)
        check_population(self._cfg, self.spec, config.seeds, in_evaluation)
        self.reference = pgmorl.reference_of(self.spec)
        self._grid = pgmorl.warmup_preferences(self._cfg.stages, self.spec.num_objectives)
        self.block = pgmorl.iteration_steps(self._cfg, self.num_tasks)
        self.lanes_per_seed = 1 if self._cfg.stages.total == "shared" else self.num_tasks
        self._places = tuple(Place(seed, task) for seed in config.seed_list for task in range(self.num_tasks))
        self._widths = (self.spec.obs_size, self._cfg.ppo.hidden, self._cfg.ppo.hidden, self.spec.action_size)
        self._try_reset()
        seeds = lane_seeds(self._places, self._cfg.ppo.num_lanes)
        lanes = make_lanes(config.domain, len(seeds), seeds, LaneOptions(num_threads=config.num_threads))
        self._collector = RolloutCollector(lanes, self._places, self._cfg.ppo)
        episodes = self._cfg.stages.fitness_episodes
        self._fitness = Fitness(config.domain, self._places, episodes, config.num_threads, config.max_eval_steps)
        self._learner = ppo.Learner(self._cfg.ppo, self.spec, self._places)
        self._state = self._learner.init()
        self._moments = ppo.standard(len(self._places), self.spec.obs_size + self.spec.num_objectives)
        per_task = (config.seeds, self.num_tasks)
        self._lam: Float64[np.ndarray, "seed n d"] = np.tile(self._grid, (config.seeds, 1, 1))
        self._node: Int64[np.ndarray, "seed n"] = np.full(per_task, -1)
        self._objs: Float64[np.ndarray, "seed n d"] = np.zeros((*per_task, self.spec.num_objectives))
        size = len(self._kept()[0])
        empty = pgmorl.empty_search(self.reference, size, self._members())
        self.searches = [empty for _ in config.seed_list]
        """Result of each seed's search so far."""
        self.record = records.empty(self.reference, config.seeds, self.num_tasks)
        self.generation = self._generation_start = 0
        self._boundary = self._collector.state()

    @property
    def num_tasks(self) -> int:
        return len(self._grid)

    @property
    def num_iterations(self) -> int:
        """Number of iterations within the budget, which is never exceeded."""
        return self.config.steps // self.block

    @property
    def iteration(self) -> int:
        """Number of iterations that are done."""
        return self.step // self.block

    def advance(self) -> None:
        """Train every task of every seed for one iteration."""
        stages = self._cfg.stages
        length = stages.warmup_iterations if self.generation == 0 else stages.generation_iterations
        if self.iteration == self._generation_start + length:
            self._begin_generation()
        if self.iteration == 0:
            self._measure_first()
        if self.iteration == self._generation_start:
            with self._stepping():
                self._collector.start()
        self._iterate()
        self._boundary = self._collector.state()

    @contextmanager
    def _stepping(self) -> Iterator[None]:
        """Raise failures of the environment as EnvFailedError; lanes go back to the end of the last iteration."""
        with environment_errors(f"after step {self.step}"):
            try:
                yield
            except Exception:
                with suppress(Exception):  # the lanes may be broken; the saved state is not
                    self._collector.restore(self._boundary)
                raise

    def _iterate(self) -> None:
        """Roll out, update and measure; the state changes only when all three are done."""
        collected = jax.tree.map(np.copy, self._moments)
        policy = MemberPolicy(np.asarray(ppo.flat_actors(self._state)), self._widths)
        with self._stepping():
            rollout = self._collector.collect(policy, collected, self.iteration)
        size = self.spec.obs_size
        share = 1.0 - self.iteration / self.num_iterations
        lam, rate = self._lam.reshape(len(self._places), -1), np.full(len(self._places), self._cfg.ppo.learning_rate)
        parts = (lam, collected.scale[:, size:], rate * share)
        goal = ppo.Goal(*jax.device_put(tuple(part.astype(np.float32) for part in parts)))
        state, info = self._learner.update(self._state, rollout, goal, self.iteration)
        info, kept = jax.device_get(info), self._kept(state, collected)
        for name, value in (info | {"a parameter of the policy": kept}).items():
            self._check_finite(name, value)
        objs, steps = self._measure(kept, self.iteration + 1)
        self._state, self._moments, self._objs = state, collected, objs
        self.step = self.summed_to = self.step + self.block
        self._absorb(kept, steps)
        of_archives = {
            "archive_hv": [search.hypervolume for search in self.searches],
            "archive_size": [len(search.archive.objs) for search in self.searches],
        }
        self.sums.add({name: np.asarray(value, np.float64) for name, value in {**info, **of_archives}.items()})

    def _absorb(self, kept: Float32[np.ndarray, "member parameters"], steps: Int64[np.ndarray, " seed"]) -> None:
        """Add the results of the iteration to the archives and, when due, to graphs and populations."""
        stages, num = self._cfg.stages, self.num_tasks
        self._add_row(steps)
        is_sampled = (self.iteration - self._generation_start) % stages.generation_iterations == 0
        members = self._members() if is_sampled else None
        for i, search in enumerate(self.searches):
            own, lam, objs = slice(i * num, (i + 1) * num), self._lam[i], self._objs[i]
            new = Archive(objs, kept[own], np.full(num, self.iteration), lam)
            search = replace(search, archive=search.archive.updated(new, self.reference))
            if members is not None:
                graph, self._node[i] = prediction.add_nodes(search.graph, lam, objs, self._node[i])
                search = replace(search, graph=graph)
                if isinstance(self._cfg, PgmorlConfig):
                    samples = Samples(
                        jax.tree.map(lambda x, own=own: x[own], members), objs.copy(), self._node[i].copy()
                    )
                    search = pgmorl.join(self._cfg, search, samples)
            self.searches[i] = search

    def _begin_generation(self) -> None:
        """Choose the tasks of the next generation."""
        members, num = self._members(), self.num_tasks
        proposals = [self._propose(i) for i in range(self.config.seeds)]
        starts = self._objs.copy()
        for i, (tasks, search) in enumerate(zip(proposals, self.searches, strict=True)):
            for task in np.flatnonzero(tasks.source != OWN).tolist():
                row, member = tasks.source[task], i * num + task
                for mine, theirs in zip(jax.tree.leaves(members), jax.tree.leaves(search.samples.members), strict=True):
                    mine[member] = theirs[row]
                self._node[i, task], starts[i, task] = search.samples.node[row], search.samples.objs[row]
            self._lam[i] = tasks.lam
        self._state, self._moments = jax.tree.map(jnp.asarray, members.state), members.moments
        predicted = np.stack([tasks.predicted for tasks in proposals])
        bounds = np.array([tasks.bounds_share for tasks in proposals])
        self.record = records.appended(self.record, starts=starts, predicted=predicted, bounds_share=bounds)
        self._objs = starts
        self.generation += 1
        self._generation_start = self.iteration

    def _propose(self, i: int) -> Tasks:
        """Propose the tasks of one seed."""
        cfg = self._cfg
        if isinstance(cfg, PgmorlConfig):
            stream = generator(self.config.seed_list[i], Purpose.CANDIDATES, self.generation)
            return pgmorl.propose(cfg, self.searches[i], self._lam[i], stream)
        lam = pgmorl.sliding_preferences(cfg.stages, self.iteration, self.num_iterations, self._grid[:, 0])
        return Tasks(np.full(len(lam), OWN), lam, np.full_like(lam, np.nan))

    def _add_row(self, steps: Int64[np.ndarray, " seed"]) -> None:
        """Add the newest objectives to the record, and the steps that measured them."""
        generation = np.array(self.generation, np.int64)
        record = records.appended(self.record, objs=self._objs, lam=self._lam, generation=generation)
        self.record = replace(record, fitness_steps=record.fitness_steps + steps)

    def _measure_first(self) -> None:
        """Measure the untrained policies, which are the roots of the graphs."""
        self._objs, steps = self._measure(self._kept(), 0)
        self.record = records.empty(self.reference, self.config.seeds, self.num_tasks)
        self._add_row(steps)
        for i, search in enumerate(self.searches):
            none = np.full(self.num_tasks, -1)
            empty = prediction.empty_graph(self.spec.num_objectives)
            graph, self._node[i] = prediction.add_nodes(empty, self._lam[i], self._objs[i], none)
            self.searches[i] = replace(search, graph=graph)

    def _measure(
        self, kept: Float32[np.ndarray, "member parameters"], number: int
    ) -> tuple[Float64[np.ndarray, "seed n d"], Int64[np.ndarray, " seed"]]:
        """Return the mean return of each member's mean action over fresh episodes, and each seed's steps in them."""
        with self._stepping():
            objs, steps = self._fitness.measure(KeptPolicy(kept, self._widths), number)
        return objs.reshape(self._lam.shape), steps.reshape(self.config.seeds, -1).sum(axis=1)

    def policies_of(self, i: int) -> Policies:
        """Return objectives and policies of one seed's archive, or of its members while the archive is empty."""
        archive = self.searches[i].archive
        if len(archive.objs):
            return Policies(archive.objs, archive.policies)
        num = self.num_tasks
        return Policies(self._objs[i], self._kept()[i * num : (i + 1) * num])

    def predictor(self) -> ArchivePredictor:
        """Return a predictor with the current archives."""
        return ArchivePredictor([self.policies_of(i) for i in range(self.config.seeds)], self._widths)

    def search_record(self) -> SearchRecord:
        """Return the record of the search, for the run folder."""
        return pgmorl.complete(self.record, self.searches)

    def parameters(self) -> dict[str, np.ndarray]:
        """Return networks and statistics of all members, and the archives."""
        arrays = tree_to_arrays(self._members(), "member")
        arrays = {name: value for name, value in arrays.items() if ".optimizer" not in name}
        return arrays | self.policy_arrays()

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything that changes, as of the end of the newest iteration, by name."""
        arrays = tree_to_arrays(self._members(), "member") | self._boundary
        for i, search in enumerate(self.searches):
            arrays |= pgmorl.search_to_arrays(search, f"search/{i}/")
        arrays |= pgmorl.record_to_arrays(self.record, "record/")
        arrays |= {f"log/{name}": value for name, value in self.sums.sums.items()} | self.policy_arrays()
        arrays |= {"tasks/lam": self._lam, "tasks/node": self._node, "tasks/objs": self._objs}
        counters = [self.iteration, self.generation, self._generation_start, self.sums.count]
        arrays["counters"] = np.array(counters, np.int64)
        return {name: np.array(value) for name, value in arrays.items()}

    def restore(self, arrays: dict[str, np.ndarray], rows: Rows | None = None, first: int = 0) -> None:
        """Go back to the state that `arrays` returned; there are no rows to restore."""
        del rows, first
        members = arrays_to_tree(self._members(), arrays, "member")
        self._state, self._moments = jax.tree.map(jnp.asarray, members.state), members.moments
        self._collector.restore(arrays)
        self._boundary = self._collector.state()
        one = self._members()
        self.searches = [
            pgmorl.search_from_arrays(arrays, f"search/{i}/", self.reference, one) for i in range(self.config.seeds)
        ]
        self.record = pgmorl.record_from_arrays(arrays, "record/", self.record)
        self._lam, self._node, self._objs = (arrays[f"tasks/{name}"].copy() for name in ("lam", "node", "objs"))
        iteration, self.generation, self._generation_start, count = (int(value) for value in arrays["counters"])
        self.step = self.summed_to = iteration * self.block
        self.sums = Accumulator(under(arrays, "log/"), count)

    def plan(self, steps: int) -> None:
        """Plan for `steps` in total; the learning rate falls to 0 over the new length."""
        config = configs.lengthened(self.config, steps)
        configs.check(config)
        pgmorl.check_environment(self._cfg, steps, self.spec)
        self.config = config

    def close(self) -> None:
        self._collector.close()
        self._fitness.close()

    def _try_reset(self) -> None:
        """Reset a foreign environment once: if that fails, it fails before the run has a folder."""
        if find_domain(self.config.domain) is None:
            with (
                environment_errors("at its first reset"),
                closing(make_lanes(self.config.domain, 1, self.config.seed_list[0])) as lanes,
            ):
                lanes.reset()

    def _members(self) -> Member:
        """Return all members on the host, as copies."""
        return Member(jax.tree.map(np.array, self._state), jax.tree.map(np.copy, self._moments))

    def _kept(self, state: Any = None, moments: Any = None) -> Float32[np.ndarray, "member parameters"]:
        """Return actor and observation statistics of every member: the part that an archive keeps."""
        flat = np.asarray(ppo.flat_actors(state or self._state))
        met: RunningStatistics = moments or self._moments
        size = self.spec.obs_size
        return np.concatenate([flat, met.mean[:, :size], met.scale[:, :size]], axis=1).astype(np.float32)

    def _check_finite(self, what: str, value: Shaped[np.ndarray, "member *rest"]) -> None:
        name = lambda row: f"task {self._places[row].task} of seed {self._places[row].seed}"
        check_finite(what, value, name, self.step + self.block)
