# Goes on with runs that device_learn.sh stopped, on the same machine: device_resume.sh SECONDS NAME ...
. tools/device_setup.sh
export XLA_PYTHON_CLIENT_PREALLOCATE=false
seconds=$1
shift
for name in "$@"; do
  timeout -s INT "$seconds" python3 -c 'from qpensieve.cli import main; main()' resume "/tmp/runs/$name" \
    >"/tmp/$name.log" 2>&1 &
done
wait
for name in "$@"; do
  echo "== $name"
  tail -n 14 "/tmp/$name.log"
done
tar czf "$OUT/runs.tgz" -C /tmp/runs --exclude=checkpoints --exclude=replay --exclude=parameters .
