# The GPU kernels: one cubin per line of src/instances/*.inc, embedded in the library (docs/kernels.md).
#
#   line of an .inc file -> stub (src/instances/stub.cu.in) -> cubin (cmake/compile_cubin.cmake) -> .incbin -> library
#
# Without a CUDA compiler the table of cubins is empty and everything else is as usual.
# Gives the sources isoflash_cubin_sources for the library, and the target `kernels`, which prints what each kernel uses.
set(ISOFLASH_CUBINS AUTO CACHE STRING "GPU kernels: ON (nvcc is required), OFF, or AUTO (built where nvcc is found)")
set_property(CACHE ISOFLASH_CUBINS PROPERTY STRINGS AUTO ON OFF)
set(ISOFLASH_CUBIN_SECONDS 120 CACHE STRING "A kernel that takes longer to compile is an error (wall clock)")

# Each architecture: nvcc's target and the files of its kernels.
set(cubin_architectures sm90 sm100)
set(cubin_target_sm90 sm_90a)
set(cubin_target_sm100 sm_100f)
set(cubin_files_sm90 common sm90)
set(cubin_files_sm100 common sm100)

set(ISOFLASH_NVCC_FOUND "")
set(ISOFLASH_NVCC_VERSION "")
set(no_nvcc "configured with ISOFLASH_CUBINS=OFF")
if(NOT ISOFLASH_CUBINS STREQUAL OFF)
  include(cmake/find_nvcc.cmake)
  if(ISOFLASH_NVCC_FOUND)
    message(STATUS "GPU kernels: nvcc ${ISOFLASH_NVCC_VERSION} (${ISOFLASH_NVCC_FOUND})")
  else()
    if(ISOFLASH_CUBINS STREQUAL ON)
      message(FATAL_ERROR "GPU kernels: ${no_nvcc}")
    endif()
    message(STATUS "GPU kernels are left out: ${no_nvcc}")
  endif()
endif()

set(cubin_folder ${PROJECT_BINARY_DIR}/cubins)
set(cubin_declarations "")
set(cubin_entries "")
set(cubin_incbins "")
set(cubin_outputs "")
set(cubin_reports "")

# The cubin of line `number` (text `line`) of src/instances/<file>.inc for one architecture.
function(isoflash_cubin architecture file number line)
  set(name "([a-z0-9_]+)")
  set(count "([0-9]+)")
  if(NOT line MATCHES "^ISO_KERNEL\\(${name}, *${name}, *${name}, *\\(([^)]*)\\), *${count}, *${count}, *${count}\\)$")
    message(FATAL_ERROR "src/instances/${file}.inc:${number}: expected ISO_KERNEL(folder, kernel, variant, "
                        "(config arguments), threads, CTAs per SM, shared bytes), got: ${line}")
  endif()
  set(folder ${CMAKE_MATCH_1})
  set(kernel ${CMAKE_MATCH_2})
  set(variant ${CMAKE_MATCH_3})
  set(config ${CMAKE_MATCH_4})
  set(threads ${CMAKE_MATCH_5})
  set(ctas ${CMAKE_MATCH_6})
  set(shared_bytes ${CMAKE_MATCH_7})
  set(symbol isoflash_${kernel}_${architecture}_${variant})
  set(stub ${cubin_folder}/${symbol}.cu)
  set(cubin ${cubin_folder}/${symbol}.cubin)
  configure_file(src/instances/stub.cu.in ${stub} @ONLY)
  add_custom_command(
    OUTPUT ${cubin} ${cubin_folder}/${symbol}.report
    COMMAND ${CMAKE_COMMAND} -D NVCC=${ISOFLASH_NVCC_FOUND} -D TARGET=${cubin_target_${architecture}} -D STUB=${stub}
            -D CUBIN=${cubin} -D INCLUDE=${PROJECT_SOURCE_DIR}/src -D SECONDS=${ISOFLASH_CUBIN_SECONDS}
            -D SHARED_BYTES=${shared_bytes} -P ${PROJECT_SOURCE_DIR}/cmake/compile_cubin.cmake
    DEPENDS ${stub} ${PROJECT_SOURCE_DIR}/cmake/compile_cubin.cmake ${ISOFLASH_NVCC_FOUND}
    DEPFILE ${cubin}.d
    COMMENT "Kernel ${symbol}" VERBATIM)
  string(APPEND cubin_declarations "extern \"C\" const iso::u8 ${symbol}_cubin[], ${symbol}_cubin_end[];\n")
  string(APPEND cubin_entries "    {\"${symbol}\", Architecture::${architecture}, ${symbol}_cubin, ${symbol}_cubin_end},\n")
  string(APPEND cubin_incbins "ISO_CUBIN ${symbol}_cubin, ${symbol}_cubin_end, \"${cubin}\"\n")
  foreach(variable cubin_declarations cubin_entries cubin_incbins)
    set(${variable} "${${variable}}" PARENT_SCOPE)
  endforeach()
  set(cubin_outputs ${cubin_outputs} ${cubin} PARENT_SCOPE)
  set(cubin_reports ${cubin_reports} ${cubin_folder}/${symbol}.report PARENT_SCOPE)
endfunction()

if(ISOFLASH_NVCC_FOUND)
  foreach(architecture IN LISTS cubin_architectures)
    foreach(file IN LISTS cubin_files_${architecture})
      set(inc src/instances/${file}.inc)
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${inc})
      file(STRINGS ${inc} lines)
      set(number 0)
      foreach(line IN LISTS lines)
        math(EXPR number "${number} + 1")
        if(line MATCHES "^ISO_KERNEL")
          isoflash_cubin(${architecture} ${file} ${number} "${line}")
        endif()
      endforeach()
    endforeach()
  endforeach()
endif()

configure_file(src/instances/cubins.cpp.in ${cubin_folder}/cubins.cpp @ONLY)
set(isoflash_cubin_sources ${cubin_folder}/cubins.cpp)
if(cubin_outputs)
  enable_language(ASM)
  configure_file(src/instances/cubins.S.in ${cubin_folder}/cubins.S @ONLY)
  set_source_files_properties(${cubin_folder}/cubins.S PROPERTIES OBJECT_DEPENDS "${cubin_outputs}")
  list(APPEND isoflash_cubin_sources ${cubin_folder}/cubins.S)
  file(WRITE ${cubin_folder}/reports.txt "${cubin_reports}")
  add_custom_target(kernels DEPENDS ${cubin_outputs} VERBATIM
                    COMMAND ${CMAKE_COMMAND} -D LIST=${cubin_folder}/reports.txt
                            -P ${PROJECT_SOURCE_DIR}/cmake/print_cubins.cmake)
else()
  add_custom_target(kernels VERBATIM
                    COMMAND ${CMAKE_COMMAND} -E echo "isoflash: ${no_nvcc}" COMMAND ${CMAKE_COMMAND} -E false)
endif()
