# DistributedDataParallel as a library for other programs: after `cmake --install` their
# find_package(ddprun_ddp) gives ddprun::ddp, with <ddprun/ddp.h> and <ddprun/gloo_group.h>. One
# archive; the program links the LibTorch that it was built with.
include(CMakePackageConfigHelpers)

set(ddp_package_include ${CMAKE_CURRENT_BINARY_DIR}/include)
foreach(header ddp power_sgd gloo_group collectives)
  set(path ${CMAKE_CURRENT_SOURCE_DIR}/${header}.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} text)
  string(REGEX REPLACE "#include \"trainer/([a-z_]+\\.h)\"" "#include \"ddprun/\\1\"" text "${text}")
  file(CONFIGURE OUTPUT ${ddp_package_include}/ddprun/${header}.h CONTENT "${text}" @ONLY)
  install(FILES ${ddp_package_include}/ddprun/${header}.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ddprun COMPONENT ddp)
endforeach()

add_library(ddprun_ddp_package STATIC
  "$<FILTER:$<TARGET_OBJECTS:ddprun_trainer>,INCLUDE,/(collectives|ddp|gloo_group|power_sgd)[.]cpp>")
set_target_properties(ddprun_ddp_package PROPERTIES
  LINKER_LANGUAGE CXX
  EXPORT_NAME ddp
  OUTPUT_NAME ddprun_ddp
  ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/package)
target_include_directories(ddprun_ddp_package INTERFACE
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(ddprun_ddp_package INTERFACE cxx_std_20)
target_link_libraries(ddprun_ddp_package INTERFACE $<INSTALL_INTERFACE:ddprun::libtorch>)

set(ddp_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ddprun_ddp)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/ddprun_ddpConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/ddprun_ddpConfig.cmake
  INSTALL_DESTINATION ${ddp_package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/ddprun_ddpConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(TARGETS ddprun_ddp_package EXPORT ddprun_ddpTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ddp)
install(EXPORT ddprun_ddpTargets NAMESPACE ddprun:: DESTINATION ${ddp_package_dir} COMPONENT ddp)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ddprun_ddpConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/ddprun_ddpConfigVersion.cmake
  DESTINATION ${ddp_package_dir} COMPONENT ddp)
