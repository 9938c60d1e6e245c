#!/bin/sh
# The first process of a machine once its disk is there: network, an RDMA device on eth1, sshd, and the hand of the tests.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
for folder in /dev/shm /run; do mount -t tmpfs tmpfs $folder; done
mount -t cgroup2 cgroup2 /sys/fs/cgroup
number=1
for word in $(cat /proc/cmdline); do case $word in node=*) number=${word#node=} ;; esac; done
hostname "rxe$number"
[ -s /etc/machine-id ] || tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id
echo 0 >/proc/sys/kernel/dmesg_restrict
echo 1 >/proc/sys/kernel/sysrq
modprobe -a virtio_net rdma_rxe ib_uverbs rdma_ucm sch_netem sch_tbf
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2
ip addr add 10.9.0."$number"/24 dev eth1
ip link set eth1 up
rdma link add rxe0 type rxe netdev eth1
chmod 666 /dev/infiniband/* /dev/null /dev/zero /dev/ptmx /dev/tty
chmod 1777 /tmp /dev/shm
ulimit -l unlimited
ulimit -n 65536
mkdir -p /run/sshd
setsid /lab/hand </dev/ttyS1 >/dev/ttyS1 2>&1 &
# What every test reads from the disk is in memory when the snapshot is taken.
python3 -c 'import argparse, asyncio, ctypes, json, logging, selectors, socket, ssl, struct, subprocess, zipfile'
for program in ib_write_bw ib_read_lat rping iperf3 ethtool tc rdma; do cat "$(command -v $program)" >/dev/null; done
echo "rxe$number is ready: kernel $(uname -r), up $(cut -d' ' -f1 /proc/uptime) s"
exec tini -- /usr/sbin/sshd -D -e
