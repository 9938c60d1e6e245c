#!/bin/sh
# Inside the double's namespaces: gives the pod ADDRESS a network of its own, then starts its container.
set -eu
here=$(dirname "$0")
if ! [ -e "/run/netns/$ADDRESS" ]; then
    ip netns add "$ADDRESS"
    ip link add "v$NUMBER" type veth peer name eth0 netns "$ADDRESS"
    ip link set "v$NUMBER" master br0 up
    ip -n "$ADDRESS" link set lo up
    ip -n "$ADDRESS" addr add "$ADDRESS/16" dev eth0
    ip -n "$ADDRESS" link set eth0 up
fi
exec nsenter --net="/run/netns/$ADDRESS" \
    unshare -u -m -p -i -f --kill-child=KILL "$here/container.sh" "$@"
