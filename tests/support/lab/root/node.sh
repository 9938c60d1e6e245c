#!/bin/bash
# Process 1 of one node of the root lab: the image's node system under a layer in memory, then its own sshd.
# LAB, LAB_IMAGES and LAB_KEEP come in the environment; the node is root's own, unlike the rootless one.
set -eu
node=$1 state=$LAB/$1 root=$LAB/$1/root

hostname "$node"
chmod 755 "$LAB"
mount --make-rprivate /
mkdir -p "$root"
mount -t tmpfs -o mode=755 node "$root"
mkdir -p "$root"/{up,work,top}
mount -t overlay overlay -o "lowerdir=$LAB_IMAGES/node,upperdir=$root/up,workdir=$root/work" "$root/top"
root=$root/top

mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
# Alone, without the controllers of version 1: crun refuses the mixture.
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
# Devices of its own: the machine's /dev/fuse may be root's alone.
mount -t tmpfs -o mode=755,dev tmpfs "$root/dev"
device() { mknod -m 666 "$root/dev/$1" c "$2" "$3"; }
device null 1 3; device zero 1 5; device full 1 7; device random 1 8; device urandom 1 9
device tty 5 0; device fuse 10 229
mkdir -p "$root"/dev/{pts,shm,mqueue,net}
device net/tun 10 200
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for at in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${at%:*}" "$root/dev/${at#*:}"; done
for place in dev/shm tmp run; do mount -t tmpfs -o mode=1777,dev tmpfs "$root/$place"; done
mount -t mqueue mqueue "$root/dev/mqueue"
chmod 755 "$root/run"

mkdir -p "$root"/run/{sshd,lab} "$root/run/user/3000" "$root/srv/images"
chown 3000:3000 "$root/run/user/3000" "$state/home" "$LAB/shared"
mount --bind "$state/home" "$root/home/lab"
mount --bind "$LAB_IMAGES" "$root/srv/images"
mount --rbind "$LAB" "$root/run/lab"
for path in $LAB_KEEP; do
    mkdir -p "$root/$path"
    mount --rbind "/$path" "$root/$path"
done
cp "$LAB/hosts" "$root/etc/hosts"
echo "$node" >"$root/etc/hostname"
ln -sf /proc/self/mounts "$root/etc/mtab"

cd "$root"
mkdir -p oldroot
pivot_root . oldroot
umount -l /oldroot
exec tini -s -- /usr/sbin/sshd -D -e -f /run/lab/sshd_config
