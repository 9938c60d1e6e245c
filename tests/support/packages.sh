#!/bin/bash
# Installs the programs that the slow tests run, where this is Debian's family and we are root.
# Never fails: a test whose program is missing skips and names it.
set -uo pipefail
export PATH="$PATH:/usr/sbin:/sbin"

# program:package
wanted=(
    sshd:openssh-server ssh:openssh-client mosquitto:mosquitto mosquitto_pub:mosquitto-clients
    mmdebstrap:mmdebstrap tmux:tmux mpirun.openmpi:openmpi-bin mpirun.mpich:mpich ip:iproute2 ethtool:ethtool tini:tini unshare:util-linux ps:procps
    iperf3:iperf3 sysbench:sysbench stress-ng:stress-ng
)
missing=()
for entry in "${wanted[@]}"; do
    command -v "${entry%%:*}" >/dev/null || missing+=("${entry#*:}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
echo "not installed: ${missing[*]}"
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "their tests skip; as root on Debian this would install them"
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
timeout 300 apt-get update -qq || echo "apt-get update failed; going on with what is known"
for package in "${missing[@]}"; do
    timeout 300 apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
        echo "could not install $package; its tests skip"
done
exit 0
