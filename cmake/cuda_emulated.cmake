# For tests only: the CUDA backend compiled as host C++ against tests/cuda_emulation, so that its kernels run, and are
# compared with the oracle, on a machine without a GPU. clang++: g++ puts no variable of a template into a section.
if(NIBBLE_CUDA)
  message(FATAL_ERROR "NIBBLE_CUDA and NIBBLE_CUDA_EMULATED exclude each other")
endif()
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "NIBBLE_CUDA_EMULATED needs clang++")
endif()
find_package(Boost REQUIRED COMPONENTS context)

function(nibble_cuda_emulated_sources target)
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu)
  file(GLOB emulation CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cuda_emulation/*.cc)
  # nvcc lets memory be read as another type and integers wrap. It knows nothing of host warnings.
  set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX
    COMPILE_OPTIONS "-fno-strict-aliasing;-fwrapv;-Wno-shadow;-Wno-bitwise-instead-of-logical;-Wno-missing-field-initializers;-Wno-pass-failed")
  # Defined by nvcc for sm_90a, the only target of these files that has a kernel.
  set(of_sm90 ${kernels})
  list(FILTER of_sm90 INCLUDE REGEX "_sm90\\.cu$")
  set_source_files_properties(${of_sm90} PROPERTIES COMPILE_DEFINITIONS __CUDA_ARCH_FEAT_SM90_ALL)
  target_sources(${target} PRIVATE ${kernels} ${emulation})
  target_include_directories(${target} BEFORE PUBLIC ${CMAKE_SOURCE_DIR}/tests/cuda_emulation/include)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${target} PUBLIC Boost::context)
endfunction()
