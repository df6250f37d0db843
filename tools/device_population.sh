# Everything that docs/results.md says of populations, on a borrowed machine: device_population.sh SECONDS
bash tools/device_learn.sh "$1" \
  "DST2d-pgmorl-1.5M:DST2d --algo pgmorl --steps 1500000" \
  "DST2d-pfa-1.5M:DST2d --algo pfa --steps 1500000" \
  "DST2d-pgmorl-4.5M:DST2d --algo pgmorl --steps 4500000" \
  "DST2d-pfa-4.5M:DST2d --algo pfa --steps 4500000" \
  "DST2d-pgmorl-short:DST2d --algo pgmorl --steps 1500000 --warmup-iterations 8 --generation-iterations 4" \
  "DST2d-pgmorl-per-task:DST2d --algo pgmorl --steps 1500000 --total per-task" \
  "HalfCheetah2d-pgmorl-1.5M:HalfCheetah2d --algo pgmorl --steps 1500000 --num-threads 6" \
  "Hopper2d-ppo:Hopper2d --algo pgmorl --steps 1500000 --divisions 1 --total per-task --num-threads 6 --eval-period 500000"
