# The store's client as a library for other programs: after `cmake --install` their
# find_package(ddprun) gives ddprun::StoreClient, with <ddprun/store_client.h>. One archive holds
# all that it needs; its headers need the standard library and tl::expected only.
include(CMakePackageConfigHelpers)

set(package_include ${CMAKE_CURRENT_BINARY_DIR}/include)

# A header of ours under the name that others include it by.
function(ddprun_public_header source name)
  set(path ${PROJECT_SOURCE_DIR}/${source})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} text)
  string(REGEX REPLACE "#include \"proto/([a-z_]+\\.h)\"" "#include \"ddprun/\\1\"" text "${text}")
  file(CONFIGURE OUTPUT ${package_include}/ddprun/${name} CONTENT "${text}" @ONLY)
  install(FILES ${package_include}/ddprun/${name}
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ddprun COMPONENT store_client)
endfunction()

ddprun_public_header(rendezvous/client.h store_client.h)
ddprun_public_header(proto/result.h result.h)
ddprun_public_header(proto/error.h error.h)

add_library(ddprun_client_package STATIC
  $<TARGET_OBJECTS:ddprun_store_client>
  "$<FILTER:$<TARGET_OBJECTS:ddprun_proto>,INCLUDE,/(assert|error|fmt_impl|store_messages)[.]cpp>"
)
set_target_properties(ddprun_client_package PROPERTIES
  LINKER_LANGUAGE CXX
  EXPORT_NAME StoreClient
  OUTPUT_NAME ddprun_store_client
  ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/package)
target_include_directories(ddprun_client_package INTERFACE
  $<BUILD_INTERFACE:${package_include}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(ddprun_client_package INTERFACE cxx_std_20)
target_link_libraries(ddprun_client_package INTERFACE tl::expected Threads::Threads)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ddprun)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/ddprunConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(TARGETS ddprun_client_package EXPORT ddprunTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT store_client)
install(EXPORT ddprunTargets NAMESPACE ddprun:: DESTINATION ${package_dir} COMPONENT store_client)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/ddprunConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/ddprunConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT store_client)
