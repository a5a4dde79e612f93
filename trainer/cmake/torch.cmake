# Finds LibTorch without its own CMake package, which insists on a CUDA toolkit and pulls in
# everything. Works with a wheel in its small form (torch, nvidia-cuda-runtime, nvidia-cuda-cupti),
# a full wheel, a torch of conda or pip, and the LibTorch zip.
#
# In:  DDPRUN_TORCH_DIR, a folder with lib/libtorch_cpu.so and include/ (optional); what nccl.cmake
#      found.
# Out: DDPRUN_TORCH_FOUND, DDPRUN_TORCH_DIR; targets ddprun::torch (CPU) and, where the headers of
#      CUDA and NCCL are there as well, ddprun::torch_cuda; DDPRUN_PYTHON, the interpreter that has
#      this torch (for tests).
set(DDPRUN_TORCH_DIR "" CACHE PATH "LibTorch: a folder with lib/libtorch_cpu.so and include/")
set(DDPRUN_PYTHON "" CACHE FILEPATH "Python with torch and torchvision, for the tests that compare")

function(ddprun_find_torch)
  set(candidates "${DDPRUN_TORCH_DIR}")
  file(GLOB venv "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch")
  list(APPEND candidates ${venv})
  find_program(DDPRUN_ACTIVE_PYTHON python3)
  mark_as_advanced(DDPRUN_ACTIVE_PYTHON)
  if(DDPRUN_ACTIVE_PYTHON)
    # find_spec, not import: importing torch takes seconds.
    execute_process(
      COMMAND ${DDPRUN_ACTIVE_PYTHON} -c
        "import importlib.util as u; s = u.find_spec('torch'); print(list(s.submodule_search_locations)[0] if s else '')"
      OUTPUT_VARIABLE active OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    list(APPEND candidates "${active}")
  endif()
  foreach(dir IN LISTS candidates)
    if(dir AND EXISTS "${dir}/lib/libtorch_cpu.so" AND EXISTS "${dir}/include/torch")
      set(DDPRUN_TORCH_DIR "${dir}" CACHE PATH "" FORCE)
      set(DDPRUN_TORCH_FOUND TRUE PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(DDPRUN_TORCH_FOUND FALSE PARENT_SCOPE)
endfunction()

# The interpreter beside this torch: PREFIX/lib/python3.X/site-packages/torch -> PREFIX/bin/python3.
function(ddprun_find_python_of_torch)
  get_filename_component(prefix "${DDPRUN_TORCH_DIR}/../../../.." ABSOLUTE)
  if(NOT DDPRUN_PYTHON AND EXISTS "${prefix}/bin/python3")
    set(DDPRUN_PYTHON "${prefix}/bin/python3" CACHE FILEPATH "" FORCE)
  endif()
endfunction()

ddprun_find_torch()
if(NOT DDPRUN_TORCH_FOUND)
  return()
endif()
ddprun_find_python_of_torch()

set(torch_includes
  "${DDPRUN_TORCH_DIR}/include" "${DDPRUN_TORCH_DIR}/include/torch/csrc/api/include")
if(NOT EXISTS "${DDPRUN_TORCH_DIR}/include/gloo/context.h")
  # No LibTorch ships gloo's headers; ProcessGroupGloo.hpp needs a few names of them.
  list(APPEND torch_includes "${CMAKE_CURRENT_SOURCE_DIR}/gloo_headers")
endif()

# LibTorch ships headers of another fmt than the system's, which come first where its headers are
# used; header-only, both live in one program (their names carry the version).
add_library(ddprun::c10 SHARED IMPORTED GLOBAL)
set_target_properties(ddprun::c10 PROPERTIES IMPORTED_LOCATION "${DDPRUN_TORCH_DIR}/lib/libc10.so")
add_library(ddprun::torch SHARED IMPORTED GLOBAL)
set_target_properties(ddprun::torch PROPERTIES
  IMPORTED_LOCATION "${DDPRUN_TORCH_DIR}/lib/libtorch_cpu.so"
  INTERFACE_INCLUDE_DIRECTORIES "${torch_includes}"
  INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO;_GLIBCXX_USE_CXX11_ABI=1;FMT_HEADER_ONLY"
  INTERFACE_LINK_LIBRARIES "ddprun::c10;Threads::Threads")

if(TARGET ddprun::nccl AND EXISTS "${DDPRUN_TORCH_DIR}/lib/libtorch_cuda.so")
  add_library(ddprun::c10_cuda SHARED IMPORTED GLOBAL)
  set_target_properties(ddprun::c10_cuda PROPERTIES
    IMPORTED_LOCATION "${DDPRUN_TORCH_DIR}/lib/libc10_cuda.so")
  add_library(ddprun::torch_cuda SHARED IMPORTED GLOBAL)
  set_target_properties(ddprun::torch_cuda PROPERTIES
    IMPORTED_LOCATION "${DDPRUN_TORCH_DIR}/lib/libtorch_cuda.so"
    INTERFACE_COMPILE_DEFINITIONS "USE_C10D_NCCL;USE_CUDA"
    INTERFACE_LINK_LIBRARIES "ddprun::torch;ddprun::c10_cuda;ddprun::nccl")
endif()
