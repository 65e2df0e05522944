#!/bin/sh
# replay.sh [COPALD] [REQUESTS=100000]: siege -c30 replays a file of URLs with the lengths of CVMFS, a tenth of them distinct.
# Prints requests a second and availability; run it with /usr/sbin/varnishd as COPALD for the figure beside.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
COPALD=$(readlink -f "${1:-$here/../target/release/copald}") REPLAY_REQUESTS=${2:-100000} exec python3 "$here/../tests/replay.py" siege
