"""The rank shim of Kubernetes pods: tells on the pod's stdout what each rank prints and how it ends.

A line each, with the rank and what it is about; `rankdeck_agent.kubernetes.split` reads them:

    [rank 3 start] HOST
    [rank 3 out] TEXT
    [rank 3 err] TEXT
    [rank 3 out+] TEXT            a part of a long line, which goes on
    [rank 3 exit] STATUS          as a shell has it: 128 and the number of a signal

Kubernetes keeps one log per container, without ranks, and stdout and stderr in one: this tells them apart,
whatever mpirun or torchrun add. A pipe takes 4096 bytes at once without those of other ranks in between: longer lines come in parts.

On the volume claim of `logs` a rank has the files `out` and `err` as it wrote them, and `start` and `exit` with
the text as above and, on a second line, when that was (epoch seconds); `rankdeck_agent.kubernetes.claim` reads them.
"""

POD_SHIM = r"""#!/bin/sh
# rank-shim [-n RANKS] PROGRAM ARGS...: run one rank, or the RANKS ranks of this pod side by side.
#
# As the first process of a container it has to pass on SIGTERM itself: the program runs in the background
# and the shell waits. What a rank leaves behind in the background is not waited for.
code=0
await() { # PID: wait for it, through signals; its status is in $code
    again=1
    while [ -n "$again" ]; do
        again=
        wait "$1" 2>/dev/null
        code=$?
    done
}
if [ "$1" = -n ]; then
    each=$2 slot=0 pids= status=0
    shift 2
    trap 'again=1; kill -TERM $pids 2>/dev/null' TERM
    while [ "$slot" -lt "$each" ]; do
        RANK=$((JOB_COMPLETION_INDEX * each + slot)) LOCAL_RANK=$slot sh "$0" "$@" &
        pids="$pids $!" slot=$((slot + 1))
    done
    for pid in $pids; do
        await "$pid"
        [ "$status" -ne 0 ] || status=$code
    done
    exit "$status"
fi
rank=${RANKDECK_RANK:-${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${RANK:-0}}}}}
for folder in /dev/shm "${TMPDIR:-/tmp}" /var/tmp; do
    place=$folder/rankdeck.$rank.$$
    mkdir -m 700 "$place" 2>/dev/null && mkfifo -m 600 "$place/out" "$place/err" && break
    place=
done
if [ -z "$place" ]; then
    echo "rankdeck: no folder of this container may be written: the output of rank $rank stays without its number" >&2
    exec "$@"
fi
kept=${RANKDECK_LOGS:+$RANKDECK_LOGS/rank.$rank}
[ -z "$kept" ] || mkdir -p "$kept" || kept=
label() { # STREAM: sed -u reads a byte at a time, so it comes second
    # Each 76th run of 50 bytes ends a part. The first test is for speed; 255 is the most that musl counts to.
    script=":a
/^.\{250\}/{
s/................................................../&\\
/76
/\n/{
s/^/[rank $rank $1+] /
P
s/^[^\n]*\n//
ba
}
}
s/^/[rank $rank $1] /"
    if stdbuf -oL true 2>/dev/null; then
        LC_ALL=C exec stdbuf -oL sed "$script"
    elif echo | sed -u "$script" >/dev/null 2>&1; then
        LC_ALL=C exec sed -u "$script"
    fi
    LC_ALL=C
    while IFS= read -r line || [ -n "$line" ]; do
        while [ "${#line}" -gt 3800 ]; do
            head=$(printf '%.3800s' "$line")
            line=${line#"$head"}
            printf '[rank %s %s+] %s\n' "$rank" "$1" "$head"
        done
        printf '[rank %s %s] %s\n' "$rank" "$1" "$line"
    done
}
keep() { # STREAM: with a copy on the volume claim, where there is one; a signal to the whole group is not for it
    trap '' TERM INT HUP
    if [ -n "$kept" ]; then tee -a "$kept/$1" | label "$1"; else label "$1"; fi
}
tell() { # WHAT TEXT
    printf '[rank %s %s] %s\n' "$rank" "$1" "$2"
    [ -z "$kept" ] || printf '%s\n' "$2" "$(date +%s)" >"$kept/$1"
}
tell start "$(uname -n)"
pid=
trap 'again=1; [ -z "$pid" ] || kill -TERM "$pid" 2>/dev/null' TERM
keep out <"$place/out" &
taggers=$!
keep err <"$place/err" &
taggers="$taggers $!"
"$@" >"$place/out" 2>"$place/err" &
pid=$!
await "$pid"
status=$code pid=
# A program that the rank left behind may hold its output open.
(sleep 2 && kill -9 $taggers) >/dev/null 2>&1 &
watch=$!
for tagger in $taggers; do await "$tagger"; done
kill "$watch" 2>/dev/null
rm -rf "$place"
tell exit "$status"
exit "$status"
"""
