#!/bin/bash
# Gets the programs that the slow tests run, where this is Debian's family and we are root.
# Servers are unpacked into the cache folder: nothing is installed that would be started or enabled.
# Never fails: a test whose program is missing skips and names it.
set -uo pipefail
unpacked=${XDG_CACHE_HOME:-$HOME/.cache}/rankdeck-tests/servers

# program:package
tools=(
    ssh:openssh-client mosquitto_pub:mosquitto-clients
    mmdebstrap:mmdebstrap tmux:tmux mpirun.openmpi:openmpi-bin mpirun.mpich:mpich ip:iproute2 ethtool:ethtool tini:tini unshare:util-linux ps:procps
    iperf3:iperf3 sysbench:sysbench stress-ng:stress-ng zsh:zsh fish:fish
    mpicc.mpich:libmpich-dev faketime:faketime chromium:chromium
)
servers=(sshd:openssh-server softhsm2-util:softhsm2 mosquitto:mosquitto prometheus:prometheus prometheus-node-exporter:prometheus-node-exporter)
# file:package, of which nothing else is wanted: a stand-in for a security key, and Kerberos with its libraries
files=(lib/openssh/regress/misc/sk-dummy/sk-dummy.so:openssh-tests sbin/krb5kdc:krb5-kdc sbin/kadmin.local:krb5-admin-server bin/kinit:krb5-user)
for library in libkdb5-10 libkadm5srv-mit12 libkadm5clnt-mit12 libgssrpc4 libverto1 libverto-libev1 libev4; do
    files+=("share/doc/$library:$library")
done
# The RDMA lab's: nothing else needs them, and it runs only if asked for.
[ -z "${RANKDECK_RDMA_LAB:-}" ] || tools+=(qemu-system-x86_64:qemu-system-x86 qemu-img:qemu-utils cpio:cpio mke2fs:e2fsprogs)
# With arguments only these servers: what benchmarks compare with.
if [ $# -gt 0 ]; then tools=() files=() servers=("$@"); fi

lacking() { # PROGRAM:PACKAGE...: the packages whose program is not here
    local entry own
    for entry in "$@"; do
        own=$unpacked/${entry#*:}/usr
        [ -e "$own/${entry%%:*}" ] || PATH="$PATH:/usr/sbin:/sbin:$own/sbin:$own/bin" command -v "${entry%%:*}" >/dev/null || echo "${entry#*:}"
    done
}

libraries() { # PACKAGE: what it needs and this machine lacks, without itself
    apt-get install -s --no-install-recommends "$1" | awk -v own="$1" '$1 == "Inst" && $2 != own { print $2 }'
}

install() { timeout 300 apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }

unpack() { # PACKAGE [alone]: its files in the cache folder, whole or not at all; `alone`: without what it needs
    local part needed=()
    [ $# -gt 1 ] || mapfile -t needed < <(libraries "$1")
    part=$(mktemp -d) && { [ ${#needed[@]} -eq 0 ] || install "${needed[@]}"; } &&
        (cd "$part" && timeout 300 apt-get download -qq "$1" 2>/dev/null && dpkg-deb -x ./*.deb files) &&
        mkdir -p "$unpacked" && rm -rf "${unpacked:?}/$1" && mv "$part/files" "$unpacked/$1"
    local status=$?
    rm -rf "$part"
    return $status
}

mapfile -t to_install < <(lacking "${tools[@]}")
mapfile -t to_unpack < <(lacking "${servers[@]}")
mapfile -t to_take < <(lacking "${files[@]}")
missing=("${to_install[@]}" "${to_unpack[@]}" "${to_take[@]}")
[ ${#missing[@]} -eq 0 ] && exit 0
echo "not here: ${missing[*]}"
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "their tests skip; as root on Debian this would get them"
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
timeout 300 apt-get update -qq || echo "apt-get update failed; going on with what is known"
for package in "${to_install[@]}"; do
    install "$package" || echo "could not install $package; its tests skip"
done
for package in "${to_unpack[@]}"; do
    unpack "$package" || echo "could not unpack $package; its tests skip"
done
for package in "${to_take[@]}"; do
    unpack "$package" alone || echo "could not unpack $package; its tests skip"
done
exit 0
