#!/usr/bin/env bash
# What `make test` needs beside the build: PHP in both kinds, and the real applications the tests serve.
set -euo pipefail
cd "$(dirname "$0")/.."
. setup/packages.sh

find_php

want "PHP, supervised and as a pool of its own" "$php-cgi" "$php-fpm" "$php-cli"
want "headers of that PHP, for haulier's own workers inside it" "$php-dev"
want "extensions the applications ask for" "$php-curl" "$php-gd" "$php-intl" "$php-mbstring" "$php-sqlite3" "$php-xml"
want "applications the tests serve" dokuwiki mediawiki phpsysinfo shaarli fonts-fork-awesome
want "parts of the Symfony page the tests serve" php-symfony-framework-bundle php-symfony-twig-bundle \
    php-symfony-form php-symfony-runtime php-symfony-validator php-symfony-security-csrf php-symfony-translation \
    php-symfony-twig-bridge php-symfony-yaml php-symfony-http-kernel php-symfony-routing php-twig
want "clients beside our own" curl apache2-utils nghttp2-client
want "reference tools that read what was compressed" zstd brotli
want "reference tools that read and write images" libjpeg-turbo-progs imagemagick webp libvips-tools
want "the browser the web tests drive" chromium fonts-dejavu-core
want "servers that haulier get downloads from" nginx apache2 lighttpd openssl
want "caches of the image service" memcached redis-server
want "the store of certificates of browsers" libnss3-tools
want "runs the tests of the benchmark's own code" python3
if installed cargo; then
    want "check the form of the code" rustfmt rust-clippy
fi
install_wanted
want_go "conformance of HTTP/2" h2spec github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible
want_go "an S3 server for object stores" versitygw github.com/versity/versitygw/cmd/versitygw@v1.8.0

# Where there is no Go, another S3 server, from Python: in target/tools, nothing of the system is changed.
tools=$PWD/target/tools
if ! command -v go >/dev/null && [ ! -x "$tools/bin/moto_server" ] && python3 -m venv --help >/dev/null 2>&1; then
    echo "Installing moto, an S3 server for object stores (pip, into $tools)."
    quietly python3 -m venv "$tools/moto"
    quietly "$tools/moto/bin/pip" install --quiet 'moto[s3,server]>=5,<6'
    mkdir -p "$tools/bin"
    ln -sf "$tools/moto/bin/moto_server" "$tools/bin/moto_server"
fi
want_go "a certificate authority that asks as Let's Encrypt does" pebble github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1
want_go "its name server" pebble-challtestsrv github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv@v2.10.1

# The workers' tests run on a newer PHP too.
setup/debian-13.sh
