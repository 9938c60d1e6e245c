#!/bin/sh
# Process 1 of one container: a root folder that can be written, on top of the machine's own programs.
# HOST_NAME, FOLDER, KEEP (paths that must be seen), WORKDIR, POD_UID, COMMAND and IMAGE_PATH (its PATH) come in
# the environment; arguments are those of `env -i`: the container's variables, then its command.
set -eu
hostname "$HOST_NAME"
mount --make-rprivate /
echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start

base=/run/pod
mkdir -p $base
mount -t tmpfs tmpfs $base
mkdir $base/root $base/over
root=$base/root
mount -t tmpfs -o mode=755 tmpfs $root
for path in /*; do
    name=${path#/}
    if [ -L "$path" ]; then
        cp -P "$path" "$root/$name"
        continue
    fi
    [ -d "$path" ] || continue
    mkdir "$root/$name"
    case $name in
        proc | sys | dev | run | tmp | root | home | lost+found) continue ;;
    esac
    mkdir -p "$base/over/$name/upper" "$base/over/$name/work"
    mount -t overlay overlay -o "lowerdir=$path,upperdir=$base/over/$name/upper,workdir=$base/over/$name/work,userxattr" \
        "$root/$name" 2>/dev/null || mount --rbind "$path" "$root/$name"
done
mkdir -p "$root/run/sshd" "$root/run/lock" "$root/root"
chmod 1777 "$root/tmp"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
for path in $KEEP; do
    [ -e "$root$path" ] && continue
    mkdir -p "$root$path"
    mount --rbind "$path" "$root$path"
done

# SOURCE, TARGET and rw or ro, with tabs between; a source `tmpfs` is memory.
tab=$(printf '\t')
while IFS=$tab read -r source target mode; do
    if [ "$source" = tmpfs ]; then
        mkdir -p "$root$target"
        mount -t tmpfs -o mode=1777 tmpfs "$root$target"
        continue
    fi
    if [ -d "$source" ]; then
        mkdir -p "$root$target"
    else
        mkdir -p "$(dirname "$root$target")"
        [ -e "$root$target" ] || : >"$root$target"
    fi
    mount --bind "$source" "$root$target"
    [ "$mode" = rw ] || mount -o remount,bind,ro "$root$target"
done <"$FOLDER/mounts"

# The runtime's own complaint, where the command is not in the image.
found=yes
case $COMMAND in
    /*) [ -e "$root$COMMAND" ] || [ -L "$root$COMMAND" ] || found= ;;
    *) (PATH=$IMAGE_PATH && command -v -- "$COMMAND") >/dev/null || found= ;;
esac
if [ -z "$found" ]; then
    printf '%s' "$COMMAND" >"$FOLDER/start-error"
    exit 128
fi

mkdir "$root/.old"
cd "$root"
pivot_root . .old
umount -l /.old
rmdir /.old
mkdir -p "$WORKDIR"
cd "$WORKDIR"
exec unshare -U --map-user="$POD_UID" --map-group="$POD_UID" -- env -i "$@"
