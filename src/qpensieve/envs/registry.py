"""The table of the ten domains, the table of domains with discrete actions, and `make_lanes` for any environment."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qpensieve.envs import deep_sea, gym_lanes, info_objectives, mujoco
from qpensieve.envs.base import Lanes
from qpensieve.envs.simulator import DEFAULT_OPTIONS, LaneOptions, Simulator
from qpensieve.envs.sources import EnvSource, name_of, unknown
from qpensieve.errors import UserError
from qpensieve.gym_ids import NAMESPACE, gym_id
from qpensieve.metrics.references import REFERENCES, reference_point
from qpensieve.types import EnvSpec

UNITS = {
    "treasure": "value",
    "time": "-1 per step",
    "forward": "sum of velocity",
    "height": "sum of height",
    "healthy": "steps",
}
"""Objective -> unit of its return. Objectives without an obvious unit are left out."""


@dataclass(frozen=True)
class Domain:
    """One built-in domain.

    Attributes:
        id: Name.
        obs_size: Length of an observation.
        action_size: Length of an action.
        objectives: One name per objective, in reward order.
        max_steps: Time limit.
        render_fps: Frames per second for real time.
        make: (spec, number of lanes, options) -> simulator.
        obs_range: Lowest and highest number of an observation. LunarLander is unbounded, because it leaves the box that
            Gymnasium declares: heights reach 20, and the box ends at 2.5.
        num_actions: Number of discrete actions. None: actions are continuous.
        exact: The exact front. None: unknown.
        has_contact_forces: Whether contact forces can be observed.
        treasures: Values of the treasures at which an episode can end.
        ceilings: The largest discounted return of each objective from any state. None: unknown.
        in_paper: Whether the paper has this domain.
    """

    id: str
    obs_size: int
    action_size: int
    objectives: tuple[str, ...]
    max_steps: int
    render_fps: int
    make: Callable[[EnvSpec, int, LaneOptions], Simulator]
    obs_range: tuple[float, float] = (-math.inf, math.inf)
    num_actions: int | None = None
    exact: deep_sea.ExactFront | None = None
    has_contact_forces: bool = False
    treasures: tuple[float, ...] = ()
    ceilings: tuple[float, ...] | None = None
    in_paper: bool = True

    @property
    def labels(self) -> tuple[str, ...]:
        """The objectives, with units where there are obvious ones."""
        return tuple(f"{name} ({UNITS[name]})" if name in UNITS else name for name in self.objectives)

    @property
    def front_treasures(self) -> tuple[float, ...]:
        """The treasures on the exact front."""
        ends = () if self.exact is None else self.exact.points[:, 0].tolist()
        return tuple(value for value in ends if value in self.treasures)

    @property
    def is_hypervolume_comparable(self) -> bool:
        """Whether hypervolumes of this domain may be compared with the paper's."""
        return REFERENCES[self.id].comparable

    @property
    def gym_id(self) -> str:
        return gym_id(self.id)

    @property
    def spec(self) -> EnvSpec:
        reference = tuple(float(r) for r in reference_point(self.id))
        sizes = (self.obs_size, self.action_size)
        return EnvSpec(self.id, *sizes, self.objectives, reference, self.max_steps, self.num_actions)


def _robot(name: str, body: mujoco.Body, reward: mujoco.RewardFunction, *objectives: str) -> Domain:
    make = lambda spec, num_lanes, options: mujoco.MujocoSimulator(spec, body, reward, num_lanes, options)
    obs_size, action_size, render_fps = _SIZES[body]
    forces = body is mujoco.ANT
    return Domain(name, obs_size, action_size, objectives, 1000, render_fps, make, has_contact_forces=forces)


def _lunar_lander(spec: EnvSpec, num_lanes: int, options: LaneOptions) -> Simulator:
    # Imported here, because the other domains must work without Box2D and pygame.
    from qpensieve.envs.lunar_lander import make_lander

    return make_lander(spec, num_lanes, options.num_threads)


