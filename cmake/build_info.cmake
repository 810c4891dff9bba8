# build_info.h: version, commit, compiler, for receipts. Written at configure time.
find_package(Git QUIET)
set(NIBBLE_COMMIT "unknown")
if(DEFINED ENV{NIBBLE_COMMIT})  # sources that travelled without their repository: scripts/gpu_check.sh
  set(NIBBLE_COMMIT "$ENV{NIBBLE_COMMIT}")
elseif(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${CMAKE_SOURCE_DIR} rev-parse --short=12 HEAD
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    execute_process(COMMAND ${GIT_EXECUTABLE} -C ${CMAKE_SOURCE_DIR} status --porcelain --untracked-files=no
                    OUTPUT_VARIABLE changes ERROR_QUIET)
    set(NIBBLE_COMMIT "${commit}")
    # A commit or a checkout configures again, so that receipts name the sources that they were built from.
    execute_process(COMMAND ${GIT_EXECUTABLE} -C ${CMAKE_SOURCE_DIR} rev-parse --git-path logs/HEAD
                    OUTPUT_VARIABLE head_log OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    get_filename_component(head_log "${head_log}" ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR})
    if(EXISTS "${head_log}")
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${head_log}")
    endif()
    if(changes)
      string(APPEND NIBBLE_COMMIT "+")
    endif()
  endif()
endif()
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
string(STRIP "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}}" NIBBLE_BUILD_FLAGS)
foreach(driver llama ggml)
  string(TOUPPER ${driver} name)
  file(READ ${CMAKE_SOURCE_DIR}/src/measure/${driver}_driver.py NIBBLE_${name}_DRIVER)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/measure/${driver}_driver.py)
endforeach()
configure_file(${CMAKE_SOURCE_DIR}/src/measure/python_drivers.h.in ${CMAKE_BINARY_DIR}/generated/measure/python_drivers.h @ONLY)
configure_file(${CMAKE_SOURCE_DIR}/src/base/build_info.h.in ${CMAKE_BINARY_DIR}/generated/base/build_info.h @ONLY)
target_include_directories(nibble_options INTERFACE ${CMAKE_BINARY_DIR}/generated)
