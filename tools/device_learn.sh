# Learning runs on one accelerator, several at once: device_learn.sh SECONDS NAME:ARGUMENTS ...
# Runs each `qpensieve train ARGUMENTS --name NAME` in the background, stops them after SECONDS, and packs the small
# results (no checkpoints, no replay) into $OUT/runs.tgz.
. tools/device_setup.sh
export XLA_PYTHON_CLIENT_PREALLOCATE=false
seconds=$1
shift
for job in "$@"; do
  name=${job%%:*}
  # shellcheck disable=SC2086
  timeout -s INT "$seconds" python3 -c 'from qpensieve.cli import main; main()' train ${job#*:} \
    --out /tmp/runs --name "$name" >"/tmp/$name.log" 2>&1 &
done
wait
for job in "$@"; do
  name=${job%%:*}
  echo "== $name"
  tail -n 14 "/tmp/$name.log"
  tail -n 1 "/tmp/runs/$name/metrics.jsonl" | cut -c 1-200
done
tar czf "$OUT/runs.tgz" -C /tmp/runs --exclude=checkpoints --exclude=replay --exclude=parameters .
