# Finds NCCL and the CUDA runtime, which LibTorch's wheels bring in folders beside it, a toolkit
# where it was installed.
#
# In:  DDPRUN_TORCH_DIR (optional), DDPRUN_PYTHON (optional).
# Out: DDPRUN_CUDA_INCLUDE, DDPRUN_CUDA_CRT_INCLUDE, DDPRUN_CUDART, DDPRUN_NCCL_INCLUDE, DDPRUN_NCCL;
#      target ddprun::nccl where all five were found.

# ddprun_install_rpath(TARGET LIBRARIES...): the installed TARGET finds each of LIBRARIES (files)
# where it was found here. INSTALL_RPATH_USE_LINK_PATH alone leaves out what lies below the source
# folder, as a .venv there does.
function(ddprun_install_rpath target)
  set(folders "")
  foreach(library IN LISTS ARGN)
    get_filename_component(folder "${library}" DIRECTORY)
    if(NOT folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
      list(APPEND folders "${folder}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES folders)
  set_target_properties(${target} PROPERTIES
    INSTALL_RPATH "${folders}" INSTALL_RPATH_USE_LINK_PATH TRUE)
endfunction()

set(python_packages "")
find_program(DDPRUN_ACTIVE_PYTHON python3)
if(DDPRUN_ACTIVE_PYTHON)
  execute_process(
    COMMAND ${DDPRUN_ACTIVE_PYTHON} -c "import sysconfig; print(sysconfig.get_path('purelib'))"
    OUTPUT_VARIABLE python_packages OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(nvidia_folders "")
foreach(place IN ITEMS "${python_packages}" "${DDPRUN_TORCH_DIR}/.."
    "${DDPRUN_PYTHON}/../../lib/python3*/site-packages"
    "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages")
  file(GLOB found "${place}/nvidia")
  list(APPEND nvidia_folders ${found})
endforeach()
set(cuda_folders "")
set(nccl_folders "")
set(crt_folders "")
foreach(folder IN LISTS nvidia_folders)
  list(APPEND crt_folders "${folder}/../triton/backends/nvidia")
  file(GLOB found "${folder}/cu[0-9]*" "${folder}/cuda_runtime")
  list(APPEND cuda_folders ${found})
  list(APPEND nccl_folders "${folder}/nccl")
endforeach()
find_path(DDPRUN_CUDA_INCLUDE cuda_runtime_api.h
  HINTS ${cuda_folders} ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES include)
# What cuda_runtime.h includes: a part of a toolkit, a wheel of its own (nvidia-cuda-crt), or what
# PyTorch's compiler brings for itself.
find_path(DDPRUN_CUDA_CRT_INCLUDE crt/host_config.h
  HINTS ${DDPRUN_CUDA_INCLUDE} ${cuda_folders} ENV CUDA_HOME /usr/local/cuda ${crt_folders} PATH_SUFFIXES include)
find_library(DDPRUN_CUDART NAMES cudart libcudart.so.13 libcudart.so.12
  HINTS ${cuda_folders} ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES lib lib64)
find_path(DDPRUN_NCCL_INCLUDE nccl.h
  HINTS ${nccl_folders} ENV NCCL_HOME ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES include)
find_library(DDPRUN_NCCL NAMES nccl libnccl.so.2
  HINTS ${nccl_folders} ENV NCCL_HOME ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES lib lib64)
mark_as_advanced(DDPRUN_ACTIVE_PYTHON DDPRUN_CUDA_INCLUDE DDPRUN_CUDA_CRT_INCLUDE DDPRUN_CUDART DDPRUN_NCCL_INCLUDE DDPRUN_NCCL)
if(DDPRUN_CUDA_INCLUDE AND DDPRUN_CUDA_CRT_INCLUDE AND DDPRUN_CUDART AND DDPRUN_NCCL_INCLUDE AND DDPRUN_NCCL
    AND NOT TARGET ddprun::nccl)
  add_library(ddprun::nccl INTERFACE IMPORTED GLOBAL)
  set_target_properties(ddprun::nccl PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES
    "${DDPRUN_CUDA_INCLUDE};${DDPRUN_NCCL_INCLUDE};${DDPRUN_CUDA_CRT_INCLUDE}"
    INTERFACE_LINK_LIBRARIES "${DDPRUN_NCCL};${DDPRUN_CUDART}")
endif()
