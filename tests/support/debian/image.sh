#!/bin/bash
# image.sh DEST SUITE: a minimal Debian with Python, an ordinary user and, in a folder with a space, the lock's environment.
# No procps: no `ps` and no `kill`. Needs root, mmdebstrap and the package index. Runs in mount and pid namespaces of its own.
set -euo pipefail
dest=$1 suite=$2
repository=$(cd "$(dirname "$0")/../../.." && pwd)
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -n 1)
mmdebstrap --quiet --mode=root --variant=minbase --include=python3,python3-venv \
    --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Check-Valid-Until "false"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' "$suite" "$dest" "deb $mirror $suite main"

echo 'someone:x:4000:4000::/home/someone:/bin/bash' >>"$dest/etc/passwd"
echo 'someone:x:4000:' >>"$dest/etc/group"
home="$dest/home/someone/rank deck"
mkdir -p "$home/tests/support" "$dest/etc/ssl/certs"
cp -r "$repository/requirements" "$home"
cp "$repository/tests/support/install.py" "$home/tests/support"
cp --dereference /etc/resolv.conf "$dest/etc/resolv.conf"
cp --dereference /etc/ssl/certs/ca-certificates.crt "$dest/etc/ssl/certs"
chown -R 4000:4000 "$dest/home/someone"
mount -t proc proc "$dest/proc"
# shellcheck disable=SC2016
chroot "$dest" setpriv --reuid 4000 --regid 4000 --clear-groups \
    env -u PIP_FIND_LINKS -u TMPDIR HOME=/home/someone bash -ec '
        cd "$HOME/rank deck"
        python3 -m venv .venv
        .venv/bin/python tests/support/install.py default mpi gnmi dev'
umount "$dest/proc"
rm -rf "$dest"/home/someone/.cache "$dest"/var/cache/apt "$dest"/var/lib/apt/lists
