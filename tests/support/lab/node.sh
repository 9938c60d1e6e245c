#!/bin/sh
# Process 1 of one node: the machine's own / with /run, /tmp, /dev/shm, home and sshd of its own.
set -eu
node=$1

hostname "$node"
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/lab /run/sshd /run/home
mount --rbind "$LAB" /run/lab
mount --bind "$LAB/$node/home" /run/home
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
# UCX looks for interfaces in /sys, which must be the node's own to have its second one.
if [ -n "$LAB_FAST" ]; then mount -t sysfs sysfs /sys; fi
# ssh takes no configuration that seems to belong to somebody else.
if [ -d /etc/ssh/ssh_config.d ]; then mount -t tmpfs tmpfs /etc/ssh/ssh_config.d; fi
echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start

# A /tmp of its own, through which what the tests need can still be seen: the working
# folder stays in the machine's /tmp, so relative paths go on meaning that one.
cd /tmp
mount -t tmpfs -o mode=1777 tmpfs /tmp
for path in $LAB_KEEP; do
    mkdir -p "/tmp/$path"
    mount --no-canonicalize --rbind "./$path" "/tmp/$path"
done
cd /

exec unshare -U --map-user="$LAB_UID" --map-group="$LAB_GID" \
    tini -s -- "$LAB_SSHD" -D -e -f /run/lab/sshd_config
