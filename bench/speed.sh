#!/usr/bin/env bash
# bench/speed.sh [BUILD]: makes the receipts of the README's speed tables, in about twenty minutes on a quiet machine,
# then writes the tables. BUILD (default build/release) is a release build of a commit without changes.
#
#     PYTHON=venv/bin/python bench/speed.sh       # a Python with llama-cpp-python; default python3
#     MACHINE=zen5                                # in the names of the receipts of kernels
#     PYTHON_AVX2=venv-avx2/bin/python            # kernels beside a ggml built without AVX-512 as well (docs/beside_ggml.md)
#     GEMMA=gemma-3-270m-q4_k_m.gguf              # that model as well, if you have accepted its terms
#
# Timings need the machine for themselves: nothing else runs, and the script asks for a higher priority where it may.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../scripts/lib.sh"
cd "$ROOT"
build=${1:-build/release}
python=${PYTHON:-python3}
machine=${MACHINE:-zen5}
nibble=$build/apps/nibble
receipts=bench/receipts

[ -x "$nibble" ] || die "$nibble is not there" "cmake --preset release && cmake --build --preset release"
commit=$("$nibble" --version | sed 's/.*(\(.*\))/\1/')
case $commit in *+ | unknown) die "this build is of changed sources ($commit)" "commit, and build again" ;; esac
git merge-base --is-ancestor "$commit" HEAD || die "this build's commit $commit is no ancestor of HEAD"
"$python" -c 'import llama_cpp' || die "$python has no llama-cpp-python" "PYTHON=... names another"
first=()
if nice -n -10 true 2>/dev/null; then first=(nice -n -10); fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# bench OUTPUT ARGUMENT...: the receipt appears when it is whole.
bench() {
  step "$1"
  "${first[@]}" "$nibble" bench "${@:2}" -o "$receipts/$1"
}

# Kernels beside the limits of the machine, then in turn with ggml's, which takes some of the speed of both.
kernels() {
  bench "speed_$1_$machine.json" op "${@:2}"
  bench "speed_$1_${machine}_blocks.json" op --format q4_k,q6_k,q8_0,f16 --shape 14336x4096 "${@:2}"
  # Layers of Qwen2.5 1.5B and 0.5B: no powers of two.
  bench "speed_$1_${machine}_shapes.json" op --shape 8960x1536,1536x8960,4864x896,896x4864 "${@:2}"
}
kernels op
bench "speed_op_${machine}_fp8.json" op --format fp8 --shape 14336x4096 # which ggml has not
kernels ggml --against ggml --python "$python"
if [ -n "${PYTHON_AVX2:-}" ]; then
  bench "speed_ggml_${machine}_avx2.json" op --isa avx2 --threads 1 --format nvfp4,q4_k,q6_k,q8_0 --shape 14336x4096 \
    --against ggml --python "$PYTHON_AVX2"
fi

# whole KEY MODEL.gguf REPETITIONS: decode and prefill beside llama.cpp on the published file, of NVFP4 as 'quantize' makes it,
# of NVFP4 with the published head and embedding, and of the published file itself.
whole() {
  local key=$1 published=$2 repetitions=$3 lane file task
  for lane in "" keep_ kquant_; do
    file=$work/$lane$key.gguf
    case $lane in
      "") "$nibble" quantize "$published" -o "$file" 2>/dev/null ;;
      keep_) "$nibble" quantize "$published" --head keep -o "$file" 2>/dev/null ;;
      kquant_) file=$published ;;
    esac
    for task in decode prefill; do
      bench "speed_$lane${task}_$key.json" "$task" "$file" --against llama.cpp --against-model "$published" \
        --python "$python" --repetitions "$repetitions"
    done
  done
  rm "$work"/*"$key.gguf"
}

whole smollm2_135m "$(scripts/fetch_model.sh smollm2-135m-instruct)" 9
whole qwen2.5_coder_0.5b "$(scripts/fetch_model.sh qwen2.5-coder-0.5b-instruct)" 9
whole qwen2.5_coder_1.5b "$(scripts/fetch_model.sh qwen2.5-coder-1.5b-instruct)" 5
[ -z "${GEMMA:-}" ] || whole gemma_3_270m "$GEMMA" 9

step "the tables"
python3 tools/check_claims --write
