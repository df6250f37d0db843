# One hold of the H200: the runs of plan.txt, all at once. Start in a folder with src, tools, wheels, plan.txt and this file.
#   ASKED=<epoch seconds of asking for the machine> LAST=<seconds after it at which all must have ended> bash hold.sh [AT_ONCE]
export Q=${Q:-/tmp/q} PY=${PY:-python3}
export PYTHONUNBUFFERED=1 XLA_PYTHON_CLIENT_PREALLOCATE=false OPENBLAS_NUM_THREADS=1
export PYTHONPATH="$Q/src:$Q/site" CUDA_MPS_PIPE_DIRECTORY=$Q/mps CUDA_MPS_LOG_DIRECTORY=$Q/mps
began=$(date +%s)
past=$((began - ${ASKED:-0}))
[ $past -ge 0 ] && [ $past -le 300 ] || past=75 # another clock: assume a usual start
echo "epoch $began, $past s after asking"
rm -rf "$Q" && mkdir -p "$Q/runs" "$Q/mps" "$Q/site" "$OUT"
for wheel in wheels/*.whl; do $PY -m zipfile -e "$wheel" "$Q/site" & done
cp -r src "$Q/src" && wait
{ nvidia-smi --query-gpu=name,driver_version --format=csv,noheader; nproc; $PY -c 'import jax, numpy, mujoco, qpensieve; print(jax.__version__, numpy.__version__, mujoco.__version__, qpensieve.__file__)'; } 2>&1 | tee "$OUT/machine.txt" &
bring() { # metrics, settings and evaluations of all runs; whole or not at all
  tar czf "$Q/logs.tmp" -C "$Q" --exclude=checkpoint* --exclude=replay* --exclude=parameters --exclude=site --exclude=src --exclude=mps --exclude=logs.tmp . 2>/dev/null
  cp "$Q/logs.tmp" "$OUT/.part" && mv "$OUT/.part" "$OUT/logs.tgz"
}
while sleep 20; do bring; done >/dev/null 2>&1 & # a child that keeps the pipe of the output open would hold the call up
loop=$!
for (( i = 0; i < 60; i++ )); do sleep 10; echo "$(date +%s) $(nvidia-smi --query-gpu=utilization.gpu,memory.used,power.draw --format=csv,noheader 2>/dev/null) load $(cut -d' ' -f1-2 /proc/loadavg)" >>"$Q/load.txt"; done >/dev/null 2>&1 &
watch=$!
seconds=$((${LAST:-535} - past - ($(date +%s) - began) - 6))
echo "tend for $seconds s"
$PY tools/column.py "$Q" --plan plan.txt --at-once "${1:-13}" --seconds $seconds -- --kernels off --checkpoint-seconds 100000 --parameters-period 100000 --keep-replay off &
column=$!
(for ((i = 0; i < 24; i++)); do # an arm that fails in the first two minutes ends the call, so that it can be repaired and repeated
  sleep 5
  for status in "$Q"/HalfCheetah2d-*.status; do
    case $(cat "$status" 2>/dev/null) in '' | 0 | 130) ;; *)
      echo "failed early: $status"
      tail -n 30 "${status%.status}.log"
      for pid in "$Q"/*.pid; do kill -9 -- -"$(cat "$pid")"; done
      kill $column
      exit ;;
    esac
  done
done) 2>/dev/null &
early=$!
wait $column
kill $loop $watch $early 2>/dev/null
bring
for run in "$Q"/runs/*/; do
  echo "== $(basename "$run")"
  tail -n 2 "$Q/$(basename "$run").log" | cut -c1-200
done
tail -n 3 "$Q/load.txt"
echo "ended $(($(date +%s) - began)) s after the start of the command"
