#!/bin/bash
# image.sh DEST: kernel, first file system and disk of the machines of the RDMA lab, from this machine's own Debian mirror.
#   DEST/vmlinuz     Debian's kernel of trixie, with rdma_rxe
#   DEST/early.cpio  loads the modules of the disk and goes on from it
#   DEST/root.img    trixie with sshd, Python, perftest, rping, Open MPI with UCX, iperf3, ethtool and tc; a user `lab`
# Needs root, mmdebstrap, mke2fs and cpio; about a minute and 800 MB. Runs in mount and pid namespaces of its own.
set -euo pipefail
dest=$1 here=$(cd "$(dirname "$0")" && pwd)
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -n 1)
mkdir -p "$dest"
root=$dest/root

packages=openssh-server,iproute2,procps,python3,kmod,xz-utils,tini,apt,ethtool,iputils-ping,busybox-static
packages+=,rdma-core,ibverbs-utils,ibverbs-providers,rdmacm-utils,perftest,iperf3
packages+=,openmpi-bin,ucx-utils,python3-mpi4py
# A mirror may keep a frozen copy, whose date says that it is too old; nothing may start a daemon.
mmdebstrap --quiet --mode=root --variant=minbase --include="$packages" \
    --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Check-Valid-Until "false"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --setup-hook='mkdir -p "$1/usr/sbin" && printf "#!/bin/sh\nexit 101\n" >"$1/usr/sbin/policy-rc.d" && chmod +x "$1/usr/sbin/policy-rc.d"' \
    trixie "$root" "deb $mirror trixie main"

# Only the files of the kernel: its package would make an initial file system and a boot loader.
cp --remove-destination /etc/resolv.conf "$root/etc/resolv.conf"
in_root() { chroot "$root" env -u TMPDIR "$@"; }
in_root apt-get -o Acquire::Check-Valid-Until=false -o Acquire::Languages=none update -q
kernel=$(in_root apt-cache depends linux-image-amd64 | grep -oE 'linux-image-6[0-9.+a-z-]*amd64' | head -n 1)
in_root sh -c "cd /tmp && apt-get download -q $kernel"
dpkg-deb -x "$root"/tmp/linux-image-*.deb "$dest/kernel"
cp "$dest"/kernel/boot/vmlinuz-* "$dest/vmlinuz"
rm -rf "$root"/tmp/*.deb "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root/usr/lib/modules"
version=$(basename "$dest"/kernel/usr/lib/modules/*)
modules=usr/lib/modules/$version
mkdir -p "$root/$modules"
cp "$dest/kernel/$modules"/modules.* "$root/$modules"
# What is loaded here, unpacked: an emulated processor takes long for that.
kept='infiniband|/net/(core|ipv4|ipv6|sched|veth|udp)|virtio|crc|crypto|/lib/|failover|fs/(configfs|ext4|jbd2|mbcache)'
(cd "$dest/kernel/$modules" && find kernel -name '*.ko*' | grep -E "$kept" | cpio --quiet -pdm "$root/$modules")
find "$root/$modules" -name '*.ko.xz' -exec unxz {} +
in_root depmod "$version"
rm -rf "$dest/kernel"

echo 'lab:x:3000:3000::/home/lab:/bin/bash' >>"$root/etc/passwd"
echo 'lab:x:3000:' >>"$root/etc/group"
echo 'lab:*:20000:0:99999:7:::' >>"$root/etc/shadow"
mkdir -p "$root/home/lab/.ssh" "$root/lab"
ssh-keygen -q -t ed25519 -N '' -f "$dest/id"
cp "$dest/id.pub" "$root/home/lab/.ssh/authorized_keys"
chown -R 3000:3000 "$root/home/lab"
chmod 700 "$root/home/lab/.ssh"
rm -f "$root"/etc/ssh/ssh_host_*
ssh-keygen -q -t ed25519 -N '' -f "$root/etc/ssh/ssh_host_ed25519_key"
cp "$root/etc/ssh/ssh_host_ed25519_key.pub" "$dest/hostkey.pub"
cat >"$root/etc/ssh/sshd_config" <<CONF
HostKey /etc/ssh/ssh_host_ed25519_key
UsePAM no
UseDNS no
MaxStartups 100:30:200
MaxSessions 100
Subsystem sftp internal-sftp
CONF
printf '127.0.0.1 localhost\n10.9.0.1 rxe1\n10.9.0.2 rxe2\n' >"$root/etc/hosts"
install -m 755 "$here/init.sh" "$root/lab/init"
install -m 755 "$here/hand.sh" "$root/lab/hand"

early=$dest/early
mkdir -p "$early"/{bin,dev,proc,sys,root,modules}
cp "$root/bin/busybox" "$early/bin"
number=10
for module in virtio_pci virtio_blk ext4 crc32c_generic crc32c-intel; do
    in_root modprobe --show-depends -S "$version" "$module" || true
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
    cp "$root$file" "$early/modules/$number-$(basename "$file")"
    number=$((number + 1))
done
install -m 755 "$here/early.sh" "$early/init"
(cd "$early" && find . | cpio --quiet -o -H newc) >"$dest/early.cpio"

# Small enough to be filled in seconds.
mke2fs -q -t ext4 -O ^metadata_csum -E lazy_itable_init=1 -d "$root" "$dest/root.img" 1G
rm -rf "$root" "$early"
