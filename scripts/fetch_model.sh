#!/usr/bin/env bash
# fetch_model.sh NAME: prints the path of a verified model file in the cache, fetching it first where needed.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
have python3 || die "python3 is needed" "run scripts/install_deps.sh"
exec python3 "$ROOT/scripts/fetch_model.py" "$@"
