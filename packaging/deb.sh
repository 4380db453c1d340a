#!/usr/bin/env bash
# Makes a Debian package of a finished binary: deb.sh BINARY DIRECTORY. Prints the path of the package.
#
# dpkg-deb and binutils are on every machine that compiles; cargo-deb would be three hundred crates to build for the same
# forty files.
set -euo pipefail
binary=$(realpath "$1")
output=$(realpath "$2")
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
architecture=$(dpkg --print-architecture)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"

put() { # mode, source, place in the package
    install -D -m "$1" "$2" "$tree/$3"
}

put 755 "$binary" usr/bin/haulier
strip --strip-unneeded "$tree/usr/bin/haulier"
put 644 packaging/haulier.service usr/lib/systemd/system/haulier.service
put 644 packaging/haulier.sysusers usr/lib/sysusers.d/haulier.conf
put 644 packaging/haulier.toml etc/haulier/haulier.toml
mkdir -p "$tree/etc/haulier/sites"
put 644 packaging/welcome/index.html usr/share/haulier/welcome/index.html
put 644 crates/haulier/src/prelude.php usr/share/haulier/prelude.php
for page in docs/*.md README.md; do
    put 644 "$page" "usr/share/doc/haulier/$(basename "$page")"
done
gzip -9n <CHANGELOG.md >"$tree/usr/share/doc/haulier/changelog.gz"
{
    echo "haulier may be used under either of two licences."
    for licence in MIT APACHE; do
        printf '\n'
        cat "LICENSE-$licence"
    done
} >"$tree/usr/share/doc/haulier/copyright"

mkdir -p "$tree/usr/share/man/man1"
"$binary" man "$tree/usr/share/man/man1"
gzip -9n "$tree"/usr/share/man/man1/*.1
completions() { # shell, place in the package
    mkdir -p "$tree/$(dirname "$2")"
    "$binary" completions "$1" >"$tree/$2"
}
completions bash usr/share/bash-completion/completions/haulier
completions zsh usr/share/zsh/vendor-completions/_haulier
completions fish usr/share/fish/vendor_completions.d/haulier.fish
find "$tree/usr" "$tree/etc" -type d -exec chmod 755 {} +
find "$tree/usr/share" -type f -exec chmod 644 {} +

# The newest version of the C library that the binary needs.
libc=$(objdump -T "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
mkdir "$tree/DEBIAN"
cat >"$tree/DEBIAN/control" <<CONTROL
Package: haulier
Version: $version
Architecture: $architecture
Maintainer: the founders of haulier <haulier@localhost>
Section: httpd
Priority: optional
Depends: libc6 (>= ${libc#GLIBC_}), libgcc-s1, adduser, init-system-helpers
Recommends: php-cgi
Provides: httpd
Installed-Size: $(du -sk --exclude=DEBIAN "$tree" | cut -f1)
Description: server for PHP sites
 One program that serves PHP sites over HTTP: static files, PHP workers that it
 starts and watches, downloads that leave PHP at once, an image service, TLS
 certificates, compression, a dashboard and metrics. It includes a download
 client and a load generator.
CONTROL
(cd "$tree" && find etc -type f -printf '/%p\n') >"$tree/DEBIAN/conffiles"
for script in postinst prerm postrm; do
    put 755 "packaging/$script" "DEBIAN/$script"
done
(cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"

package=$output/haulier_${version}_$architecture.deb
dpkg-deb --root-owner-group -Z"${DEB_COMPRESSION:-xz}" --build "$tree" "$package" >/dev/null
echo "$package"
