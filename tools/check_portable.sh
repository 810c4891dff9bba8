#!/usr/bin/env bash
# Compiles every header of src/format under each compiler that this machine has: g++, clang++, nvcc for sm_90, and clang's
# OpenCL C++, which stands in for Metal (scalars by value, no std, address spaces). Says what was not run.
# usage: tools/check_portable.sh        exit status 1 if a compiler refuses a header
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# One unit that includes everything and calls every function, so that bodies are compiled and not only parsed.
body='
  out += e2m1_decode(e2m1_encode(x)) + float(e2m1_x2(3)) + float(e4m3_x512(77)) + e4m3_decode(e4m3_encode(x));
  out += nvfp4_dequantize(nvfp4_code(0x62, 1), 0x38, x) + f16_to_f32(f32_to_f16(x)) + bf16_to_f32(f32_to_bf16(x));
  out += float(rne(x, 3.0f)) + exp2_poly(x) + pow2(3) + exp2_scaled(x, kLog2E) + sigmoid(x) + silu(x) + gelu_tanh(x);
  out += sqrt_rn(abs_value(x)) + fma_rn(x, x, x) + div_rn(x, kE4m3Max) + float(kNvfp4Group) + float(is_nonfinite(x));'
includes=$(cd src && for h in format/*.h; do echo "#include \"$h\""; done)
{ echo "$includes"; echo "float probe(float x) { using namespace nibble::format; float out = 0; $body return out; }"; } > "$work/host.cc"
{ echo "$includes"; echo "__global__ void probe(float* p) { using namespace nibble::format; float x = p[0], out = 0; $body p[0] = out; }"; } > "$work/device.cu"
{ echo "$includes"; echo "kernel void probe(global float* p) { using namespace nibble::format; float x = p[0], out = 0; $body p[0] = out; }"; } > "$work/shader.clcpp"

check() {  # check NAME COMPILER ARGS...
  local name=$1 compiler=$2
  shift
  if ! command -v "$compiler" > /dev/null; then
    echo "not run  $name: no $compiler on this machine"
  elif "$@" > "$work/log" 2>&1; then
    echo "ok       $name: $("$compiler" --version | grep -m1 -i -e version -e release -e g++)"
  else
    echo "FAILED   $name"
    cat "$work/log"
    failed=1
  fi
}

strict=(-std=c++20 -Wall -Wextra -Werror -ffp-contract=off -Isrc)
check "C++ (g++)" g++ "${strict[@]}" -c "$work/host.cc" -o "$work/gcc.o"
check "C++ (clang++)" clang++ "${strict[@]}" -c "$work/host.cc" -o "$work/clang.o"
check "CUDA sm_90" nvcc -std=c++20 -gencode arch=compute_90,code=sm_90 --fmad=false -Isrc -c "$work/device.cu" -o "$work/nvcc.o"
check "OpenCL C++, for Metal" clang -x cl -cl-std=clc++2021 -Xclang -finclude-default-header -target spir64 \
  -ffp-contract=off -Isrc -S -emit-llvm "$work/shader.clcpp" -o "$work/shader.ll"
exit $failed
