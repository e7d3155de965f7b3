# Cross-compiles the library for aarch64. Its dependencies are header-only and the same on every architecture, so the ones of
# this machine serve; they are linked into a folder of their own, because the rest of /usr/include is for this machine.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(headers ${CMAKE_BINARY_DIR}/host-headers)
foreach(library hwy tl fmt nlohmann)
  file(MAKE_DIRECTORY ${headers})
  file(CREATE_LINK /usr/include/${library} ${headers}/${library} SYMBOLIC)
endforeach()
set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES ${headers})
set(HIGHWAY_INCLUDE_DIR ${headers} CACHE PATH "")
set(TL_EXPECTED_INCLUDE_DIR ${headers} CACHE PATH "")

# The packages' CMake files are found with this machine's; /usr/include in them must not reach the cross compiler.
list(APPEND CMAKE_PREFIX_PATH /usr/lib/${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu/cmake)
set(CMAKE_PROJECT_INCLUDE ${CMAKE_CURRENT_LIST_DIR}/aarch64-implicit-includes.cmake)
