# shellcheck shell=bash
# Sourced by the other scripts here: which Debian or Ubuntu packages are wanted, and how they are installed.
#
#   want "why" package…          wanted; a missing one is installed, one that this release lacks is an error
#   want_if_known "why" package… the same, but a release may lack it
#   want_go "why" program path   a program from the Go module proxy, into Go's own bin; without Go its tests are skipped
#   install_wanted               says what it installs and why, installs it, starts and enables no service
#
# Nothing is asked of the network when every package is there already. Debian's and Ubuntu's packages start their
# service when they are installed; while ours are put in place, /usr/sbin/policy-rc.d says no (a present one comes
# back afterwards), and units that came with them are left disabled.

wanted=()
reasons=()
lists_fresh=
starts_denied=

die() {
    echo "error: $*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "installing packages needs root: run this as root, or install sudo"
    fi
}

installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Runs a command; what it said is shown only if it failed.
quietly() {
    local log
    log=$(mktemp)
    if ! "$@" >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        die "failed: $*"
    fi
    rm -f "$log"
}

apt() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"
}

# The package lists, fetched only when something has to be installed or looked up and they are older than an hour.
refresh_lists() {
    [ -n "$lists_fresh" ] && return
    command -v apt-get >/dev/null || die "no apt-get: this set-up knows Debian and Ubuntu; CONTRIBUTING.md lists what to install"
    if [ -z "$(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' -mmin -60 2>/dev/null)" ]; then
        echo "Fetching the package lists (apt-get update)."
        quietly apt update
    fi
    lists_fresh=yes
}

known() {
    apt-cache show --no-all-versions "$1" >/dev/null 2>&1
}

want() {
    local why=$1 missing=() package
    shift
    for package in "$@"; do
        installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] && return
    refresh_lists
    for package in "${missing[@]}"; do
        known "$package" || die "this release has no package $package ($why)"
    done
    wanted+=("${missing[@]}")
    reasons+=("${missing[*]}: $why")
}

want_if_known() {
    local why=$1 package
    shift
    for package in "$@"; do
        installed "$package" && continue
        refresh_lists
        if known "$package"; then
            wanted+=("$package")
            reasons+=("$package: $why")
        else
            echo "This release has no package $package ($why); going on without it."
        fi
    done
}

want_go() {
    local why=$1 program=$2 path=$3
    if ! command -v go >/dev/null; then
        echo "No Go on this machine: what needs $program ($why) is skipped, by name."
        return
    fi
    command -v "$program" >/dev/null || [ -x "$(go env GOPATH)/bin/$program" ] && return
    echo "Installing $program from the Go module proxy ($why)."
    quietly go install "$path"
}

# Sets `php` to the name that PHP's packages begin with: that of php-cgi on this machine, else the release's own.
find_php() {
    local version
    if command -v php-cgi >/dev/null; then
        version=$(php-cgi -n -q -v | sed -n '1s/^PHP \([0-9]*\.[0-9]*\).*/\1/p')
    else
        refresh_lists
        version=$(apt-cache depends php-cgi 2>/dev/null | sed -n 's/.*Depends: php\([0-9.]*\)-cgi$/\1/p' | head -1)
    fi
    [ -n "$version" ] || die "no php-cgi here, and this release has no php-cgi package"
    php=php$version
}

deny_starts() {
    local policy=/usr/sbin/policy-rc.d status=0
    if [ -e "$policy" ]; then
        as_root "$policy" haulier-setup start >/dev/null 2>&1 || status=$?
        [ "$status" = 101 ] && return
        [ -e "$policy.before-haulier" ] || as_root mv "$policy" "$policy.before-haulier"
    fi
    trap allow_starts EXIT
    starts_denied=yes
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
}

allow_starts() {
    local policy=/usr/sbin/policy-rc.d
    as_root rm -f "$policy"
    [ ! -e "$policy.before-haulier" ] || as_root mv "$policy.before-haulier" "$policy"
    trap - EXIT
    starts_denied=
}

installed_packages() {
    dpkg-query -W -f='${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p' | sort -u
}

# Units of packages that were not here before: off, so that the next boot starts none of them either.
leave_disabled() {
    local units
    command -v systemctl >/dev/null || return 0
    units=$(comm -13 <(echo "$1") <(installed_packages) | xargs -r dpkg-query -L 2>/dev/null |
        sed -nE 's#^(/usr)?/lib/systemd/system/([^/@]*\.(service|socket))$#\2#p' | sort -u)
    for unit in $units; do
        [ "$(systemctl is-enabled "$unit" 2>/dev/null)" = enabled ] || continue
        as_root systemctl disable --quiet "$unit" >/dev/null 2>&1 && echo "Left disabled: $unit"
    done
    return 0
}

install_wanted() {
    [ ${#wanted[@]} = 0 ] && return
    local before
    echo "Installing Debian packages; no service is started or enabled:"
    printf '  %s\n' "${reasons[@]}"
    before=$(installed_packages)
    deny_starts
    quietly apt install -y --no-remove --no-install-recommends "${wanted[@]}"
    [ -z "$starts_denied" ] || allow_starts
    leave_disabled "$before"
    wanted=()
    reasons=()
}
