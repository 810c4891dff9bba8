#!/usr/bin/env bash
# tools/build_cuda_ggml.sh GGML OUT [ARCH]: builds cuda_ggml_linear for one GPU architecture (default 90a) of the sources of
# ggml, for instance vendor/llama.cpp/ggml in the sdist of llama-cpp-python 0.3.36. Of the backend only what a product of
# NVFP4 weights runs through is compiled, six minutes of one core; whatever else is called says its name and ends the program.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,4s/^# //p' "$0" && exit 2; }
ggml=$(cd "$1" && pwd) out=$2 arch=${3:-90a}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out/objects"
cd "$out"

includes=(-I"$ggml/include" -I"$ggml/src" -I"$ggml/src/ggml-cuda" -I"$here/../src")
cuda=(nvcc -O3 -DNDEBUG -std=c++20 -w -use_fast_math -extended-lambda --expt-relaxed-constexpr -gencode "arch=compute_$arch,code=sm_$arch"
  -DGGML_CUDA_NO_FA -DGGML_CUDA_NO_VMM -DGGML_CUDA_USE_GRAPHS -DGGML_CUDA_PEER_MAX_BATCH_SIZE=128 -DGGML_USE_CUDA "${includes[@]}")
once() { [ -s "$1" ] || { "${@:2}" -c -o "$1.part" && mv "$1.part" "$1"; }; }
for file in ggml-cuda mmvq mmq quantize template-instances/mmq-instance-nvfp4 mmvf mmf convert fwht topk-moe; do
  once "objects/${file##*/}.o" "${cuda[@]}" "$ggml/src/ggml-cuda/$file.cu"
done
printf '#define GGML_VERSION ""\n#define GGML_COMMIT ""\n' >ggml-version.h # ggml's own build writes it
flags=(-O3 -DNDEBUG -w -D_GNU_SOURCE -DGGML_SCHED_MAX_COPIES=4 -I. "${includes[@]}")
for file in "$ggml"/src/{ggml,ggml-alloc,ggml-quants}.c; do once "objects/$(basename "$file").o" gcc "${flags[@]}" "$file"; done
for file in "$ggml"/src/{ggml,ggml-backend,ggml-backend-meta,ggml-threading,ggml-opt,gguf}.cpp; do
  once "objects/$(basename "$file").o" g++ -std=c++17 "${flags[@]}" "$file"
done
once objects/driver.o "${cuda[@]}" "$here/cuda_ggml_linear.cu"

link=(g++ -no-pie -o cuda_ggml_linear objects/*.o "-L$(dirname "$(command -v nvcc)")/../lib64" -lcudart_static -ldl -lrt -lpthread)
mapfile -t missing < <("${link[@]}" -Wl,--no-demangle 2>&1 | sed -n "s/.*undefined reference to \`\([^']*\)'.*/\1/p" | sort -u)
[ ${#missing[@]} = 0 ] || {
  {
    echo '.section .note.GNU-stack,"",@progbits'
    for i in "${!missing[@]}"; do
      printf '.section .rodata\n.L%d: .asciz "%s"\n.text\n.globl %s\n%s: lea .L%d(%%rip), %%rdi\njmp left_out\n' \
        "$i" "${missing[i]}" "${missing[i]}" "${missing[i]}" "$i"
    done
  } >left_out.s
  printf '#include <stdio.h>\n#include <stdlib.h>\nextern "C" void left_out(const char* name) { fprintf(stderr, "left out: %%s\\n", name); abort(); }\n' >left_out.cc
  "${link[@]}" left_out.s left_out.cc
}
strip cuda_ggml_linear
echo "$out/cuda_ggml_linear: ${#missing[@]} functions left out"
