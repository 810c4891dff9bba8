# The only place that names an instruction set's flags. Each kernels_<isa>.cc is one object with its own flags; it
# includes no std header, so no inline function compiled for a wide ISA can be linked into the rest of the program.
macro(nibble_isa_flags)  # sets isas, flags_<isa>
  set(isas scalar)
  if(NIBBLE_SIMD)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      list(APPEND isas avx2 avxvnni avx512 amx)
    elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
      list(APPEND isas neon neondot neoni8mm)
    endif()
  endif()
  # No errno and no floating-point traps: neither changes a value, and both keep gcc from vectorizing selects and sqrt.
  set(common -O3 -fno-math-errno -fno-trapping-math)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND common -Wno-uninitialized -Wno-maybe-uninitialized)  # gcc 12 finds its own _mm512_undefined_epi32
  endif()
  if(NIBBLE_UNPINNED)
    list(APPEND common -ffp-contract=fast -fassociative-math -fno-signed-zeros -freciprocal-math)
  endif()
  set(flags_scalar ${common})
  set(flags_avx2 ${common} -mavx2 -mfma -mf16c)
  set(flags_avxvnni ${flags_avx2} -mavxvnni)
  set(flags_avx512 ${common} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c)
  set(flags_amx ${flags_avx512})  # its tile operations are assembly
  set(flags_neon ${common})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Scheduled before registers are given out (which gcc does on Arm, not on x86), more sums are alive than there are
    # registers, and a third of what a record and one token take goes to and from the stack (docs/performance_cpu.md).
    list(APPEND flags_neon -fno-schedule-insns)
  endif()
  set(flags_neondot ${flags_neon} -march=armv8.2-a+dotprod)
  set(flags_neoni8mm ${flags_neon} -march=armv8.2-a+dotprod+i8mm)
endmacro()

function(nibble_isa_objects target)
  nibble_isa_flags()
  if(NIBBLE_UNPINNED)
    target_compile_definitions(${target} PRIVATE NIBBLE_UNPINNED=1)
  endif()
  foreach(isa IN LISTS isas)
    set(source ${CMAKE_SOURCE_DIR}/src/kernels/cpu/kernels_${isa}.cc)
    target_sources(${target} PRIVATE ${source})
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${flags_${isa}}")
  endforeach()
  if(NIBBLE_SIMD)
    target_compile_definitions(${target} PRIVATE NIBBLE_HAVE_SIMD=1)  # all of this architecture, or none
  endif()
endfunction()

# Tests compile the gemm on emulated tiles for vocabularies that machines without AMX have. Most of the other kernels are
# included for nothing. Takes objects off the list that this build cannot have.
function(nibble_emulated_amx_objects list_of_sources)
  nibble_isa_flags()
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/kernels)
  foreach(isa scalar avx512)
    set_source_files_properties(${folder}/emulated_amx_${isa}.cc
                                PROPERTIES COMPILE_OPTIONS "${flags_${isa}};-Wno-unused-function")
  endforeach()
  if("avx512" IN_LIST isas)
    set_source_files_properties(${folder}/amx_test.cc PROPERTIES COMPILE_DEFINITIONS NIBBLE_HAVE_EMULATED_AVX512=1)
  else()
    list(FILTER ${list_of_sources} EXCLUDE REGEX "emulated_amx_avx512\\.cc$")
    set(${list_of_sources} ${${list_of_sources}} PARENT_SCOPE)
  endif()
endfunction()
