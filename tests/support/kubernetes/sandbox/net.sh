#!/bin/sh
# Root of the double's own namespaces: the bridge that all pods are on. Ends with the test process.
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/netns
ip link set lo up
ip link add br0 type bridge
ip addr add 10.244.255.254/16 dev br0
ip link set br0 up
# The first one makes /run/netns a shared mount; two pods at once would both try.
ip netns add first
ip netns delete first
touch "$READY"
exec sleep infinity
