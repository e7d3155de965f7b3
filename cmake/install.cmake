# cmake --install: the libraries, the headers, the command, find_package(isoflash), isoflash.pc, the licence.
install(TARGETS isoflash isoflash_objects EXPORT isoflash-targets)
if(ISOFLASH_BUILD_TOOLS)
  install(TARGETS isoflash_cli)
endif()
install(DIRECTORY include/isoflash DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/isoflash)
install(EXPORT isoflash-targets NAMESPACE isoflash:: DESTINATION ${package_dir})
configure_package_config_file(cmake/isoflash-config.cmake.in isoflash-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(isoflash-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/isoflash-config.cmake ${PROJECT_BINARY_DIR}/isoflash-config-version.cmake
        DESTINATION ${package_dir})

file(RELATIVE_PATH prefix_from_pkgconfig /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/isoflash.pc.in isoflash.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/isoflash.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
