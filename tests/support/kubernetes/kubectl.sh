#!/bin/bash
# kubectl.sh DEST: puts Debian sid's kubectl (it needs only libc) into DEST/kubectl, from this machine's own mirror.
# Nothing is installed; exits with a status that is not 0 where it cannot be had.
set -euo pipefail
dest=$1
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep /debian | grep -v security | head -n 1)
[ -n "$mirror" ] || { echo "apt knows no Debian mirror" >&2; exit 1; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{lists/partial,cache/archives/partial,sources,unpacked}
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$root/sources/sid.list"
touch "$root/status"
apt=(apt-get -q -o "Dir::State::Lists=$root/lists" -o "Dir::Cache=$root/cache" -o "Dir::State::status=$root/status"
    -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$root/sources" -o APT::Sandbox::User=
    -o Acquire::Check-Valid-Until=false -o Acquire::Languages=none)
timeout 300 "${apt[@]}" update
cd "$root/unpacked"
timeout 300 "${apt[@]}" download kubectl
dpkg-deb -x kubectl_*.deb .
mkdir -p "$dest"
install -m 755 usr/bin/kubectl "$dest/kubectl.new"
mv "$dest/kubectl.new" "$dest/kubectl"
