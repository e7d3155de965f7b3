# Compiles one kernel stub to a cubin and writes <symbol>.report beside it: symbol, registers, spilled bytes, stack bytes,
# shared bytes, seconds, cubin bytes. A kernel fails that spills registers, whose wgmma instructions ptxas serialises or
# feeds from moved registers (warnings C75xx), or that takes too long.
#   cmake -D NVCC= -D TARGET=sm_90a -D STUB=x.cu -D CUBIN=x.cubin -D INCLUDE=src -D SECONDS= -D SHARED_BYTES=
#         -P compile_cubin.cmake
get_filename_component(symbol ${STUB} NAME_WE)
string(REGEX REPLACE "\\.cubin$" ".report" report ${CUBIN})
string(TIMESTAMP begin "%s%f" UTC)  # microseconds
execute_process(
  COMMAND ${NVCC} -arch=${TARGET} -std=c++20 -O3 -cubin -I ${INCLUDE} -D ISO_TARGET=device -Xptxas -v -MMD -MF ${CUBIN}.d
          -MT ${CUBIN} -o ${CUBIN} ${STUB}
  OUTPUT_VARIABLE log ERROR_VARIABLE log RESULT_VARIABLE result TIMEOUT ${SECONDS})
string(TIMESTAMP end "%s%f" UTC)
math(EXPR tenths "(${end} - ${begin} + 50000) / 100000")
string(REGEX REPLACE "(.)$" ".\\1" seconds ${tenths})
string(REGEX REPLACE "^\\." "0." seconds ${seconds})

# A cubin that fails must not look up to date to the next build.
function(fail reason)
  file(REMOVE ${CUBIN} ${report})
  message("${log}")
  message(FATAL_ERROR "kernel ${symbol} (${TARGET}): ${reason}")
endfunction()

if(result MATCHES "timeout")
  fail("not compiled after ${SECONDS} s (ISOFLASH_CUBIN_SECONDS); make the kernel smaller, or raise the limit")
elseif(NOT result EQUAL 0)
  fail("nvcc fails (${result}), see above")
endif()
if(log MATCHES "[(]C75[0-9][0-9][)][^\n]*")
  fail("ptxas slows down wgmma: ${CMAKE_MATCH_0}; keep accumulators out of other instructions while a wgmma is in flight")
endif()

set(spilled 0)
set(stack 0)
string(REGEX MATCHALL "[0-9]+ bytes stack frame, [0-9]+ bytes spill stores, [0-9]+ bytes spill loads" functions "${log}")
foreach(function IN LISTS functions)
  string(REGEX MATCHALL "[0-9]+" bytes "${function}")
  list(GET bytes 0 frame)
  list(GET bytes 1 stores)
  list(GET bytes 2 loads)
  math(EXPR stack "${stack} + ${frame}")
  math(EXPR spilled "${spilled} + ${stores} + ${loads}")
endforeach()
if(NOT functions OR NOT log MATCHES "Used ([0-9]+) registers")
  fail("ptxas -v says nothing about registers and spills; is this nvcc's ptxas?")
endif()
set(registers ${CMAKE_MATCH_1})
if(spilled GREATER 0)
  fail("${spilled} bytes of registers are spilled (${registers} registers); use fewer live values or fewer threads")
endif()

set(static_bytes 0)
if(log MATCHES "([0-9]+) bytes smem")
  set(static_bytes ${CMAKE_MATCH_1})
endif()
math(EXPR shared "${static_bytes} + ${SHARED_BYTES}")
file(SIZE ${CUBIN} size)
file(WRITE ${report} "${symbol};${registers};${spilled};${stack};${shared};${seconds};${size}")
message("${symbol}: ${registers} registers, ${spilled} spilled, stack ${stack}, shared ${shared}, ${seconds} s, "
        "${size} bytes")
