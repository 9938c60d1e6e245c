#!/bin/busybox sh
# The first process of a machine: loads what its disk needs, and goes on from there.
own() { /bin/busybox "$@"; }
own mount -t proc proc /proc
own mount -t sysfs sys /sys
own mount -t devtmpfs dev /dev
for module in /modules/*; do own insmod "$module"; done
until own mount -t ext4 -o noatime /dev/vda /root; do own sleep 0.1; done
for folder in proc sys dev; do own mount --move /$folder /root/$folder; done
exec /bin/busybox switch_root /root /lab/init
