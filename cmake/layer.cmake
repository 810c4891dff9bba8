# nibble_layer(NAME [DEPENDS targets...]): the static library nibble_NAME of src/NAME/*.cc, known as nibble::NAME.
# A layer of headers only becomes an interface library.
function(nibble_layer name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cc)
  if(name STREQUAL "kernels")
    file(GLOB backends CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/none/*.cc
         ${CMAKE_SOURCE_DIR}/src/kernels/reference/*.cc ${CMAKE_SOURCE_DIR}/src/kernels/cpu/*.cc)
    list(FILTER backends EXCLUDE REGEX "kernels_[a-z0-9_]+\\.cc$")  # cmake/isa.cmake adds those with their flags
    list(APPEND sources ${backends})
    # Measurements run through these loops for minutes; -O2 leaves them scalar.
    foreach(loops panel_gemm split_attention elementwise)
      set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/reference/${loops}.cc PROPERTIES COMPILE_OPTIONS -O3)
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
