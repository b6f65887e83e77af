# lerobot_room(<room> DEPS <rooms and libraries>)
#   One static library per folder of src/lerobot, and one test program per folder of tests.
#   tests/includes_test.py checks that a room includes only rooms above it in docs/architecture.md.
function(lerobot_room room)
  cmake_parse_arguments(arg "" "" "DEPS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${room}/*.cpp)
  if(sources)
    add_library(lerobot_${room} STATIC ${sources})
    target_include_directories(lerobot_${room} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(lerobot_${room} PUBLIC ${arg_DEPS})
  else()
    add_library(lerobot_${room} INTERFACE)
    target_include_directories(lerobot_${room} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(lerobot_${room} INTERFACE ${arg_DEPS})
  endif()
endfunction()

function(lerobot_room_tests room)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${room}/*_test.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(lerobot_${room}_tests ${sources})
  target_link_libraries(lerobot_${room}_tests PRIVATE lerobot_${room} GTest::gmock GTest::gtest_main ${ARGN})
  target_include_directories(lerobot_${room}_tests PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(lerobot_${room}_tests PRIVATE
    LEROBOT_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
    LEROBOT_PROGRAM_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  # Whole runs use torch's own threads: side by side they only wait for one another.
  set(torch_threads "")
  if(room STREQUAL train)
    set(torch_threads PROCESSORS 2)
  endif()
  gtest_discover_tests(lerobot_${room}_tests TEST_PREFIX ${room}. DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT 300 ${torch_threads})
endfunction()

# lerobot_embed(<target> <folder> <file>...)
#   Text files that a program carries in it: page.css of <folder> is lerobot::embedded::page_css in "embedded/page.css.h".
function(lerobot_embed target folder)
  set(include_folder ${CMAKE_CURRENT_BINARY_DIR}/embed_${target})
  foreach(file ${ARGN})
    set(source ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/${file})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(READ ${source} content)
    string(MAKE_C_IDENTIFIER ${file} name)
    set(header ${include_folder}/embedded/${file}.h)
    file(WRITE ${header}.new "#pragma once\n#include <string_view>\nnamespace lerobot::embedded {\n"
      "inline constexpr std::string_view ${name} = R\"embedded(${content})embedded\";\n}\n")
    file(COPY_FILE ${header}.new ${header} ONLY_IF_DIFFERENT)
  endforeach()
  target_include_directories(${target} PRIVATE ${include_folder})
endfunction()
