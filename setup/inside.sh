#!/usr/bin/env bash
# Runs a command inside the root of another system: setup/inside.sh ROOT COMMAND ARGUMENT…
#
# /dev, /proc, /sys, /tmp, the source and the compiled programs are there under their own names. The mounts belong to
# this command and end with it.
set -euo pipefail

[ "$1" = --unshared ] || exec unshare --mount --propagation private "$0" --unshared "$@"
root=$(realpath "$2")
shift 2

source=$(realpath "$(dirname "$0")/..")
places=(/dev /proc /sys /tmp "$source")
case $1 in
    "$source"/*) ;;
    # cargo's target directory is elsewhere: TARGET/debug/deps/PROGRAM.
    */deps/*) places+=("$(realpath "$(dirname "$1")/..")") ;;
esac
for place in "${places[@]}"; do
    mkdir -p "$root$place"
    mount --rbind "$place" "$root$place"
done
here=/
[[ $PWD/ != "$source"/* ]] || here=$PWD
# shellcheck disable=SC2016 # the shell inside expands it
exec chroot "$root" /bin/sh -c 'cd "$0" && exec "$@"' "$here" "$@"
