# Full-length runs on a borrowed accelerator, several at once, over several calls (results/QUEUE.md):
#   device_queue.sh setup [PATCH...]          wheels, a copy of src with the patches, MPS; once a machine
#   device_queue.sh start NAME DOMAIN ARGS... a training run in the background, in a session of its own
#   device_queue.sh watch SECONDS             reports every minute, ends when nothing runs, then packs as `home` does
#   device_queue.sh stop NAME...              ends runs early and evaluates them with the full protocol (untried on a run in full training)
#   device_queue.sh home                      exported results, logs, actors and critics into $OUT
# Everything lives below $Q, which outlasts a call; the working tree is copied anew by every call.
Q=${Q:-/tmp/q} PY=${PY:-python3}
export PYTHONUNBUFFERED=1 XLA_PYTHON_CLIENT_PREALLOCATE=false OPENBLAS_NUM_THREADS=1
export PYTHONPATH="$Q/src:$Q/site" CUDA_MPS_PIPE_DIRECTORY=$Q/mps CUDA_MPS_LOG_DIRECTORY=$Q/mps
export XLA_FLAGS="${XLA_FLAGS:---xla_gpu_command_buffer_scheduling_mode=CONCURRENT}"
qp() { $PY -c 'from qpensieve.cli import main; main()' "$@"; }
alive() { kill -0 "$(cat "$1")" 2>/dev/null; }
verb=$1
shift
case $verb in
setup)
  mkdir -p "$Q/log" "$Q/runs" "$Q/mps"
  $PY -m pip install --quiet --no-index --no-deps --target "$Q/site" wheels/*.whl
  cp -r src "$Q/src"
  for patch in "$@"; do patch -d "$Q/src" -p0 <"$patch"; done
  command -v nvidia-cuda-mps-control >/dev/null && setsid nvidia-cuda-mps-control -d ;;
start)
  name=$1 domain=$2
  shift 2
  cd "$Q" || exit 1
  setsid nohup $PY -c 'from qpensieve.cli import main; main()' train "$domain" --out runs --name "$name" "$@" \
    >"log/$name.log" 2>&1 </dev/null &
  echo $! >"log/$name.pid" ;;
watch)
  end=$(($(date +%s) + $1)) seconds=0
  while [ "$(date +%s)" -lt $end ]; do
    running=$(for p in "$Q"/log/*.pid; do alive "$p" && basename "$p" .pid; done)
    [ -n "$running" ] || break
    [ $((seconds % 60)) = 30 ] && for name in $running; do echo "$name: $(tail -n 1 "$Q/log/$name.log")"; done
    sleep 1
    seconds=$((seconds + 1))
  done
  bash "$0" home ;;
stop)
  for name in "$@"; do kill -INT "$(cat "$Q/log/$name.pid")"; done
  for name in "$@"; do
    while alive "$Q/log/$name.pid"; do sleep 0.5; done
    qp evaluate "$Q/runs/$name" >>"$Q/log/$name.log" 2>&1 &
  done
  wait ;;
home)
  export JAX_PLATFORMS=cpu
  for run in "$Q"/runs/*/; do
    name=$(basename "$run")
    echo "== $name"
    tail -n 12 "$Q/log/$name.log"
    [ -f "$run/evaluations.npz" ] && qp export "$run" --out "$OUT/results/$name.json"
  done
  tar czf "$OUT/logs.tgz" -C "$Q" --exclude=checkpoints --exclude=replay --exclude=parameters runs log
  $PY - "$Q/runs" "$OUT" <<'P'
import sys
from pathlib import Path
import numpy as np
for run in Path(sys.argv[1]).iterdir():
    for newest in sorted(run.glob("parameters/step_*.npz"))[-1:]:
        kept = {k: v for k, v in np.load(newest).items() if (".actor" in k or ".critic" in k) and "snapshots" not in k}
        np.savez_compressed(Path(sys.argv[2]) / f"{run.name}-{newest.name}", **kept)
P
  tar cf "$OUT/results.tar" -C "$OUT" results && rm -r "$OUT/results" ;;
esac
