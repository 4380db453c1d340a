#!/usr/bin/env bash
# Builds the container image `haulier` from a binary and tests it: container.sh BINARY. Needs podman or docker. If the base
# image cannot be downloaded, debootstrap makes one from the packages of the distribution.
set -euo pipefail
binary=$(realpath "$1")
cd "$(dirname "$0")/.."

if command -v podman >/dev/null; then
    engine=(podman)
    # Without systemd podman needs the other cgroup manager and the older of its two runtimes.
    [ -d /run/systemd/system ] || engine+=(--cgroup-manager=cgroupfs)
    [ -d /run/systemd/system ] || ! command -v runc >/dev/null || engine+=(--runtime=runc)
elif command -v docker >/dev/null; then
    engine=(docker)
else
    echo "error: an image needs podman or docker; neither is installed" >&2
    exit 1
fi
place=$(mktemp -d)
container=haulier-tried-$$
clean() {
    "${engine[@]}" rm -f "$container" >/dev/null 2>&1 || true
    rm -rf "$place"
}
trap clean EXIT
fail() {
    echo "error: $*" >&2
    "${engine[@]}" logs "$container" >&2 2>/dev/null || true
    exit 1
}

base=$(sed -n 's/^FROM //p' packaging/Containerfile)
if ! "${engine[@]}" image inspect "$base" >/dev/null 2>&1 && ! "${engine[@]}" pull --quiet "$base" 2>"$place/pull"; then
    command -v debootstrap >/dev/null || fail "no $base: $(tail -1 "$place/pull")"
    echo "The registry cannot be reached; debootstrap makes $base."
    debootstrap --variant=minbase bookworm "$place/base" >"$place/log" || fail "$(tail -1 "$place/log")"
    tar -C "$place/base" -c . | "${engine[@]}" import --quiet - "docker.io/library/$base" >/dev/null
fi

install -D -m 755 "$binary" "$place/context/target/release/haulier"
cp -r packaging "$place/context/"
options=()
# Chroot isolation also works within a container. Only images in docker's format have a health check.
case ${engine[0]} in podman) options=(--isolation chroot --pull=never --format docker) ;; esac
"${engine[@]}" build "${options[@]}" -f packaging/Containerfile -t haulier "$place/context" >"$place/log" 2>&1 ||
    fail "$(tail -20 "$place/log")"

# A site of one script, which leaves processes behind.
mkdir "$place/shop"
cat >"$place/shop/index.php" <<'PHP'
<?php for ($i = 0; $i < 3; $i++) shell_exec('(sleep 0.2) > /dev/null 2>&1 &'); echo 'the shop, ', posix_getuid();
PHP
printf '[site.shop]\nhosts = ["shop.test"]\nroot = "/srv/shop"\n' >"$place/shop.toml"
chmod -R a+rX "$place"
options=()
# A machine without systemd lacks the health timer, and may not be allowed to raise limits.
case ${engine[0]} in podman) options=(--health-interval=disable --ulimit "nofile=$(ulimit -Hn)" --ulimit nproc=4096) ;;
esac
"${engine[@]}" run -d --name "$container" --network none "${options[@]}" -v "$place/shop:/srv/shop:ro" \
    -v "$place/shop.toml:/etc/haulier/sites/shop.toml:ro" haulier >/dev/null 2>"$place/log" || fail "$(tail -3 "$place/log")"
inside() { "${engine[@]}" exec "$container" "$@"; }
get() { inside curl -fsS --retry 20 --retry-connrefused --retry-delay 1 --max-time 30 "$@"; }

[[ $(get http://127.0.0.1:8080/) == *"haulier is running"* ]] || fail "no welcome"
[[ $(inside cat /proc/1/comm) == haulier ]] || fail "haulier is not process 1"
said=$(get -H 'Host: shop.test' http://127.0.0.1:8080/)
[[ $said == "the shop, "* && $said != "the shop, 0" ]] || fail "the site says: $said"
for _ in 1 2 3 4 5; do get -H 'Host: shop.test' http://127.0.0.1:8080/ >/dev/null; done
sleep 2
left=$(inside sh -c 'cat /proc/[0-9]*/stat' | grep -c ') Z ' || true)
[ "$left" = 0 ] || fail "$left processes were not reaped"
case ${engine[0]} in
podman) "${engine[@]}" healthcheck run "$container" >/dev/null || fail "the health check fails" ;;
*) inside curl -fsS http://127.0.0.1:4870/healthz >/dev/null || fail "the health check fails" ;;
esac
"${engine[@]}" stop -t 60 "$container" >/dev/null
code=$("${engine[@]}" inspect --format '{{.State.ExitCode}}' "$container")
[ "$code" = 0 ] || fail "it ended with code $code"
echo "The image haulier is built. Its process 1 serves files and PHP, reaps leftover processes, is healthy, and ends with code 0."
