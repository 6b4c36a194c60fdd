# Kernels are compiled to fatbins, embedded, and loaded by the driver: no CUDA library is linked.
find_program(KVCODEC_NVCC nvcc HINTS ${KVCODEC_CUDA_ROOT}/bin /usr/local/cuda/bin)
set(kvcodec_gpu OFF)
if(KVCODEC_FFNVCODEC_FOUND)
  set(kvcodec_gpu ON)
endif()
if(kvcodec_gpu AND NOT KVCODEC_NVCC)
  message(STATUS "nvcc not found: no CUDA kernels")
endif()

# Kernels of NAME_cuda.cu for all GPUs that are supported, as the bytes kvcodec_NAME_fatbin
# (src/base/cuda_images.h); nothing without nvcc.
function(kvcodec_cuda_image name)
  if(NOT kvcodec_gpu OR NOT KVCODEC_NVCC)
    return()
  endif()
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/${name}_cuda.cu)
  set(fatbin ${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin)
  set(targets "")
  foreach(arch 80 86 89 90)
    list(APPEND targets -gencode arch=compute_${arch},code=sm_${arch})
  endforeach()
  # Older and newer GPUs get theirs from the driver's compiler.
  list(APPEND targets -gencode arch=compute_75,code=compute_75
    -gencode arch=compute_90,code=compute_90)
  add_custom_command(OUTPUT ${fatbin}
    COMMAND ${KVCODEC_NVCC} -std=c++20 -O3 --fmad=false --expt-relaxed-constexpr
      -Werror all-warnings -fatbin ${targets} -I${PROJECT_SOURCE_DIR}/src ${source} -o ${fatbin}
    DEPENDS ${source} ${ARGN} VERBATIM)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/cuda_image.S.in ${name}_image.S @ONLY)
  add_custom_target(kvcodec_${name}_fatbin DEPENDS ${fatbin})
  add_dependencies(kvcodec kvcodec_${name}_fatbin)
  set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/${name}_image.S
    TARGET_DIRECTORY kvcodec PROPERTIES OBJECT_DEPENDS ${fatbin})
  target_sources(kvcodec PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${name}_image.S)
endfunction()
