"""The shell scripts that start ranks and ask for MPI daemons, on nodes without Python too."""

from rankdeck_agent import RANK_IN_SHELL
from rankdeck_agent.rules.mpi_daemon import SKIP_SSH_OPTIONS

RANK_SHIM = r"""#!/bin/sh
# rank-shim PROGRAM ARGS...: run one rank with its own terminal, files and exit record.
#
# The program is a foreground child in the shim's own process group, so a launcher that
# signals the group (mpirun, torchrun, srun, our supervisor) reaches it, and Ctrl-C keeps
# its meaning. A signal to the shim's pid alone is swallowed until the program ends: to
# forward it the program would have to run in the background, where POSIX makes a shell
# ignore INT and QUIT for it. No descriptor is kept open: PMI_FD may be any number.
rank=@RANK@
here=${0%/*}
run=
for folder in "$RANKDECK_RUN" "$here" "/tmp/rankdeck.$RANKDECK_JOB"/* "$here"/*; do
    if [ -n "$rank" ] && [ -d "$folder/rank.$rank" ] && [ -r "$folder/self" ]; then
        run=$folder
        break
    fi
done
if [ -z "$run" ]; then
    echo "rankdeck: no place for the output of rank '$rank'; it stays with the launcher" >&2
    [ ! -p "$here/control" ] || printf 'started %s 0 0\n' "${rank:--1}" 1<>"$here/control"
    exec "$@"
fi
# A launcher may have passed on the first node's folder and name: put our own.
{ read -r RANKDECK_RUN; read -r RANKDECK_JOB; read -r RANKDECK_NODE; } <"$run/self"
export RANKDECK_RUN RANKDECK_JOB RANKDECK_NODE
# Into the cgroup of the job, before anything is started.
read -r rest 2>/dev/null <"$RANKDECK_RUN/cgroup"
[ -z "$rest" ] || echo 0 2>/dev/null >"$rest/cgroup.procs"
control=$RANKDECK_RUN/control
place=$RANKDECK_RUN/rank.$rank
out=$place/tty err=$place/fifo
read -r supervisor rest 2>/dev/null <"$RANKDECK_RUN/supervisor.pid"
if ! { [ -n "$supervisor" ] && kill -0 "$supervisor" 2>/dev/null && [ -w "$out" ] && [ -p "$err" ]; }; then
    out=$place/out err=$place/err
fi
# A Python rank of several answers where it is: job/witness.py.
inside=$RANKDECK_RUN/inside
many=$MASTER_ADDR$OMPI_COMM_WORLD_SIZE$PMI_SIZE$PMIX_RANK$JAX_COORDINATOR_ADDRESS
if [ -n "$many" ] && [ "$RANKDECK_WITNESS" != off ] && [ -r "$inside/sitecustomize.py" ]; then
    RANKDECK_WITNESS=$inside/$rank
    PYTHONPATH=$inside${PYTHONPATH:+:$PYTHONPATH}
    : "${TORCH_FR_BUFFER_SIZE:=${TORCH_NCCL_TRACE_BUFFER_SIZE:-2000}}"
    export RANKDECK_WITNESS PYTHONPATH TORCH_FR_BUFFER_SIZE
fi
trap : TERM INT USR1 USR2 HUP
# What we write is the user's alone; what the program makes is as its launcher has it.
# Where the supervisor made the files, nothing is asked of other programs: each would cost a fork.
mask= host=
if ! [ -p "$err" ]; then
    mask=$(umask) host=${SLURMD_NODENAME:-$(uname -n)}
    umask 077
fi
marks=$RANKDECK_RUN/marks/${SLURM_RESTART_COUNT:-0}
(
    [ -z "$mask" ] || umask "$mask"
    # In the child, so that a session leader does not make the tty its controlling one.
    read -r pid rest </proc/self/stat
    if [ -p "$err" ]; then
        [ ! -p "$control" ] || printf 'started %s %s %s\n' "$rank" "$pid" "$$" 1<>"$control"
    elif [ -d "${marks%/*}" ]; then
        : >"$marks.$rank.began.$pid.$host"
    else
        printf '%s\n' "$host" >"$place/started"
    fi
    exec "$@"
) >>"$out" 2>>"$err"
status=$?
umask 077
[ ! -d "${marks%/*}" ] || : >"$marks.$rank.ended.$status"
printf '%s\n' "$status" >"$place/exit"
[ ! -p "$control" ] || printf 'exited %s %s\n' "$rank" "$status" 1<>"$control"
exit "$status"
""".replace("@RANK@", RANK_IN_SHELL)
LAUNCH_AGENT = (
    r"""#!/bin/sh
# launch-agent [SSH OPTIONS] HOST COMMAND...: have Rankdeck start an MPI daemon on HOST.
# mpirun takes our exit status 0 for "the daemon runs". The supervisor keeps the time.
run=${RANKDECK_RUN:-${0%/*}}
"""
    + SKIP_SSH_OPTIONS
    + r"""if [ $# -lt 2 ]; then
    echo "rankdeck: launch-agent needs a host and a command" >&2
    exit 1
fi
host=${1##*@}
shift
read -r supervisor rest <"$run/supervisor.pid"
if ! kill -0 "$supervisor" 2>/dev/null; then
    echo "rankdeck: $host: no daemon started, the supervisor of this node is gone" >&2
    exit 1
fi
try=0 id=$$
until mkfifo -m 600 "$run/spawn/$id.reply" 2>/dev/null; do
    try=$((try + 1)) id=$$-$try
    if [ "$try" -gt 99 ]; then
        echo "rankdeck: $host: cannot write in $run/spawn" >&2
        exit 1
    fi
done
exec 4<>"$run/spawn/$id.reply"
printf '%s\n%s' "$host" "$*" >"$run/spawn/$id.ask" || exit 1
printf 'spawn %s\n' "$id" 1<>"$run/control"
read -r answer <&4
rm -f "$run/spawn/$id.reply" "$run/spawn/$id.ask"
[ "$answer" != ok ] || exit 0
echo "rankdeck: $host: $answer" >&2
exit 1
"""
)
