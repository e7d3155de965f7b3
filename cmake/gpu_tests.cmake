# Tests of the GPU side. Without a GPU: src/cuda with a driver that only keeps books (tests/fake_driver), the list of
# kernels, the gates of their compilation. With one: gpu_tests and bench_common_kernels, which tests/gpu/run.sh runs, also
# on a machine where nothing was built.
foreach(name fake_driver old_driver)
  add_library(${name} MODULE tests/fake_driver/${name}.cpp)
  target_include_directories(${name} PRIVATE src tests)
endforeach()

file(GLOB sources CONFIGURE_DEPENDS src/cuda/*_test.cpp src/instances/*_test.cpp)
get_filename_component(cuda_bin "${ISOFLASH_NVCC_FOUND}" DIRECTORY)
find_path(ISOFLASH_CUDA_H cuda.h HINTS ${cuda_bin}/../include /usr/local/cuda/include NO_DEFAULT_PATH)
if(ISOFLASH_CUDA_H)
  set_source_files_properties(src/cuda/driver_abi_test.cpp PROPERTIES COMPILE_OPTIONS "-isystem;${ISOFLASH_CUDA_H}")
else()
  list(FILTER sources EXCLUDE REGEX "/driver_abi_test\\.cpp$")
endif()
isoflash_test_program(cuda_tests SOURCES ${sources} LIBS isoflash_objects)
target_compile_definitions(cuda_tests PRIVATE ISO_FAKE_DRIVER="$<TARGET_FILE:fake_driver>"
                           ISO_OLD_DRIVER="$<TARGET_FILE:old_driver>")
add_dependencies(cuda_tests fake_driver old_driver)

isoflash_project_test(cubin_gates ${Python3_EXECUTABLE} tests/cubins/gates_test.py)

add_library(common_kernel_checks STATIC tests/common_kernels/checks.cpp)
target_include_directories(common_kernel_checks PUBLIC tests)
target_link_libraries(common_kernel_checks PUBLIC isoflash_objects)

if(NOT ISOFLASH_SANITIZE MATCHES "thread")  # it cannot follow the emulator's fibers
  isoflash_test_program(common_kernels_tests LIBS isoflash_emulator common_kernel_checks
                        SOURCES tests/common_kernels/emulator_test.cpp tests/common_kernels/emulator_machine.cpp)
  target_compile_options(common_kernels_tests PRIVATE -Wno-unknown-pragmas)  # #pragma unroll
endif()

add_executable(gpu_tests tests/gpu/common_kernels_test.cpp tests/gpu/gpu.cpp tests/gpu/gpu_tests_main.cpp)
target_link_libraries(gpu_tests PRIVATE GTest::gtest)
add_executable(bench_common_kernels tests/gpu/bench_main.cpp tests/gpu/gpu.cpp)
foreach(program gpu_tests bench_common_kernels)
  target_link_libraries(${program} PRIVATE common_kernel_checks)
  if(NOT ISOFLASH_SANITIZE)
    target_link_options(${program} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  add_dependencies(unit_tests ${program})
endforeach()
add_test(NAME gpu COMMAND gpu_tests --gtest_brief=1)
set_tests_properties(gpu PROPERTIES SKIP_RETURN_CODE 77)
