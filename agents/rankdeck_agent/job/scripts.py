"""The two shell scripts of a run folder: what starts a rank, and what stands in for ssh."""

RANK_SHIM = r"""#!/bin/sh
# rank-shim PROGRAM ARGS...: run one rank with its own terminal, files and exit record.
#
# The program is a foreground child in the shim's own process group, so a launcher that
# signals the group (mpirun, torchrun, srun, our supervisor) reaches it, and Ctrl-C keeps
# its meaning. A signal to the shim's pid alone is swallowed until the program ends: to
# forward it the program would have to run in the background, where POSIX makes a shell
# ignore INT and QUIT for it. No descriptor is kept open: PMI_FD may be any number.
rank=${RANKDECK_RANK:-${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${RANK:-$SLURM_PROCID}}}}}
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
    exec "$@"
fi
# A launcher may have passed on the first node's folder and name: put our own.
{ read -r RANKDECK_RUN; read -r RANKDECK_JOB; read -r RANKDECK_NODE; } <"$run/self"
export RANKDECK_RUN RANKDECK_JOB RANKDECK_NODE
control=$RANKDECK_RUN/control
place=$RANKDECK_RUN/rank.$rank
out=$place/tty err=$place/fifo
read -r supervisor rest <"$RANKDECK_RUN/supervisor.pid" 2>/dev/null
if ! { [ -n "$supervisor" ] && kill -0 "$supervisor" 2>/dev/null && [ -w "$out" ] && [ -p "$err" ]; }; then
    out=$place/out err=$place/err
fi
trap : TERM INT USR1 USR2 HUP
# What we write is the user's alone; what the program makes is as its launcher has it.
mask=$(umask)
umask 077
(
    umask "$mask"
    # In the child, so that a session leader does not make the tty its controlling one.
    read -r pid rest </proc/self/stat
    if [ -p "$err" ]; then
        [ ! -p "$control" ] || printf 'started %s %s %s\n' "$rank" "$pid" "$$" 1<>"$control"
    else
        printf '%s\n' "${SLURMD_NODENAME:-$(uname -n)}" >"$place/started"
    fi
    exec "$@"
) >>"$out" 2>>"$err"
status=$?
printf '%s\n' "$status" >"$place/exit"
[ ! -p "$control" ] || printf 'exited %s %s\n' "$rank" "$status" 1<>"$control"
exit "$status"
"""

LAUNCH_AGENT = r"""#!/bin/sh
# launch-agent [SSH OPTIONS] HOST COMMAND...: have Rankdeck start an MPI daemon on HOST.
# mpirun takes our exit status 0 for "the daemon runs". The supervisor keeps the time.
run=${RANKDECK_RUN:-${0%/*}}
while [ $# -gt 0 ]; do
    case $1 in
    --) shift; break ;;
    -[BbcDEeFIiJLlmOopQRSWw]) shift; [ $# -eq 0 ] || shift ;;
    -*) shift ;;
    *) break ;;
    esac
done
if [ $# -lt 2 ]; then
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
