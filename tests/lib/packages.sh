# Sourced by ./demo and ./test: Debian packages by need. No output when there is nothing to do.

# packages NAME...: installs those of the Debian packages that are not there. As root, or through sudo.
packages() {
    missing=
    for package in "$@"; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    as_root=
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || { echo "these Debian packages are needed and I am not root:$missing" >&2; return 1; }
        as_root=sudo
    fi
    echo "installing:$missing"
    # Waits for who else installs at the moment, and asks a slow archive again.
    patient="-o DPkg::Lock::Timeout=300 -o Acquire::Retries=3"
    # RUNLEVEL=1: a package's server is not started by its installation (where init scripts do that); we start our own.
    # shellcheck disable=SC2086  # lists of words
    again $as_root env DEBIAN_FRONTEND=noninteractive apt-get $patient update -qq </dev/null
    # shellcheck disable=SC2086
    again $as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get $patient install -y -qq --no-install-recommends $missing </dev/null >/dev/null
}

# again COMMAND...: runs it up to four times, with a pause between, until it succeeds: for what needs the network.
again() {
    for pause in 5 15 30 0; do
        "$@" && return 0
        [ "$pause" = 0 ] || { echo "failed, once more in $pause s: $*" >&2; sleep "$pause"; }
    done
    return 1
}

# toolchain: says how to get Rust where there is none, and adds the parts of it that are asked for (rustfmt clippy).
toolchain() {
    if [ -x "${HOME:-/root}/.cargo/bin/cargo" ]; then PATH="${HOME:-/root}/.cargo/bin:$PATH"; fi
    command -v cargo >/dev/null || { echo "no cargo: install a Rust toolchain first (https://rustup.rs)" >&2; return 1; }
    for part in "$@"; do
        case $part in rustfmt) command=fmt ;; *) command=$part ;; esac
        cargo "$command" --version >/dev/null 2>&1 || again rustup component add "$part" >/dev/null || return 1
    done
}
