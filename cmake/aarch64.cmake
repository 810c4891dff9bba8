# Cross build for Arm on a Debian x86-64 machine; programs run under qemu-aarch64, so ctest works as on any machine.
# The libraries come from scripts/aarch64_sysroot.sh, which the environment variable NIBBLE_AARCH64_SYSROOT names.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

if(NOT EXISTS "$ENV{NIBBLE_AARCH64_SYSROOT}/complete")
  message(FATAL_ERROR "set NIBBLE_AARCH64_SYSROOT to the folder that scripts/aarch64_sysroot.sh prints")
endif()
set(CMAKE_FIND_ROOT_PATH $ENV{NIBBLE_AARCH64_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CXX_FLAGS_INIT "-isystem $ENV{NIBBLE_AARCH64_SYSROOT}/usr/include/aarch64-linux-gnu")  # opensslconf.h
set(ENV{PKG_CONFIG_SYSROOT_DIR} $ENV{NIBBLE_AARCH64_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} $ENV{NIBBLE_AARCH64_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig)

# The library path keeps ld.so from mixing in the libc of an arm64 Debian architecture, where one is installed: another
# version than its own, and the first std::thread hangs.
set(CMAKE_CROSSCOMPILING_EMULATOR
    qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=/usr/aarch64-linux-gnu/lib)
