"""guards_cost.py SEEDS FOLDER: what each guard costs an update, with fused kernels and without (Walker2d's shapes).

Compiles, writes FOLDER/ready, waits for FOLDER/go, measures all arms in turns and writes FOLDER/times.json.
"""

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import update
from benchmarks.timing import interleave
from qpensieve.algos.mosac import SacConfig
from qpensieve.algos.qpensieve import QPensieveConfig
from qpensieve.config import override
from qpensieve.envs import get_domain
from qpensieve.methods import make_algorithm
from qpensieve.presets import default_config

seeds, folder = int(sys.argv[1]), Path(sys.argv[2])
IS_SMALL = bool(os.environ.get("SMALL"))
ON = "off" if IS_SMALL else "on"
spec = get_domain("Walker2d").spec
paper = QPensieveConfig(SacConfig(hidden=16, batch_size=16) if IS_SMALL else SacConfig())
sizes = {"hidden": paper.sac.hidden, "batch_size": paper.sac.batch_size}
robust: Any = override(default_config("Walker2d", preset="robust"), sizes).agent
settings: dict[str, Any] = {
    "paper": paper,
    "margin": replace(paper, snapshot_margin=0.05),
    "pushes": replace(paper, max_push_loss=2.0),
    "gradient": replace(paper, sac=replace(paper.sac, max_critic_gradient=3.0)),
    "temperature": replace(paper, sac=replace(paper.sac, temperature_per="preference")),
    "bounds": replace(paper, sac=replace(paper.sac, bounded_targets="on")),
    "robust": robust,
    "robust without gradient": replace(robust, sac=replace(robust.sac, max_critic_gradient=None)),
}
arms = {f"{name}, kernels": make_algorithm("qpensieve", cfg, spec, ON) for name, cfg in settings.items()}
arms |= {f"{name}, plain": make_algorithm("qpensieve", settings[name], spec, "off") for name in ("paper", "robust")}
of_blocks = update.Settings(seeds=(seeds,), block=5 if IS_SMALL else 50, blocks=2 if IS_SMALL else None)


def compiled(item: tuple[str, Any]) -> Any:
    timer = update.make_timer(item[1], spec, seeds, of_blocks)
    timer()
    print("compiled", item[0], flush=True)
    return timer


with ThreadPoolExecutor(1 if IS_SMALL else len(arms)) as pool:
    timers = list(pool.map(compiled, arms.items()))
(folder / "ready").touch()
while not (folder / "go").exists():
    time.sleep(0.02)
for timer in timers:
    timer()
times = interleave(timers, 5)
rows = [
    {"arm": name, "seeds": seeds, "us": round(1e6 * median(all_of), 2)}
    for name, all_of in zip(arms, times, strict=True)
]
print(json.dumps(rows), flush=True)
(folder / "times.json").write_text(json.dumps(rows))
os._exit(0)
