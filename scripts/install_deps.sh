#!/usr/bin/env bash
# Installs what nibble needs on Debian or Ubuntu, and says what it does. What is there already is left alone.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

usage() {
  cat <<TEXT
usage: scripts/install_deps.sh [demo|test] [--print]

  demo   what building nibble and fetching a model needs (default)
  test   that, and what scripts/test.sh needs: clang and its tools, GoogleTest, an Arm cross compiler and emulator,
         Chromium, and the Python references pinned in scripts/requirements-test.txt
  --print  only print the package names

Packages come from apt, as root or through sudo. Python packages go into $VENV and nowhere else.
TEXT
}

DEMO_PACKAGES=(ca-certificates build-essential cmake ninja-build pkg-config libcli11-dev libfmt-dev nlohmann-json3-dev
  libpcre2-dev libssl-dev python3 python3-venv)
TEST_PACKAGES=(git ccache libgtest-dev libgmock-dev libboost-context-dev clang clang-format-14 clang-tidy libclang-rt-14-dev shellcheck
  g++-aarch64-linux-gnu qemu-user chromium chromium-driver fonts-dejavu-core)

is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -q "$@" </dev/null >&2
}

install_packages() {
  local missing=() package
  for package in "$@"; do is_installed "$package" || missing+=("$package"); done
  if [ ${#missing[@]} = 0 ]; then
    say "apt: all $# packages are there"
    return
  fi
  have apt-get || die "this machine has no apt-get" "install by hand what these Debian packages hold: ${missing[*]}"
  say "apt: installing ${missing[*]}"
  # The package lists are refreshed only where the present ones cannot serve.
  if apt-get -s install "${missing[@]}" >/dev/null 2>&1 && apt_install "${missing[@]}"; then return; fi
  say "apt: the package lists are missing or old; refreshing them"
  as_root apt-get update -q </dev/null >&2 || die "apt-get update failed" "is there a network?" "needed: ${missing[*]}"
  apt_install "${missing[@]}" || die "apt could not install: ${missing[*]}" "the reason stands above"
}

make_venv() {
  if "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then return; fi
  say "python: making $VENV"
  mkdir -p "$NIBBLE_CACHE"
  python3 -m venv --clear "$VENV" || die "python3 -m venv failed in $VENV" "is the package python3-venv installed?"
}

# Exit status 0 means that the references are there in exactly the pinned versions.
references_ready() {
  "$VENV/bin/python" - "$ROOT/scripts/requirements-test.txt" <<'PY' 2>/dev/null
import importlib.metadata, sys
for line in open(sys.argv[1], encoding="utf-8"):
    name, _, version = line.partition("#")[0].strip().partition("==")
    if name and importlib.metadata.version(name) != version:
        sys.exit(1)
PY
}

install_references() {
  if references_ready; then
    say "python: the references of scripts/requirements-test.txt are there"
    return
  fi
  say "python: installing the references of scripts/requirements-test.txt"
  "$VENV/bin/python" -m pip install -q --only-binary :all: -r "$ROOT/scripts/requirements-test.txt" >&2 ||
    warn "the Python references could not be installed; tests that compare with them will be reported as NOT RUN"
}

main() {
  local set=demo print=no argument
  for argument in "$@"; do
    case $argument in
      demo | test) set=$argument ;;
      --print) print=yes ;;
      -h | --help) usage && exit 0 ;;
      *) wrong_usage "'$argument' is not expected" ;;
    esac
  done
  local packages=("${DEMO_PACKAGES[@]}")
  [ "$set" = demo ] || packages+=("${TEST_PACKAGES[@]}")
  if [ $print = yes ]; then
    printf '%s\n' "${packages[@]}"
    exit 0
  fi
  install_packages "${packages[@]}"
  make_venv
  [ "$set" = demo ] || install_references
}

main "$@"