_LANDER = ("shaping", "result", "main power", "side power")
_JOINTS = ("control thigh", "control leg", "control foot")
_SIZES = {
    mujoco.HALF_CHEETAH: (17, 6, 20),
    mujoco.HOPPER: (11, 3, 125),
    mujoco.ANT: (27, 8, 20),
    mujoco.WALKER: (17, 6, 125),
}
"""Robot -> length of an observation and of an action, frames per second for real time."""
_TABLE = (
    Domain(
        "DST2d",
        2,
        2,
        ("treasure", "time"),
        50,
        5,
        lambda spec, num_lanes, _: deep_sea.BoatSimulator(spec, num_lanes),
        (0.0, float(deep_sea.SIZE)),
        exact=deep_sea.FRONT,
        treasures=deep_sea.VALUES,
        ceilings=(max(deep_sea.VALUES), -1.0),
    ),
    Domain("LunarLander4d", 8, 2, _LANDER, 2000, 50, _lunar_lander),
    Domain("LunarLander5d", 8, 2, (*_LANDER, "time"), 2000, 50, _lunar_lander),
    _robot("HalfCheetah2d", mujoco.HALF_CHEETAH, mujoco.half_cheetah_2d, "forward", "control"),
    _robot("Hopper2d", mujoco.HOPPER, mujoco.hopper_2d, "forward", "control"),
    _robot("Hopper3d", mujoco.HOPPER, mujoco.hopper_3d, "forward", "height", "control"),
    _robot("Hopper5d", mujoco.HOPPER, mujoco.hopper_5d, "forward", *_JOINTS, "healthy"),
    _robot("Ant2d", mujoco.ANT, mujoco.ant_2d, "forward", "control"),
    _robot("Ant3d", mujoco.ANT, mujoco.ant_3d, "forward", "healthy", "control"),
    _robot("Walker2d", mujoco.WALKER, mujoco.walker_2d, "forward", "control"),
)
DOMAINS: dict[str, Domain] = {domain.id: domain for domain in _TABLE}
"""The ten domains of the paper."""
DISCRETE: dict[str, Domain] = {
    "DeepSeaTreasure": Domain(
        "DeepSeaTreasure",
        obs_size=2,
        action_size=1,
        objectives=("treasure", "time"),
        max_steps=100,
        render_fps=5,
        make=lambda spec, num_lanes, _: deep_sea.GridBoatSimulator(spec, num_lanes),
        num_actions=len(deep_sea.MOVES),
        treasures=deep_sea.VALUES,
        in_paper=False,
    )
}
"""Environments with discrete actions; they have no Gymnasium id."""


def make_lanes(
    domain: EnvSource, num_lanes: int, seed: int | Sequence[int], options: LaneOptions = DEFAULT_OPTIONS
) -> Lanes:
    """Make lanes of a built-in domain, or of any Gymnasium environment with a vector reward.

    Args:
        domain: A domain name (`Hopper2d`), a Gymnasium id, `module:factory`, or a function that makes an environment.
        num_lanes: Number of lanes.
        seed: One number, from which each lane derives its own random stream, or a list with one per lane.
        options: How the lanes run.
    """
    return Lanes(make_simulator(domain, num_lanes, options), num_lanes, seed, options)


def make_simulator(domain: EnvSource, num_lanes: int, options: LaneOptions = DEFAULT_OPTIONS) -> Simulator:
    """Make the simulator of `make_lanes`."""
    if num_lanes < 1:
        raise ValueError(f"num_lanes must be at least 1, got {num_lanes}")
    known = find_domain(domain) if isinstance(domain, str) else None
    if options.contact_forces and not (known and known.has_contact_forces):
        raise UserError(f"contact_forces must be False for {name_of(domain)}: only Ant2d and Ant3d have contact forces")
    if known is not None:
        if options.num_workers:
            got = f"got {options.num_workers}; use num_threads"
            raise UserError(f"num_workers must be 0 for {known.id}, which is not a foreign environment, {got}")
        return known.make(known.spec, num_lanes, options)
    return gym_lanes.make_simulator(domain, num_lanes, options.num_workers, options.first_lane, options.is_drawn)


def find_domain(name: str) -> Domain | None:
    """Return the domain of a name, such as `Hopper2d` or `qpensieve/Hopper2d-v0`; None for any other environment."""
    return DISCRETE.get(name) or DOMAINS.get(name.removeprefix(f"{NAMESPACE}/").removesuffix("-v0"))


def with_objectives(domain: str, objectives: Sequence[str]) -> str:
    """Return the name of an environment whose objectives are numbers of its `info`; no objectives: `domain` itself.

    Raises:
        ValueError: The domain is built in and has its own objectives, or the objectives are not usable as names.
    """
    known = find_domain(domain)
    if objectives and known is not None:
        raise UserError(f"{known.id} has objectives of its own ({', '.join(known.objectives)}): leave objectives out")
    return info_objectives.joined(domain, objectives)


def code_of(domain: EnvSource) -> str | None:
    """Describe the module that making this environment would import; None if it imports no module of the user.

    Only `module:factory` and `module:id` import a module. A plain Gymnasium id must be registered already.
    """
    if not isinstance(domain, str) or find_domain(domain) is not None or ":" not in domain:
        return None
    return f"the Python module {domain.partition(':')[0]!r} for its domain {domain!r}"


def spec_of(domain: EnvSource) -> EnvSpec:
    """Return the spec of an environment. A foreign environment is made and closed to find its spec."""
    known = find_domain(domain) if isinstance(domain, str) else None
    if known is not None:
        return known.spec
    if isinstance(domain, str):
        with_objectives(*info_objectives.parts(domain))  # refuses objectives of a built-in domain, and a single one
    lanes = make_lanes(domain, 1, 0)
    lanes.close()
    return lanes.spec


def get_domain(name: str) -> Domain:
    """Return the domain of a name, as `find_domain` does; ValueError with the nearest names if there is none."""
    known = find_domain(name)
    if known is None:
        raise unknown(name)
    return known
