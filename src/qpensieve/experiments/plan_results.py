"""Find the results of a plan: its own run folders, and files that `qpensieve export` wrote elsewhere."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from qpensieve.compatibility import SAME_SETTINGS, settings_of
from qpensieve.config import RunConfig, from_dict
from qpensieve.errors import MissingFileError
from qpensieve.experiments.plan import Plan, Wanted
from qpensieve.experiments.tasks import Task, folder_differences, is_done
from qpensieve.records.evaluations import about_missing
from qpensieve.records.files import FileError, read_object
from qpensieve.records.folder import EVALUATIONS


@dataclass(frozen=True, eq=False)
class Exported:
    """A file that `qpensieve export` wrote."""

    path: Path
    config: RunConfig
    settings: dict[str, object]
    """Settings that must equal those of a plan's run to take its place."""


@dataclass(frozen=True, eq=False)
class PlanResults:
    """The results of a plan.

    Attributes:
        plan: The plan.
        exported: Results of other machines.
    """

    plan: Plan
    exported: tuple[Exported, ...] = ()

    @property
    def notes(self) -> list[str]:
        """Sentences that hold for all numbers of the report."""
        size = self.plan.size
        is_whole = size.scale == "paper" and size.steps is None
        return [] if is_whole else [f"Made at the scale '{size.scale}': not comparable with the paper's numbers."]

    @property
    def left_out(self) -> list[str]:
        """One sentence for each folder of the plan that holds a run with other settings, or one without its scores."""
        return [sentence for task in self.plan.tasks for sentence in _why_left_out(task)]

    def left_out_of(self, wanted: Wanted, seeds: Collection[int]) -> list[str]:
        """Return why folders of one run are left out; folders whose seeds are all among `seeds` do not count."""
        tasks = [task for task in self.plan.tasks_of[wanted] if not set(task.config.seed_list) <= set(seeds)]
        return [sentence for task in tasks for sentence in _why_left_out(task)]

    def paths(self, wanted: Wanted) -> list[Path]:
        """Return the folders (done or not) and exported files of a run, all with the same settings.

        Each seed counts once, from a finished folder if there is one, else from an exported file, else from an
        unfinished folder.
        """
        tasks = [task for task in self.plan.tasks_of[wanted] if task.folder.is_dir() and not folder_differences(task)]
        done = [(set(task.config.seed_list), task.folder) for task in tasks if is_done(task)]
        others = [(set(task.config.seed_list), task.folder) for task in tasks if not is_done(task)]
        settings = settings_of(self.plan.configs[wanted], SAME_SETTINGS)
        files = [(set(run.config.seed_list), run.path) for run in self.exported if run.settings == settings]
        kept: list[Path] = []
        taken: set[int] = set()
        for seeds, path in [*done, *files, *others]:
            if not seeds & taken:
                kept.append(path)
                taken |= seeds
        return kept


def _why_left_out(task: Task) -> list[str]:
    if found := folder_differences(task):
        return [f"{task.name} is left out: it has other settings ({'; '.join(found)})."]
    table = task.folder / EVALUATIONS
    return [f"{task.name} is left out: {about_missing(table)}."] if is_done(task) and not table.exists() else []


def read_exported(folders: Sequence[Path]) -> tuple[Exported, ...]:
    """Return the exported runs among the JSON files of some folders, or among files named one by one.

    Raises:
        OSError: A file or folder does not exist.
    """
    found = []
    for folder in folders:
        if not folder.exists():
            raise MissingFileError(f"{folder} does not exist: results are JSON files written by 'qpensieve export'")
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else [folder]:
            config = _config(path)
            if config is not None:
                found.append(Exported(path, config, settings_of(config, SAME_SETTINGS)))
    return tuple(found)


def _config(path: Path) -> RunConfig | None:
    """Return the configuration of an exported run; None for other JSON, or settings that this version cannot read."""
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
