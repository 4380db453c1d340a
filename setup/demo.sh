#!/usr/bin/env bash
# What `make demo` needs beside the build: PHP that speaks FastCGI.
set -euo pipefail
cd "$(dirname "$0")/.."
. setup/packages.sh

command -v php-cgi >/dev/null || want "runs the PHP of the example site" php-cgi
install_wanted
