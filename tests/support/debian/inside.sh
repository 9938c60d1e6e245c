#!/bin/bash
# inside.sh IMAGE FILES COMMAND...: runs a command in a copy of the image in memory, as its ordinary user, beside our files.
# FILES is an archive of the checkout. Runs in mount and pid namespaces of its own; nothing of it stays.
set -eu
image=$1 files=$2
shift 2
mount --make-rprivate /
root=/mnt
mount -t tmpfs -o mode=755 minimal "$root"
mkdir "$root"/{up,work,top}
mount -t overlay overlay -o "lowerdir=$image,upperdir=$root/up,workdir=$root/work" "$root/top"
root=$root/top
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount --rbind /dev "$root/dev"
for place in tmp run; do mount -t tmpfs -o mode=1777,dev tmpfs "$root/$place"; done
tar -x --no-same-owner -C "$root/home/someone/rank deck" -f "$files"
chown -R --no-dereference 4000:4000 "$root/home/someone"
cd "$root"
mkdir -p oldroot
pivot_root . oldroot
umount -l /oldroot
cd "/home/someone/rank deck"
exec setpriv --reuid 4000 --regid 4000 --clear-groups --no-new-privs \
    env -i HOME=/home/someone USER=someone LOGNAME=someone LANG=C.UTF-8 TERM=xterm \
    PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
    bash -ec '.venv/bin/python tests/support/install.py .; exec "$@"' _ "$@"
