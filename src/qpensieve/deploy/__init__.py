"""The numbered policy file: actors, optional critics and the calibration as plain arrays, and the loader for it.

Every version of the package writes one format and says its number in the file. Formats stay readable from format 2 on:
a committed file of each is a contract test.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from qpensieve.config import RunConfig
from qpensieve.deploy.c_header import write_header
from qpensieve.deploy.exported import ExportedPolicies, environment_of, measure, open_policies
from qpensieve.deploy.qpensieve_policy import FORMAT, load
from qpensieve.errors import UserError, make_folder
from qpensieve.learning.acting import PolicySet
from qpensieve.records import evaluations, folder
from qpensieve.records.calibration import Calibration
from qpensieve.records.files import write_npz, write_text
from qpensieve.records.scores import summarize
from qpensieve.train.saved import SavedPolicies
from qpensieve.train.session import Arrays, Predictor, Session

__all__ = ["ExportedPolicies", "export_policy", "load", "measure", "open_policies", "write_header", "write_loader"]
__all__ += ["write_policy"]
CRITIC = re.compile(r"\.(?:sac\.)?critic\.net\.(first|second|last)\.(weight|bias)$")
"""Names of the vector critics' arrays among the parameters of a session."""
LAYERS = {"first": 0, "second": 1, "last": 2}
LOADER = Path(__file__).with_name("qpensieve_policy.py")
"""The loader; it needs NumPy alone."""


def export_policy(  # noqa: PLR0913 (each is an option of the command)
    source: Path,
    out: Path,
    seed: int | None = None,
    step: int | None = None,
    trust: bool = False,
    say: Callable[[str], None] = lambda message: None,
    critics: bool = False,
) -> Path:
    """Write the policy of one seed of a run or saved agent as arrays that the loader reads; returns the file.

    The file also holds the calibration of these policies, if there is one.

    Args:
        source: A run folder, a saved agent, or a policy that comes with the package.
        out: The file to write.
        seed: Number of the seed. None: the seed with the best UT if the step was fully evaluated, else the first.
        step: Step of a checkpoint or of kept parameters. None: the newest that can be read.
        trust: Whether the code that the configuration names may be imported.
        say: Receives a sentence with the seed and the step.
        critics: Write the critics too.

    Raises:
        ValueError: There is no such seed or step, or the method has no critic to write.
    """
    folder.check_out(out, "policy.npz")
    saved = open_policies(source, trust)
    row = None if seed is None else saved.row_of(seed)
    policies, done = saved.newest(say) if step is None else (saved.predictor(step), step)
    row, why = (row, "") if row is not None else _choose(source, saved.config, done)
    seeds = saved.config.seed_list
    say(f"{saved.config.domain}, {saved.config.algo}: seed {seeds[row]}{why}, step {done:,}")
    known = saved.calibration if saved.calibration is not None and saved.calibration.step == done else None
    return write_policy(policies, saved, row, out, done, known, saved.parameters(done) if critics else None)


def write_policy(  # noqa: PLR0913 (a policy, whose it is, and where it goes)
    predictor: Predictor,
    source: Session | SavedPolicies,
    row: int,
    out: Path,
    step: int,
    calibration: Calibration | None = None,
    parameters: Arrays | None = None,
) -> Path:
    """Write the policies of one seed; returns the file.

    Args:
        predictor: The policies of all seeds.
        source: Session or folder of the policies.
        row: Place of the seed among those of the run.
        out: The file.
        step: Environment step of the policies.
        calibration: Their calibration. None: they were not calibrated.
        parameters: The networks of this step, from which the critics are written. None: no critics.
    """
    folder.check_out(out, "policy.npz")
    served, config, spec = predictor.exported(row), source.config, source.spec
    plain = served.policies
    arrays = _arrays(served, spec.num_objectives)
    if calibration is not None:
        arrays |= {"calibration_preferences": calibration.preferences, "calibration_asks": calibration.asks[row]}
    if parameters is not None:
        arrays |= _critic(config, parameters, row)
    about = {
        "format": FORMAT,
        "domain": config.domain_id,
        "algo": config.algo,
        "seed": config.seed_list[row],
        "step": step,
        **environment_of(spec),
        "head": plain.head,
        "num_layers": len(plain.net.layers),
        "activation": "tanh" if plain.net.is_tanh else "relu",
        "is_normalized": plain.net.is_normalized,
        "is_conditioned": plain.is_conditioned,
        "epsilon": plain.epsilon,
        "critic": None if parameters is None else {"num_layers": 3, "activation": "relu", "is_normalized": False},
        "arrays": list(arrays),
    }
    make_folder(out.parent)
    write_npz(out, {"about": np.array(json.dumps(about))} | arrays)
    return out


def write_loader(policy: Path) -> tuple[Path, bool]:
    """Put the loader next to a policy; return its path, and whether it is this version's. An existing file stays."""
    target = policy.with_name(LOADER.name)
    text = LOADER.read_text()
    if not target.exists() and not target.is_symlink():
        write_text(target, text)
    return target, target.is_file() and target.read_text() == text


def _choose(source: Path, config: RunConfig, step: int) -> tuple[int, str]:
    """Return the row of the seed to take if none was named, and words for why."""
    path = source / folder.EVALUATIONS
    table = evaluations.load(path) if config.seeds > 1 and path.exists() else None
    if table is None or step not in table.full_steps or table.num_seeds != config.seeds:
        return 0, f" (the first of {config.seeds}; --seed takes another)" if config.seeds > 1 else ""
    returns = table.full_returns[table.full_steps.tolist().index(step)]
    best = int(np.argmax(summarize(returns, table.full_preferences).ut))
    return best, f" (the best of {config.seeds} by UT; --seed takes another)"


def _arrays(served: PolicySet, num_objectives: int) -> dict[str, np.ndarray]:
    """Return all arrays of the policies by name; arrays that they do not share lead with an axis of policies."""
    plain = served.policies
    arrays = {**plain.arrays, **plain.shared}
    for i, (weight, bias) in enumerate(plain.net.layers):
        arrays |= {f"weight_{i}": weight, f"bias_{i}": bias[:, 0]}
    if served.returns is not None:
        return arrays | {"returns": served.returns}
    # A single policy is the nearest to every preference, whatever its own is said to be.
    own = np.full((1, num_objectives), 1 / num_objectives) if served.preferences is None else served.preferences
    return arrays | {"preferences": own}


def _critic(config: RunConfig, parameters: Arrays, row: int) -> dict[str, np.ndarray]:
    """Return the current critics of the `row`-th seed by the loader's names; the first axis counts the twins."""
    found = {match.groups(): value[row] for name, value in parameters.items() if (match := CRITIC.match(name))}
    if not found:
        raise UserError(f"critics can be exported of qpensieve, mosac and cnder only, not of {config.algo}")
    named = {f"critic_{kind}_{LAYERS[layer]}": value for (layer, kind), value in found.items()}
    has_twins = named["critic_bias_0"].ndim == 2
    return {name: value if has_twins else value[None] for name, value in named.items()}
