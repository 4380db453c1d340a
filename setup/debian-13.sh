#!/usr/bin/env bash
# A Debian 13 with PHP 8.4 in target/debian-13: haulier's workers are built for its PHP too, and tests run inside it.
# Where it cannot be laid out, the tests on PHP 8.4 are skipped, by name.
set -euo pipefail
cd "$(dirname "$0")/.."
. setup/packages.sh

root=${CARGO_TARGET_DIR:-target}/debian-13
# As setup/test.sh has them.
packages=(
    php8.4-cgi php8.4-fpm php8.4-cli php8.4-dev
    php8.4-curl php8.4-gd php8.4-intl php8.4-mbstring php8.4-sqlite3 php8.4-xml
    php-symfony-framework-bundle php-symfony-twig-bundle php-symfony-form php-symfony-runtime php-symfony-validator
    php-symfony-security-csrf php-symfony-translation php-symfony-twig-bridge php-symfony-yaml
    php-symfony-http-kernel php-symfony-routing php-twig
    curl brotli zstd
)

skip() {
    echo "SKIPPED: the tests on PHP 8.4 ($*)"
    exit 0
}

# The list is the mark of a complete root.
[ "$(cat "$root/etc/haulier-packages" 2>/dev/null)" = "${packages[*]}" ] && exit
[ "$(id -u)" = 0 ] || skip "a Debian 13 is laid out by root alone"
unshare --mount true 2>/dev/null || skip "this machine lets nobody mount"
command -v debootstrap >/dev/null || want_if_known "lays out the Debian 13 whose PHP 8.4 the tests use" debootstrap debian-archive-keyring
install_wanted
command -v debootstrap >/dev/null || skip "this release has no debootstrap"

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' 2>/dev/null | head -1)
mirror=${mirror:-http://deb.debian.org/debian}
proxy=$(apt-config dump --format '%v%n' Acquire::http::Proxy)
[ -z "$proxy" ] || export http_proxy=$proxy

echo "Laying out a Debian 13 with PHP 8.4 in $root (debootstrap from $mirror, some 750 MB): 2 to 4 minutes."
rm -rf "$root" "$root.unfinished"
mkdir -p "$(dirname "$root")"
log=$root.log
if ! debootstrap --variant=minbase --include=ca-certificates trixie "$root.unfinished" "$mirror" >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    rm -rf "$root.unfinished"
    skip "debootstrap cannot lay out a Debian 13, see $log"
fi
# No service starts, and nothing is written to the disk twice.
printf '#!/bin/sh\nexit 101\n' >"$root.unfinished/usr/sbin/policy-rc.d"
chmod 755 "$root.unfinished/usr/sbin/policy-rc.d"
echo force-unsafe-io >"$root.unfinished/etc/dpkg/dpkg.cfg.d/haulier"
inside=$PWD/setup/inside.sh
if ! (quietly "$inside" "$root.unfinished" apt-get -q update &&
    quietly "$inside" "$root.unfinished" env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${packages[@]}"); then
    rm -rf "$root.unfinished"
    skip "the packages of PHP 8.4 cannot be installed in it"
fi
rm -rf "$root.unfinished/var/cache/apt/archives" "$root.unfinished/var/lib/apt/lists"
printf '%s' "${packages[*]}" >"$root.unfinished/etc/haulier-packages"
mv "$root.unfinished" "$root"
