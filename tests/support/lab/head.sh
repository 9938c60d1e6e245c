#!/bin/sh
# Process 1 of the lab, root of its own namespaces: the bridge, and one network per node.
# LAB (folder), LAB_NET, LAB_FAST (a second network, or empty), LAB_NODES, LAB_UID, LAB_GID, LAB_KEEP, LAB_HOMES (tmpfs, or empty: on disk) come in the environment.
set -eu
here=$(dirname "$0")

hostname head
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/lab
mount --rbind "$LAB" /run/lab
for file in hosts passwd group; do mount --bind "$LAB/$file" "/etc/$file"; done

ip link set lo up
ip link add br0 type bridge
ip addr add "$LAB_NET.1/24" dev br0
ip link set br0 up
if [ -n "$LAB_FAST" ]; then
    ip link add br1 type bridge
    ip link set br1 up
fi

i=0
for node in $LAB_NODES; do
    i=$((i + 1))
    ip netns add "$node"
    ip link add "v$i" type veth peer name eth0 netns "$node"
    ip link set "v$i" master br0 up
    ip -n "$node" link set lo up
    ip -n "$node" addr add "$LAB_NET.$((10 + i))/24" dev eth0
    ip -n "$node" link set eth0 up
    if [ -n "$LAB_FAST" ]; then
        ip link add "w$i" type veth peer name eth1 netns "$node"
        ip link set "w$i" master br1 up
        ip -n "$node" addr add "$LAB_FAST.$((10 + i))/24" dev eth1
        ip -n "$node" link set eth1 up
    fi
    mkdir -p "$LAB/$node/home"
    # Outlives a crash of the node; images unpacked there would take a minute to delete from a disk.
    if [ -n "$LAB_HOMES" ]; then mount -t tmpfs "$LAB_HOMES" "$LAB/$node/home"; fi
    "$here/boot.sh" "$node"
done
touch "$LAB/ready"
exec tini -s -- sleep infinity
