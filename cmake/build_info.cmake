# build_info.h: version, commit, compiler, for receipts. Written at configure time.
find_package(Git QUIET)
set(NIBBLE_COMMIT "unknown")
if(DEFINED ENV{NIBBLE_COMMIT})  # sources that travelled without their repository: scripts/gpu_check.sh
  set(NIBBLE_COMMIT "$ENV{NIBBLE_COMMIT}")
endif()
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${CMAKE_SOURCE_DIR} rev-parse --short=12 HEAD
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    execute_process(COMMAND ${GIT_EXECUTABLE} -C ${CMAKE_SOURCE_DIR} status --porcelain --untracked-files=no
                    OUTPUT_VARIABLE changes ERROR_QUIET)
    set(NIBBLE_COMMIT "${commit}")
    if(changes)
      string(APPEND NIBBLE_COMMIT "+")
    endif()
  endif()
endif()
configure_file(${CMAKE_SOURCE_DIR}/src/base/build_info.h.in ${CMAKE_BINARY_DIR}/generated/base/build_info.h @ONLY)
target_include_directories(nibble_options INTERFACE ${CMAKE_BINARY_DIR}/generated)
