# Compiler flags of the whole build. Nothing here may change arithmetic: contraction is off everywhere, fast-math nowhere.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(nibble_options INTERFACE)
target_include_directories(nibble_options INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_compile_options(nibble_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
  -Wall -Wextra -Wshadow $<$<BOOL:${NIBBLE_WERROR}>:-Werror> -ffp-contract=off -fno-fast-math>)
if(NIBBLE_PERTURB_ROUNDING)
  target_compile_definitions(nibble_options INTERFACE NIBBLE_PERTURB_ROUNDING=1)
endif()
if(NIBBLE_SANITIZE)
  add_compile_options(-fsanitize=${NIBBLE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${NIBBLE_SANITIZE})
endif()
if(NIBBLE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)  # coverage of the libraries, without which a fuzzer sees only its entry
endif()

find_program(NIBBLE_CCACHE ccache)
if(NIBBLE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${NIBBLE_CCACHE})
endif()
