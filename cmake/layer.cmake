# nibble_layer(NAME [DEPENDS targets...]): the static library nibble_NAME of src/NAME/*.cc, known as nibble::NAME.
# A layer of headers only becomes an interface library.
function(nibble_layer name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cc)
  if(name STREQUAL "text")
    file(GLOB jinja CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/text/jinja/*.cc)
    list(APPEND sources ${jinja})
  endif()
  if(name STREQUAL "kernels")
    file(GLOB backends CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/none/*.cc
         ${CMAKE_SOURCE_DIR}/src/kernels/reference/*.cc ${CMAKE_SOURCE_DIR}/src/kernels/cpu/*.cc)
    list(FILTER backends EXCLUDE REGEX "kernels_[a-z0-9_]+\\.cc$")  # cmake/isa.cmake adds those with their flags
    list(APPEND sources ${backends})
    # Measurements run through these loops for minutes; -O2 leaves them scalar.
    foreach(name_of_loops panel_gemm split_attention elementwise)
      set(loops ${CMAKE_SOURCE_DIR}/src/kernels/reference/${name_of_loops}.cc)
      set_source_files_properties(${loops} PROPERTIES COMPILE_OPTIONS -O3)
      # g++ on x86 compiles them for three instruction sets; sanitizers cannot see into the choice at start-up.
      if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT NIBBLE_SANITIZE)
        set_source_files_properties(${loops} PROPERTIES COMPILE_DEFINITIONS NIBBLE_HAVE_CLONES=1)
      endif()
    endforeach()
  endif()
  if(sources)
    add_library(nibble_${name} STATIC ${sources})
    target_link_libraries(nibble_${name} PUBLIC nibble_options ${ARG_DEPENDS})
  else()
    add_library(nibble_${name} INTERFACE)
    target_link_libraries(nibble_${name} INTERFACE nibble_options ${ARG_DEPENDS})
  endif()
  add_library(nibble::${name} ALIAS nibble_${name})
endfunction()
