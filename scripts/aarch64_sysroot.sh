#!/usr/bin/env bash
# Prints a folder with the Arm builds of the libraries that nibble links, for cmake/aarch64.cmake. They are downloaded by
# apt and unpacked below the cache: neither root nor a foreign architecture in the machine's own package database is needed.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

PACKAGES=(libfmt-dev:arm64 libfmt9:arm64 libpcre2-dev:arm64 libpcre2-8-0:arm64 libssl-dev:arm64 libssl3:arm64
  libgtest-dev:arm64 libgmock-dev:arm64 nlohmann-json3-dev:all libcli11-dev:all)
SYSROOT=$NIBBLE_CACHE/aarch64-sysroot

[ ! -e "$SYSROOT/complete" ] || {
  echo "$SYSROOT"
  exit 0
}
have apt-get || die "the Arm libraries come from apt, which this machine does not have"
work=$NIBBLE_CACHE/aarch64-download
mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/debs"
trap 'rm -rf "$work"' EXIT
options=(-q -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work" -o APT::Architecture=arm64 -o APT::Architectures::=arm64
  -o Dir::State::status=/dev/null -o APT::Sandbox::User=root)
say "apt: reading the package lists for arm64"
apt-get "${options[@]}" update </dev/null >&2 || die "apt-get update for arm64 failed" "is there a network?"
say "apt: downloading ${PACKAGES[*]}"
(cd "$work/debs" && apt-get "${options[@]}" download "${PACKAGES[@]}" </dev/null >&2) || die "apt could not download the Arm libraries"
rm -rf "$SYSROOT" "$SYSROOT.new"
for deb in "$work"/debs/*.deb; do dpkg-deb -x "$deb" "$SYSROOT.new"; done
touch "$SYSROOT.new/complete"
mv "$SYSROOT.new" "$SYSROOT"
echo "$SYSROOT"
