#!/usr/bin/env bash
# What `make bench` needs beside the build and the tests: the servers to compare with, and load generators.
set -euo pipefail
cd "$(dirname "$0")/.."
. setup/packages.sh

find_php

want "PHP, the same for every server" "$php-cgi" "$php-fpm" "$php-opcache" "$php-mbstring"
want "headers of that PHP, for haulier's own workers inside it" "$php-dev"
want "servers to compare with" nginx lighttpd apache2 "libapache2-mod-$php"
want_if_known "a server to compare with" h2o caddy
want_if_known "compression of the servers to compare with" lighttpd-mod-deflate libnginx-mod-http-brotli-filter
want_if_known "the book that is compressed" bible-kjv
want_if_known "the coders alone" zstd brotli libdeflate-tools
want "the Symfony page" php-symfony-http-kernel php-symfony-routing php-symfony-twig-bridge php-twig
want "image libraries to compare with" libvips-tools imagemagick
want "the Symfony page of the experiments" php-symfony-framework-bundle php-symfony-twig-bundle php-symfony-form \
    php-symfony-validator php-symfony-security-csrf php-symfony-translation "$php-xml" "$php-intl"
want "images made by others" imagemagick libnginx-mod-http-image-filter "$php-gd" memcached redis-server
want "load generators to compare haulier bench with (bench/generators/plan.toml)" apache2-utils wrk nghttp2-client
want "download programs beside haulier get" curl wget "$php-cli" "$php-curl"
want_if_known "download programs beside haulier get" wget2 aria2 axel
want "runs the comparison" python3 openssl
install_wanted

command -v frankenphp >/dev/null ||
    echo "No frankenphp in PATH (Debian has no package, see https://frankenphp.dev): its rows are left out, by name."
