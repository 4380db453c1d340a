#!/usr/bin/env bash
# Makes an archive of a finished binary, for machines without dpkg: tarball.sh BINARY DIRECTORY. Prints its path.
set -euo pipefail
binary=$(realpath "$1")
output=$(realpath "$2")
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
name=haulier-$version-$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
tree=$place/$name
mkdir -p "$tree/man" "$tree/completions" "$tree/docs"

install -m 755 "$binary" "$tree/haulier"
strip --strip-unneeded "$tree/haulier"
"$binary" man "$tree/man"
for shell in bash zsh fish; do
    "$binary" completions "$shell" >"$tree/completions/haulier.$shell"
done
cp README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$tree/"
cp -r docs/*.md docs/images "$tree/docs/"
cp -r packaging/haulier.service packaging/haulier.sysusers packaging/haulier.toml packaging/welcome crates/haulier/src/prelude.php "$tree/"

archive=$output/$name.tar.gz
tar -C "$place" --sort=name --owner=0 --group=0 --numeric-owner -c "$name" | gzip -"${GZIP_LEVEL:-9}"n >"$archive"
echo "$archive"
