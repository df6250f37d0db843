# Full-length runs on a borrowed accelerator, several at once, over several calls (results/QUEUE.md):
#   device_queue.sh setup [PATCH...]             wheels, a copy of src with the patches; once a machine
#   device_queue.sh tend PLAN AT_ONCE SECONDS    makes the runs of a plan (tools/column.py), AT_ONCE at a time, each in the background; a later
#                                                call goes on, with the same plan or another; then packs as `home` does
#   device_queue.sh stop NAME...                 ends runs early: they save. `tend` again without their lines, or they are resumed
#   device_queue.sh home                         exported results, logs, actors and critics into $OUT
# Everything lives below $Q, which outlasts a call; the working tree is copied anew by every call.
Q=${Q:-/tmp/q} PY=${PY:-python3}
export PYTHONUNBUFFERED=1 XLA_PYTHON_CLIENT_PREALLOCATE=false OPENBLAS_NUM_THREADS=1
export PYTHONPATH="$Q/src:$Q/site" CUDA_MPS_PIPE_DIRECTORY=$Q/mps CUDA_MPS_LOG_DIRECTORY=$Q/mps
OPTIONS=${OPTIONS:-"--checkpoint-seconds 100000 --parameters-period 100000 --keep-replay off"}
qp() { $PY -c 'from qpensieve.cli import main; main()' "$@"; }
alive() { kill -0 "$(cat "$1")" 2>/dev/null; }
verb=$1
shift
case $verb in
setup)
  mkdir -p "$Q/runs" "$Q/mps"
  $PY -m pip install --quiet --no-index --no-deps --target "$Q/site" wheels/*.whl
  cp -r src "$Q/src"
  for patch in "$@"; do patch -d "$Q/src" -p0 <"$patch"; done ;;
tend)
  $PY tools/column.py "$Q" --plan "$1" --at-once "$2" --seconds "$3" -- $OPTIONS
  nvidia-smi --query-gpu=utilization.gpu,power.draw --format=csv,noheader
  bash "$0" home ;;
stop)
  for name in "$@"; do pkill -INT -g "$(ps -o pgid= -p "$(cat "$Q/$name.pid")" | tr -d ' ')" python3; done
  for name in "$@"; do while alive "$Q/$name.pid"; do sleep 0.5; done; done ;;
home)
  export JAX_PLATFORMS=cpu
  for run in "$Q"/runs/*/; do
    [ -f "$run/evaluations.npz" ] && qp export "$run" --out "$OUT/results/$(basename "$run").json" >/dev/null 2>&1 &
  done
  tar czf "$OUT/logs.tgz" -C "$Q" --exclude=checkpoints --exclude=replay --exclude=parameters --exclude=site --exclude=src --exclude=mps .
  $PY - "$Q/runs" "$OUT" <<'P'
import io, sys, tarfile
from pathlib import Path
import numpy as np
ROOM, MOST = 15 << 20, 3  # eight files come back, none above 16 MiB, and 64 MiB together: logs and results need room too
bundles = [[]]
for run in sorted(Path(sys.argv[1]).iterdir()):
    if not (run / "summary.json").exists():
        continue
    for newest in sorted(run.glob("parameters/step_*.npz"))[-1:]:
        kept = {k: v for k, v in np.load(newest).items() if (".actor" in k or ".critic" in k) and "snapshots" not in k}
        np.savez_compressed(packed := io.BytesIO(), **kept)
        if sum(len(data) for _, data in bundles[-1]) + len(packed.getvalue()) > ROOM:
            bundles.append([])
        bundles[-1].append((f"{run.name}-{newest.name}", packed.getvalue()))
for name, _ in (entry for bundle in bundles[MOST:] for entry in bundle):
    print(f"no room for {name}: only results and logs of that run come back")
for number, bundle in enumerate(filter(None, bundles[:MOST])):
    with tarfile.open(Path(sys.argv[2]) / f"parameters-{number}.tar", "w") as tar:
        for name, data in bundle:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
P
  wait
  for run in "$Q"/runs/*/; do
    echo "== $(basename "$run")"
    tail -n 3 "$Q/$(basename "$run").log" | cut -c1-300
  done
  mkdir -p "$OUT/results"
  tar cf "$OUT/results.tar" -C "$OUT" results && rm -r "$OUT/results" ;;
esac
