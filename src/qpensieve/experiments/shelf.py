"""Where the runs of a plan lie: its own folders, and files that `qpensieve export` wrote elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qpensieve.config import RunConfig, from_dict, resolve, to_dict
from qpensieve.experiments.artefacts import Wanted
from qpensieve.experiments.plans import Plan
from qpensieve.experiments.tasks import Store, Task
from qpensieve.records import checkpoint
from qpensieve.records.reading import FileError, read_object

FREE = {"seeds": 1, "first_seed": 0, "num_threads": None, "kernels": "off", "checkpoint_seconds": 0.0}
"""Settings in which runs of one cell may differ -> what they are set to before comparing."""
FREE_PERIODS = ("eval_period", "full_eval_period", "log_period", "parameters_period", "keep_replay", "eval_stride")
"""Settings that change when something is written, not what is learned."""


@dataclass(frozen=True, eq=False)
class Exported:
    """A file that `qpensieve export` wrote."""

    path: Path
    config: RunConfig
    key: RunConfig
    """What runs of one cell share of it."""


@dataclass(frozen=True, eq=False)
class Shelf:
    """Finds the runs of a plan.

    Attributes:
        plan: The plan.
        store: The folder of its runs.
        exported: Results of other machines.
    """

    plan: Plan
    store: Store
    exported: tuple[Exported, ...] = ()

    @property
    def notes(self) -> list[str]:
        """What a reader must know of all numbers."""
        size = self.plan.size
        is_whole = size.scale == "paper" and size.steps is None
        return [] if is_whole else [f"Made at the scale '{size.scale}': not comparable with the paper's numbers."]

    @property
    def left_out(self) -> list[str]:
        """One sentence for each folder that has the name of a run of the plan, but holds one with other settings."""
        begun = [task for task in self.plan.tasks if self.store.run_folder(task) is not None]
        others = [(task.name, found) for task in begun if (found := self._differences(task))]
        return [f"{name} is left out: it has other settings ({'; '.join(found)})." for name, found in others]

    def _differences(self, task: Task) -> list[str]:
        """In which settings the folder of a task is that of another run; its length may differ."""
        before = self.store.prepared(task)
        if before is None:
            return []
        ours, theirs = _comparable(replace(task.config, steps=before.steps)), _comparable(before)
        return [] if ours == theirs else checkpoint.differences(to_dict(theirs), to_dict(ours), ignore=())

    def paths(self, wanted: Wanted) -> list[Path]:
        """Run folders of a run, published or not, and exported files; all of the same settings.

        A seed counts once: a folder that is done goes before an exported file, and that before a folder that is not.
        """
        tasks = [task for task in self.plan.tasks if task.name in self.plan.folders.get(wanted, ())]
        tasks = [task for task in tasks if not self._differences(task)]
        found = [(task, path) for task in tasks if (path := self.store.run_folder(task)) is not None]
        done = [(set(task.config.seed_list), path) for task, path in found if self.store.is_done(task)]
        others = [(set(task.config.seed_list), path) for task, path in found if not self.store.is_done(task)]
        config = _comparable(self.plan.size.config_of(wanted))
        same = [one for one in self.exported if one.key == config]
        files = [(set(one.config.seed_list), one.path) for one in same]
        kept: list[Path] = []
        taken: set[int] = set()
        for seeds, path in [*done, *files, *others]:
            if not seeds & taken:
                kept.append(path)
                taken |= seeds
        return kept


def read_exported(folders: Sequence[Path]) -> tuple[Exported, ...]:
    """The exported runs among the JSON files of some folders, or files named one by one.

    Raises:
        OSError: One of them does not exist.
    """
    found = []
    for folder in folders:
        if not folder.exists():
            raise FileNotFoundError(f"{folder} does not exist: results are JSON files written by 'qpensieve export'")
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else [folder]:
            config = _config(path)
            if config is not None:
                found.append(Exported(path, config, _comparable(config)))
    return tuple(found)


def _config(path: Path) -> RunConfig | None:
    """The configuration of an exported run; None for JSON of another kind."""
    try:
        content = read_object(path)
    except FileError:
        return None
    if "full_protocol" not in content or not isinstance(content.get("config"), dict):
        return None
    try:
        return from_dict(content["config"])
    except (ValueError, TypeError, KeyError):  # of a version that had other settings
        return None


def _comparable(config: RunConfig) -> RunConfig:
    """The configuration without what runs of one cell may differ in."""
    plain = RunConfig(config.domain)
    same = {name: getattr(plain, name) for name in FREE_PERIODS}
    resolved = resolve(replace(config, kernels="off"))
    return replace(resolved, **same, **FREE, domain=config.domain_id)
