# find_package(ddprun): target ddprun::StoreClient. tl::expected is Debian's libexpected-dev.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(tl-expected)
include("${CMAKE_CURRENT_LIST_DIR}/ddprunTargets.cmake")
