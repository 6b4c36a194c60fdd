include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(kvcodec_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kvcodec)

# While 0.x, a minor version may change the ABI.
set_target_properties(kvcodec PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
install(TARGETS kvcodec EXPORT kvcodecTargets FILE_SET HEADERS)
install(EXPORT kvcodecTargets NAMESPACE kvcodec:: DESTINATION ${kvcodec_package_dir})
# A component with its own targets: users of the library alone need no llama.cpp.
if(TARGET kvcodec_llama)
  set_target_properties(kvcodec_llama PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS kvcodec_llama EXPORT kvcodecLlamaTargets FILE_SET HEADERS)
  install(EXPORT kvcodecLlamaTargets NAMESPACE kvcodec:: DESTINATION ${kvcodec_package_dir})
endif()
if(TARGET kvcodec_cli)
  # libllama is usually in a prefix of its own.
  set_target_properties(kvcodec_cli PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS kvcodec_cli)
endif()

configure_package_config_file(cmake/kvcodecConfig.cmake.in kvcodecConfig.cmake
  INSTALL_DESTINATION ${kvcodec_package_dir})
write_basic_package_version_file(kvcodecConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/kvcodecConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/kvcodecConfigVersion.cmake DESTINATION ${kvcodec_package_dir})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
