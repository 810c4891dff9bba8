// NIBBLE_VECTORIZED: compiles a function several times and picks at start-up the version for this machine, where the
// build says that the compiler can (cmake/layer.cmake). The loops of this folder are plain C++ and the compiler is not
// allowed to contract or reorder floats, so every version has the same bits; only time differs.
#pragma once

#ifdef NIBBLE_HAVE_CLONES
#define NIBBLE_VECTORIZED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define NIBBLE_VECTORIZED
#endif
#define NIBBLE_INLINE inline __attribute__((always_inline))
