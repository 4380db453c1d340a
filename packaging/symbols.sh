#!/usr/bin/env bash
# Moves the symbols and line tables of a binary into BINARY.debug: symbols.sh BINARY. The binary names that file
# (.gnu_debuglink), so gdb, perf and the backtrace of a panic find it beside the binary. Does nothing to a binary that has
# none left.
set -euo pipefail
binary=$(realpath "$1")
name=$(basename "$binary")
cd "$(dirname "$binary")"

objdump -h "$name" | grep -q '[.]debug_line' || exit 0
size() { stat -c %s "$1" | numfmt --to=iec-i --suffix=B; }
before=$(size "$name")
# Cargo keeps a second name of the file: a new file leaves that one as it is.
whole=$(mktemp "$name.XXXXXX")
trap 'rm -f "$whole"' EXIT
cp -p "$name" "$whole"
objcopy --only-keep-debug "$whole" "$name.debug"
chmod 644 "$name.debug"
strip --strip-unneeded "$whole"
objcopy --add-gnu-debuglink="$name.debug" "$whole"
touch -r "$name" "$whole"
mv "$whole" "$name"
trap - EXIT
echo "$name: $(size "$name"), and its symbols in $name.debug: $(size "$name.debug") (together $before)"
