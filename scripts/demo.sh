#!/usr/bin/env bash
# From a fresh clone to an answer: installs what is missing, builds, fetches a small real model, quantizes it to NVFP4,
# asks it a question, and runs the same request in other ways to show that not one bit of it changes.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$ROOT"

usage() {
  cat <<TEXT
usage: scripts/demo.sh [QUESTION] [--model NAME] [--offline]

  QUESTION      default: "$QUESTION"
  --model NAME  one of: $(python3 scripts/fetch_model.py --list 2>/dev/null | paste -sd ' ')
                default: $MODEL
  --offline     install and download nothing; fails where something is missing

Models are kept in $NIBBLE_CACHE/models (set NIBBLE_CACHE for another place).
TEXT
}

QUESTION="What is the capital of France?"
MODEL=smollm2-135m-instruct
offline=no
while [ $# != 0 ]; do
  case $1 in
    -h | --help) usage && exit 0 ;;
    --offline) offline=yes ;;
    --model)
      [ -n "${2:-}" ] || wrong_usage "--model needs a name"
      MODEL=$2
      shift
      ;;
    -*) wrong_usage "there is no flag $1" ;;
    *) QUESTION=$1 ;;
  esac
  shift
done

NIBBLE=$ROOT/build/release/apps/nibble
[ $offline = no ] || export PIP_NO_INDEX=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# run_step TITLE FUNCTION: says what is done and how long it took.
run_step() {
  local start=$EPOCHREALTIME
  step "$1"
  shift
  "$@"
  say "${DIM}took $(seconds_since "$start") s$PLAIN"
}

install() {
  if [ $offline = yes ]; then say "skipped: --offline"; else bash scripts/install_deps.sh demo; fi
}

compile() {
  local log=$ROOT/build/demo-build.log
  mkdir -p "$ROOT/build"
  if [ -t 2 ]; then
    cmake --preset release >"$log" && cmake --build --preset release -j "$(jobs_here)" --target nibble >&2
  else
    cmake --preset release >"$log" && cmake --build --preset release -j "$(jobs_here)" --target nibble >>"$log"
  fi || {
    tail -n 30 "$log" >&2
    die "the build failed" "the whole output is in $log"
  }
  "$NIBBLE" --version >&2
}

fetch() {
  source_model=$(bash scripts/fetch_model.sh "$MODEL")
  say "$source_model"
}

# The quantized file stays in the cache as long as source and nibble are the same; quantize writes it whole or not at all.
quantize() {
  quantized=${source_model%.gguf}.NVFP4.gguf
  local made_from
  made_from="$(cat "$source_model.sha256") $(sha256sum "$NIBBLE" | cut -d' ' -f1)"
  if [ -e "$quantized" ] && [ "$(cat "$quantized.made-from" 2>/dev/null)" = "$made_from" ]; then
    say "$quantized is there already, made by this very build"
    return
  fi
  rm -f "$quantized.made-from"
  "$NIBBLE" quantize "$source_model" -o "$quantized"
  printf '%s\n' "$made_from" >"$quantized.made-from"
}

ask() {
  say "${BOLD}$QUESTION$PLAIN"
  "$NIBBLE" run "$quantized" --chat -p "$QUESTION" -n 64 --temp 0 --digest-prompt --receipt "$work/receipt.json"
}

# The instruction sets that can be used here, one a line.
usable_isas() {
  "$NIBBLE" doctor --json | python3 -c 'import json, sys
for isa in json.load(sys.stdin)["isas"]:
    if not isa["unusable_because"]: print(isa["name"])'
}

replay_elsewhere() {
  local threads=1 chunks=(7 64 1) isas isa i=0
  isas=$(usable_isas)
  for isa in $isas; do
    say "${BOLD}instruction set $isa, threads: $threads, prompt in chunks of ${chunks[i]}$PLAIN"
    "$NIBBLE" replay "$work/receipt.json" --model "$quantized" --isa "$isa" --threads $threads --chunk "${chunks[i]}"
    threads=$((threads + 1)) i=$(((i + 1) % 3))
  done
}

quality() {
  say "perplexity of a public-domain text, and how far the NVFP4 file moves the source's predictions (about a minute)"
  say "(a: the source's weights in float arithmetic; b: the NVFP4 file as it runs)"
  "$NIBBLE" compare "$source_model" "$quantized" --a contract=float -f bench/texts/prose.txt
}

source_model='' quantized=''
begin=$EPOCHREALTIME
run_step "1/7 Packages that the build needs" install
run_step "2/7 Building nibble (preset release)" compile
run_step "3/7 Fetching $MODEL" fetch
run_step "4/7 Quantizing it to NVFP4: 4.5 bits a weight" quantize
run_step "5/7 Asking it" ask
run_step "6/7 The same request on other instruction sets, thread counts and prompt chunks: same logits, bit for bit" replay_elsewhere
run_step "7/7 What 4.5 bits a weight cost" quality

step "Done in $(seconds_since "$begin") s. What to try next:"
cat >&2 <<TEXT
  build/release/apps/nibble chat $quantized
  build/release/apps/nibble inspect $quantized
  build/release/apps/nibble --help
TEXT
