#!/bin/sh
# Starts one node from inside the head: its processes end with $LAB/NODE/unshare.pid.
set -eu
setsid nsenter --net="/run/netns/$1" \
    unshare -u -m -p -i -f --kill-child=KILL --mount-proc "$LAB_NODE_SCRIPT" "$1" \
    </dev/null >>"$LAB/$1/log" 2>&1 &
echo $! >"$LAB/$1/unshare.pid"
