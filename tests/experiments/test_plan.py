"""Which run folders a plan needs, with those there already counted in."""

from pathlib import Path

from qpensieve.experiments.paper import ARTEFACTS
from qpensieve.experiments.plan import Artefact, Size, Wanted, make_plan, missing_seeds

ONE = Artefact("one", "One run", "here", "scores", {("DST2d", "Q-Pensieve"): Wanted("DST2d")})


def names(root: Path, size: Size) -> list[str]:
    return [task.name for task in make_plan([ONE], size, root).tasks]


def test_the_whole_paper_is_79_folders(tmp_path: Path):
    plan = make_plan(list(ARTEFACTS.values()), Size("smoke"), tmp_path)
    assert len(plan.tasks) == len({task.name for task in plan.tasks}) == 79
    critics = {task.config.domain for task in plan.tasks if task.critic}
    assert critics == {"Hopper2d", "HalfCheetah2d"}


def test_more_seeds_are_another_folder(tmp_path: Path):
    assert names(tmp_path, Size("smoke", seeds=2)) == ["DST2d-qpensieve-s0-1"]
    (tmp_path / "DST2d-qpensieve-s0-1").mkdir()
    assert names(tmp_path, Size("smoke", seeds=5)) == ["DST2d-qpensieve-s0-1", "DST2d-qpensieve-s2-4"]
    assert names(tmp_path, Size("smoke", seeds=1)) == ["DST2d-qpensieve-s0-1"]
    tasks = make_plan([ONE], Size("smoke", seeds=5), tmp_path).tasks
    assert [seed for task in tasks for seed in task.config.seed_list] == [0, 1, 2, 3, 4]


def test_missing_seeds_are_few_ranges():
    for there, missing in (([range(2, 4)], [range(2), range(4, 6)]), ([range(6)], []), ([range(1, 9)], [range(1)])):
        assert missing_seeds(range(6), there) == missing


def test_another_length_is_another_run_where_the_schedule_depends_on_it(tmp_path: Path):
    table = [ARTEFACTS["envelope"], ARTEFACTS["curves"]]
    folders = {}
    for steps in (50_000, 100_000):
        plan = make_plan(table, Size(steps=steps, only=("DST2d", "Hopper2d")), tmp_path)
        folders[steps] = {task.config.algo: task.name for task in plan.tasks}
        assert {task.config.steps for task in plan.tasks} == {steps}
    assert folders[50_000]["qpensieve"] == folders[100_000]["qpensieve"]  # goes on
    assert folders[50_000]["envelope"] == "DST2d-envelope-50000-s0-4"
    assert folders[50_000]["pfa"] != folders[100_000]["pfa"]


def test_a_long_name_is_cut_to_what_file_systems_take_and_still_tells_runs_apart(tmp_path: Path):
    many = dict.fromkeys(("eval_period", "random_steps", "parameters_period", "replay_capacity", "log_period"), 50_000)
    many |= {"checkpoint_seconds": 0.0, "learning_rate": 3e-4, "batch_size": 64, "target_entropy_end": -2.5}
    runs = [Wanted("DST2dé", settings=tuple((many | {"eval_stride": n}).items()) * 2) for n in (5, 50)]
    names = [run.name for run in runs]
    assert len(set(names)) == 2
    for name in names:
        assert name.startswith("DST2dé-qpensieve-eval_period-50000-random_steps-50000-")
        (tmp_path / f"{name}-{10**9}-s{2**31 - 1}-{2**31 - 1}").mkdir()


def test_so_it_is_where_a_setting_has_a_schedule():
    name = lambda steps, **settings: Wanted("DST2d", settings=tuple(settings.items()), steps=steps).name
    assert name(400) == name(800)
    assert name(400, target_entropy_end=-2.5) != name(800, target_entropy_end=-2.5)
    assert name(400, learning_rate_end=3e-5) != name(800, learning_rate_end=3e-5)
    given = {"target_entropy_end": -2.5, "anneal_updates": 600}
    assert name(400, **given) == name(800, **given)
    assert Wanted("DST2d", preset="robust", steps=400).name != Wanted("DST2d", preset="robust", steps=800).name


def test_the_single_sacs_keep_their_one_seed(tmp_path: Path):
    plan = make_plan([ARTEFACTS["sac-fronts"]], Size("smoke", seeds=7), tmp_path)
    assert {task.config.algo: task.config.seeds for task in plan.tasks} == {"qpensieve": 7, "sac": 1}
