#!/usr/bin/env bash
# Everything that CI runs, on a fresh Debian 12 machine too: installs what it needs, then runs the stages below.
# A stage passes, fails, or is not run for a reason that the summary names; the last line counts them.
set -uo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
STAGES_FILE=${NIBBLE_TEST_STAGES:-$ROOT/scripts/stages.sh} # another file: the test of this script
# shellcheck source=scripts/stages.sh
source "$STAGES_FILE"
STAGE_LIMIT=${STAGE_LIMIT:-1800} # seconds; a stage that hangs fails
cd "$ROOT" || exit 1

usage() {
  cat <<TEXT
usage: scripts/test.sh [--quick] [--stage NAME]... [--list] [--verbose]

  (nothing)      all stages, as CI does
  --quick        the stages marked * only: a few minutes
  --stage NAME   this stage (and what it needs); may be repeated
  --list         the names of the stages
  --verbose      show the output of stages that pass, too

Output of each stage: build/test-logs/NAME.log. Exit status 0 only if no stage failed.
TEXT
}

# Same sources give the same objects in every build folder and every clone, so that ccache may share them.
export CCACHE_BASEDIR=$ROOT CCACHE_NOHASHDIR=1 CCACHE_COMPILERCHECK=content
export CTEST_OUTPUT_ON_FAILURE=1 CLICOLOR_FORCE=0 GTEST_COLOR=no
LOGS=${NIBBLE_TEST_LOGS:-$ROOT/build/test-logs}
JOBS=$(jobs_here)
export LOGS JOBS

declare -a RESULTS=() # "status|name|seconds|what"
failed=0 passed=0 skipped=0 child=''
# Who stops this script stops the stage that it runs; the stage has a process group of its own.
trap '[ -z "$child" ] || kill "$child" 2>/dev/null; exit 130' INT TERM

how_it_ended() {
  if [ "$1" -gt 128 ]; then echo "ended by signal SIG$(kill -l $(($1 - 128)))"; else echo "exit status $1"; fi
}

run_stage() {
  local name=$1 log=$LOGS/$1.log start=$EPOCHREALTIME status what mark
  local about=${STAGE_ABOUT[$name]}
  step "$name: $about"
  # shellcheck disable=SC2016  # $1.. are for the inner bash
  timeout -k 10 "$STAGE_LIMIT" bash -euo pipefail -c 'source "$1"; source "$2"; "stage_$3"' stage \
    "$ROOT/scripts/lib.sh" "$STAGES_FILE" "$name" >"$log" 2>&1 </dev/null &
  child=$!
  wait $child
  status=$?
  # A stage's last line that starts with 'COUNT: ' or 'NOT RUN: ' says what it did.
  case $status in
    0) mark=pass passed=$((passed + 1)) what=$(sed -n 's/^COUNT: //p' "$log" | tail -n 1) ;;
    77) mark='NOT RUN' skipped=$((skipped + 1)) what=$(sed -n 's/^NOT RUN: //p' "$log" | paste -sd ';') ;;
    124) mark=FAIL failed=$((failed + 1)) what="took longer than $STAGE_LIMIT s, see build/test-logs/$name.log" ;;
    *) mark=FAIL failed=$((failed + 1)) what="$(how_it_ended "$status"), see build/test-logs/$name.log" ;;
  esac
  RESULTS+=("$mark|$name|$(seconds_since "$start")|$what")
  if [ "$mark" = FAIL ]; then
    say "$RED--- the end of build/test-logs/$name.log$PLAIN"
    tail -n 60 "$log" >&2
  elif [ $verbose = yes ]; then
    cat "$log" >&2
  fi
  say "$mark $name ($(seconds_since "$start") s)${what:+: $what}"
}

summary() {
  local row mark name seconds what
  printf '\n%-8s %-12s %8s  %s\n' result stage seconds what
  for row in "${RESULTS[@]}"; do
    IFS='|' read -r mark name seconds what <<<"$row"
    printf '%-8s %-12s %8s  %s\n' "$mark" "$name" "$seconds" "$what"
  done
  printf '\nstages took %s s\n' "$(seconds_since "$begin")"
  printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
}

verbose=no
selection=()
parse_arguments() {
  while [ $# != 0 ]; do
    case $1 in
      --quick) selection=("${QUICK_STAGES[@]}") ;;
      --stage)
        [ -n "${2:-}" ] || wrong_usage "--stage needs a name" "stages: ${STAGES[*]}"
        [ -n "${STAGE_ABOUT[$2]:-}" ] || wrong_usage "there is no stage '$2'" "stages: ${STAGES[*]}"
        selection+=("$2")
        shift
        ;;
      --list)
        for name in "${STAGES[@]}"; do
          quick=' '
          [[ " ${QUICK_STAGES[*]} " != *" $name "* ]] || quick='*'
          printf '%s %-12s %s\n' "$quick" "$name" "${STAGE_ABOUT[$name]}"
        done
        echo "* runs with --quick, too"
        exit 0
        ;;
      --verbose) verbose=yes ;;
      -h | --help) usage && exit 0 ;;
      *) wrong_usage "'$1' is not expected" ;;
    esac
    shift
  done
  [ ${#selection[@]} != 0 ] || selection=("${STAGES[@]}")
}

# One function, so that bash has read all of this file before it runs: a pull in the middle of a run harms nothing.
main() {
  parse_arguments "$@"
  mkdir -p "$LOGS"
  begin=$EPOCHREALTIME
  say "${#selection[@]} stages; a build takes minutes, and says so in build/test-logs/NAME.log only (all stages: 15 to 30 minutes on two cores)"
  local name
  for name in "${selection[@]}"; do run_stage "$name"; done
  summary
  [ $failed = 0 ]
  exit
}

main "$@"
