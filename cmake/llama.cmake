# Finds libllama (target `llama`) for KVCODEC_WITH_LLAMA=ON. 0.5 is the first release whose state
# layout and API the engine was written against; open() checks the layout once more at run time.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)  # tests and tools link it too
find_package(llama 0.5 CONFIG QUIET)
if(NOT llama_FOUND)
  set(kvcodec_llama_found "no llama-config.cmake was found")
  if(llama_CONSIDERED_CONFIGS)
    set(kvcodec_llama_found "found ${llama_CONSIDERED_CONFIGS}, version ${llama_CONSIDERED_VERSIONS}")
  endif()
  message(FATAL_ERROR
    "KVCODEC_WITH_LLAMA=ON needs libllama 0.5 or later of major version 0 with its CMake package: "
    "${kvcodec_llama_found}. Build llama.cpp, for example the copy in PyPI's llama-cpp-python "
    "source package (vendor/llama.cpp), install it to a prefix, and pass "
    "-DCMAKE_PREFIX_PATH=<prefix>, or turn KVCODEC_WITH_LLAMA off.")
endif()
