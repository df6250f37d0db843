# Source this on a bare machine that has Python, JAX and NumPy but no network: installs the wheels that came along.
python3 -m pip install --quiet --no-index --no-deps --target .device wheels/*.whl 2>/dev/null
export PYTHONPATH="$PWD/src:$PWD/.device" PYTHONUNBUFFERED=1
qp() { python3 -c 'from qpensieve.cli import main; main()' "$@"; }
