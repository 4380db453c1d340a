#!/usr/bin/env bash
# What it takes to compile haulier: a C compiler, what libjpeg-turbo is built with, and a Rust as new as `rust-version`
# in Cargo.toml.
set -euo pipefail
cd "$(dirname "$0")/.."
. setup/packages.sh

command -v cc >/dev/null || want "compiles the memory allocator and the compressors, and links the program" gcc libc6-dev
command -v cmake >/dev/null || want "builds libjpeg-turbo, which reads and writes JPEG" cmake make
command -v nasm >/dev/null || want "assembles libjpeg-turbo's vector code, and that of the AVIF encoder" nasm
install_wanted

needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

rust_is_new_enough() {
    local have
    have=$(cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p')
    [ -n "$have" ] && [ "$(printf '%s\n%s\n' "$needed" "$have" | sort -V | head -1)" = "$needed" ]
}

no_rust() {
    die "Rust $needed or newer is needed and ${1}: install it from https://rustup.rs, then run make again"
}

rust_is_new_enough && exit
if ! command -v rustup >/dev/null; then
    refresh_lists
    known rustup || no_rust "this release has no rustup package"
    apt-get -s install --no-remove rustup >/dev/null 2>&1 || no_rust "packages of an older Rust keep the rustup package out"
    want "installs Rust $needed or newer for your user" rustup ca-certificates
    install_wanted
    hash -r
fi
echo "Installing the stable Rust toolchain (rustup default stable)."
rustup default stable
rust_is_new_enough || no_rust "'cargo' in PATH is older ($(command -v cargo))"
