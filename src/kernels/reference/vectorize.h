// NIBBLE_VECTORIZED: compiles a function several times and picks at start-up the version for this machine. The loops of
// this folder are plain C++ and the compiler is not allowed to contract or reorder floats, so every version has the
// same bits; only time differs. Sanitizers cannot see into the picking, and other compilers lack it: one version there.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define NIBBLE_VECTORIZED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define NIBBLE_VECTORIZED
#endif
#define NIBBLE_INLINE inline __attribute__((always_inline))
