# The CUDA backend: kernels for the GPUs that NIBBLE_CUDA_ARCHITECTURES names, host code beside them, the runtime linked
# statically, so that the program needs no more than a driver on the machine where it runs.
set(NIBBLE_CUDA_ARCHITECTURES "80;86;89;90a;100;120a" CACHE STRING
    "Compute capabilities to compile for; the last one is also kept as PTX, for GPUs to come")

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(NIBBLE_NVCC nvcc PATHS /usr/local/cuda/bin ENV CUDA_PATH PATH_SUFFIXES bin)
  if(NOT NIBBLE_NVCC)
    message(FATAL_ERROR "NIBBLE_CUDA is on and no nvcc was found: put it on PATH, or set CUDACXX")
  endif()
  set(CMAKE_CUDA_COMPILER ${NIBBLE_NVCC})
endif()
set(CMAKE_CUDA_ARCHITECTURES OFF)  # -gencode below: the shorthand cannot say sm_90a without a plain sm_90 pass
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc speaks C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_EXTENSIONS OFF)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
  message(FATAL_ERROR "nvcc ${CMAKE_CUDA_COMPILER_VERSION} is too old: 12.8 or newer")
endif()
find_package(CUDAToolkit REQUIRED)
if(NIBBLE_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${NIBBLE_CCACHE})
endif()

function(nibble_cuda_sources target)
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu)
  # Nothing contracts, and divisions, roots and subnormals are those of IEEE 754: the contract's arithmetic.
  set(flags --fmad=false -prec-div=true -prec-sqrt=true -ftz=false -Xcompiler=-Wall,-ffp-contract=off
      --expt-relaxed-constexpr -lineinfo)
  if(NIBBLE_WERROR)
    list(APPEND flags -Werror=all-warnings)
  endif()
  foreach(arch IN LISTS NIBBLE_CUDA_ARCHITECTURES)
    list(APPEND flags "SHELL:-gencode arch=compute_${arch},code=sm_${arch}")
  endforeach()
  list(GET NIBBLE_CUDA_ARCHITECTURES -1 newest)
  string(REPLACE "120a" "120" newest "${newest}")  # what needs sm_120a is refused on other GPUs
  if(NOT newest MATCHES "a$")
    list(APPEND flags "SHELL:-gencode arch=compute_${newest},code=compute_${newest}")
  endif()
  target_sources(${target} PRIVATE ${kernels})
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${flags}>")
  target_link_libraries(${target} PUBLIC CUDA::cudart_static)
endfunction()
