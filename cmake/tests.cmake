# Tests: everything that `make test` runs.
include(GoogleTest)
find_package(GTest 1.12 REQUIRED)
find_package(rapidcheck REQUIRED)
find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)

set(test_timeout 600)
if(ISOFLASH_SANITIZE)
  set(test_timeout 2400)
endif()

# A GoogleTest program and its ctest entries: one per test, named <program>.<suite>.<test>.
function(isoflash_test_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  if(NOT arg_SOURCES)
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE tests)
  target_link_libraries(${name} PRIVATE ${arg_LIBS} rapidcheck rapidcheck_gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE ISOFLASH_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${name} TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES
                       PROPERTIES TIMEOUT ${test_timeout})
  add_dependencies(unit_tests ${name})
endfunction()

add_custom_target(unit_tests)

# Unit tests beside the code: one program per folder.
foreach(folder base core)
  file(GLOB sources CONFIGURE_DEPENDS src/${folder}/*_test.cpp)
  isoflash_test_program(${folder}_tests SOURCES ${sources} LIBS isoflash_headers)
endforeach()
foreach(folder errors validate block_lists plan backend cpu api)
  file(GLOB sources CONFIGURE_DEPENDS src/${folder}/*_test.cpp)
  isoflash_test_program(${folder}_tests SOURCES ${sources} LIBS isoflash_objects)
endforeach()
file(GLOB sources CONFIGURE_DEPENDS tests/known_faults/*.cpp)
isoflash_test_program(known_faults_tests SOURCES ${sources} LIBS isoflash_objects)
# One thread runs all fibers: nothing for ThreadSanitizer, which cannot follow them.
if(NOT ISOFLASH_SANITIZE MATCHES "thread")
  file(GLOB sources CONFIGURE_DEPENDS tests/emulator/*.cpp)
  isoflash_test_program(emulator_tests SOURCES ${sources} LIBS isoflash_emulator)
endif()
if(ISOFLASH_BUILD_TOOLS)
  file(GLOB sources CONFIGURE_DEPENDS tools/isoflash/*_test.cpp)
  isoflash_test_program(tools_tests SOURCES ${sources} LIBS isoflash_tool)
  file(GLOB sources CONFIGURE_DEPENDS tests/conformance/*_test.cpp)
  isoflash_test_program(conformance_tests SOURCES ${sources} LIBS isoflash_conformance isoflash_objects)
endif()

# The project itself: label "project" (not repeated under sanitizers).
function(isoflash_project_test name)
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS project TIMEOUT 300)
endfunction()

isoflash_project_test(architecture ${Python3_EXECUTABLE} tests/architecture/check.py
                      --error-docs $<TARGET_FILE:isoflash_error_docs>)
isoflash_project_test(architecture.check_can_fail ${Python3_EXECUTABLE} tests/architecture/check_test.py)
if(ISOFLASH_BUILD_TOOLS)
  isoflash_project_test(consumer tests/consumer/run.sh ${PROJECT_BINARY_DIR})
  isoflash_project_test(cli_streams ${Python3_EXECUTABLE} tests/cli/streams_test.py $<TARGET_FILE:isoflash_cli>)
  isoflash_project_test(cli_forms ${Python3_EXECUTABLE} tests/cli/forms_test.py $<TARGET_FILE:isoflash_cli>)
endif()

# The examples: each program links the shared library, is run and must exit with 0; README.md shows them as they are.
file(GLOB sources CONFIGURE_DEPENDS examples/*.c examples/*.cpp)
foreach(source IN LISTS sources)
  get_filename_component(file ${source} NAME)
  string(REPLACE . _ target example_${file})
  add_executable(${target} ${source})
  set_target_properties(${target} PROPERTIES C_STANDARD 11)  # aligned_alloc; the header itself is C99
  target_link_libraries(${target} PRIVATE isoflash m)
  add_test(NAME example.${file} COMMAND ${target})
  set_tests_properties(example.${file} PROPERTIES TIMEOUT 120)
endforeach()
if(ISOFLASH_BUILD_TOOLS)
  file(GLOB sources CONFIGURE_DEPENDS examples/*.sh)
  foreach(source IN LISTS sources)
    get_filename_component(file ${source} NAME)
    add_test(NAME example.${file} COMMAND sh ${source})
    set_tests_properties(example.${file} PROPERTIES TIMEOUT 300
                         ENVIRONMENT_MODIFICATION "PATH=path_list_prepend:$<TARGET_FILE_DIR:isoflash_cli>")
  endforeach()
endif()

# The examples of the error pages as one C program: the wrong ones must raise their error, the right ones succeed.
add_executable(isoflash_error_examples src/errors/error_examples_main.cpp $<TARGET_OBJECTS:isoflash_errors>)
target_link_libraries(isoflash_error_examples PRIVATE isoflash_headers)
add_custom_command(OUTPUT error_examples.c COMMAND isoflash_error_examples > error_examples.c VERBATIM)
add_executable(error_examples ${PROJECT_BINARY_DIR}/error_examples.c)
set_target_properties(error_examples PROPERTIES C_STANDARD 11)
target_link_libraries(error_examples PRIVATE isoflash)
add_test(NAME errors.examples COMMAND error_examples)
set_tests_properties(errors.examples PROPERTIES TIMEOUT 120)

include(cmake/gpu_tests.cmake)

# Every instruction of src/instr as machine code of the chip, where there is a compiler for it.
if(ISOFLASH_NVCC_FOUND)
  isoflash_project_test(instr.ptx_compiles ${ISOFLASH_NVCC_FOUND} -arch=sm_90a -std=c++20 -Isrc -DISO_TARGET=device
                        -Werror all-warnings -cubin -o ${PROJECT_BINARY_DIR}/ptx_compiles.cubin tests/emulator/ptx_compiles.cu)
endif()

isoflash_project_test(readme ${Python3_EXECUTABLE} tests/examples/readme_test.py)
isoflash_project_test(known_faults_page ${Python3_EXECUTABLE} tests/known_faults/doc_test.py)

# Each fuzz target runs for a minute, where clang has libFuzzer; the fixture builds them in build/fuzz.
find_program(CLANGXX clang++)
if(CLANGXX AND NOT ISOFLASH_SANITIZE)
  file(WRITE ${PROJECT_BINARY_DIR}/libfuzzer.cpp "extern \"C\" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }")
  execute_process(COMMAND ${CLANGXX} -fsanitize=fuzzer,address libfuzzer.cpp -o libfuzzer
                  WORKING_DIRECTORY ${PROJECT_BINARY_DIR} RESULT_VARIABLE no_libfuzzer OUTPUT_QUIET ERROR_QUIET)
endif()
if(DEFINED no_libfuzzer AND no_libfuzzer EQUAL 0)
  isoflash_project_test(fuzz.build scripts/fuzz.sh --build-only)
  set_tests_properties(fuzz.build PROPERTIES FIXTURES_SETUP fuzzers TIMEOUT 900)
  file(GLOB sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.cpp)
  foreach(source IN LISTS sources)
    get_filename_component(target ${source} NAME_WE)
    string(REPLACE fuzz_ fuzz. name ${target})
    isoflash_project_test(${name} scripts/fuzz.sh --no-build --seconds 60 ${target})
    set_tests_properties(${name} PROPERTIES FIXTURES_REQUIRED fuzzers)
  endforeach()
else()
  message(STATUS "The fuzz tests are left out: no clang++ with libFuzzer (apt-get install clang libclang-rt-dev)")
endif()
