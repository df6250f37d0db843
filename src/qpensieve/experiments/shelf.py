"""Where the runs of a plan lie: its own folders, and files that `qpensieve export` wrote elsewhere."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qpensieve.config import RunConfig, from_dict
from qpensieve.errors import MissingFileError
from qpensieve.experiments.alike import comparable
from qpensieve.experiments.plan import Plan, Wanted
from qpensieve.experiments.tasks import Progress, Store, Task
from qpensieve.records.evaluations import about_missing
from qpensieve.records.folder import EVALUATIONS
from qpensieve.records.reading import FileError, read_object


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
        """One sentence for each folder of the plan that holds a run with other settings, or one without its scores."""
        return [sentence for task in self.plan.tasks for sentence in self._why_left_out(task)]

    def left_out_of(self, wanted: Wanted, seeds: Collection[int]) -> list[str]:
        """The same for the folders of one run, but for those whose seeds are all among `seeds`, so found elsewhere."""
        tasks = [task for task in self._tasks_of(wanted) if not set(task.config.seed_list) <= set(seeds)]
        return [sentence for task in tasks for sentence in self._why_left_out(task)]

    def _why_left_out(self, task: Task) -> list[str]:
        run = self.store.run_folder(task)
        found = self.store.differences(task) if run is not None else []
        if found:
            return [f"{task.name} is left out: it has other settings ({'; '.join(found)})."]
        table = None if run is None or not self.store.is_done(task) else run / EVALUATIONS
        return [] if table is None or table.exists() else [f"{task.name} is left out: {about_missing(table)}."]

    def _tasks_of(self, wanted: Wanted) -> list[Task]:
        return [task for task in self.plan.tasks if task.name in self.plan.folders.get(wanted, ())]

    def progress(self, task: Task) -> Progress:
        """How far a task is; a folder that the report leaves out is not its run, whatever it holds."""
        found, others = self.store.progress(task), self.store.differences(task)
        return replace(found, state="other settings", message="; ".join(others)) if others else found

    def paths(self, wanted: Wanted) -> list[Path]:
        """Run folders of a run, published or not, and exported files; all of the same settings.

        A seed counts once: a folder that is done goes before an exported file, and that before a folder that is not.
        """
        tasks = [task for task in self._tasks_of(wanted) if not self.store.differences(task)]
        found = [(task, path) for task in tasks if (path := self.store.run_folder(task)) is not None]
        done = [(set(task.config.seed_list), path) for task, path in found if self.store.is_done(task)]
        others = [(set(task.config.seed_list), path) for task, path in found if not self.store.is_done(task)]
        config = comparable(self.plan.size.config_of(wanted))
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
            raise MissingFileError(f"{folder} does not exist: results are JSON files written by 'qpensieve export'")
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else [folder]:
            config = _config(path)
            if config is not None:
                found.append(Exported(path, config, comparable(config)))
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
