# Shared by the scripts of this folder; sourced, never run. bash 5, no side effects besides the variables below.
# shellcheck shell=bash
# shellcheck disable=SC2034  # the variables are for those who source this file

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
NIBBLE_CACHE=${NIBBLE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/nibble}
VENV=$NIBBLE_CACHE/venv # pip for fetching models, and the Python references of the tests
export NIBBLE_CACHE

if [ -t 2 ]; then BOLD=$'\e[1m' DIM=$'\e[2m' RED=$'\e[31m' GREEN=$'\e[32m' PLAIN=$'\e[0m'; else BOLD='' DIM='' RED='' GREEN='' PLAIN=''; fi

say() { printf '%s\n' "$*" >&2; }
step() { printf '\n%s== %s%s\n' "$BOLD" "$*" "$PLAIN" >&2; }
warn() { printf '%swarning:%s %s\n' "$RED" "$PLAIN" "$*" >&2; }
die() {
  printf '%serror:%s %s\n' "$RED" "$PLAIN" "$1" >&2
  shift
  [ $# = 0 ] || printf '       %s\n' "$@" >&2
  exit 1
}
# wrong_usage WHAT [MORE...]: a mistake of the command line, exit status 2.
wrong_usage() {
  printf '%serror:%s %s\n' "$RED" "$PLAIN" "$1" >&2
  shift
  printf '       %s\n' "$@" "see $0 --help" >&2
  exit 2
}
have() { command -v "$1" >/dev/null 2>&1; }

# Seconds since an earlier EPOCHREALTIME, with one decimal.
seconds_since() {
  local now=${EPOCHREALTIME/[.,]/} then=${1/[.,]/}
  local tenths=$(((now - then) / 100000))
  printf '%d.%d' $((tenths / 10)) $((tenths % 10))
}

# Parallel jobs: one a core, but a compiler needs about 1 GB.
jobs_here() {
  local cores memory
  cores=$(nproc 2>/dev/null || echo 2)
  memory=$(awk '/MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo 2>/dev/null || echo 0)
  if [ "$memory" -gt 0 ] && [ "$memory" -lt "$cores" ]; then echo "$memory"; else echo "$cores"; fi
}

# as_root COMMAND...: as root directly, otherwise through sudo.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif have sudo; then
    sudo "$@"
  else
    die "installing packages needs root" "run this script as root, or install sudo"
  fi
}
