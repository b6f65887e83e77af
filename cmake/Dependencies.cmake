# What the project stands on (docs/architecture.md, "What it stands on"). Every library becomes one
# imported target named deps::<library>, so that a room states exactly what it uses.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

function(lerobot_pkg target)
  string(REPLACE "::" "_" prefix ${target})
  pkg_check_modules(${prefix} REQUIRED IMPORTED_TARGET ${ARGN})
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_link_libraries(${target} INTERFACE PkgConfig::${prefix})
endfunction()

lerobot_pkg(deps::ffmpeg libavcodec libavutil libswscale)
lerobot_pkg(deps::sqlite sqlite3)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(Boost 1.81 REQUIRED)
find_package(CURL REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(ZLIB REQUIRED)

set(LEROBOT_DEPS ${PROJECT_SOURCE_DIR}/.deps)

function(lerobot_require_file path remedy)
  if(NOT EXISTS ${path})
    message(FATAL_ERROR "${path} is missing. ${remedy}")
  endif()
endfunction()

# --- libtorch: the PyPI wheel, or a torch that the user already has -------------------------------
if(LEROBOT_TORCH_DIR)
  set(torch_root ${LEROBOT_TORCH_DIR})
else()
  set(torch_root ${LEROBOT_DEPS}/site/torch)
endif()
lerobot_require_file(${torch_root}/include/ATen/ATen.h
  "Run scripts/setup, or set LEROBOT_TORCH_DIR to an installed torch package.")
# libtorch_cpu.so of the default wheel itself needs libcudart and libcupti.
cmake_path(GET torch_root PARENT_PATH torch_site)
set(nvidia_lib ${torch_site}/nvidia/cu13/lib)

# The wheel brings the headers of another fmt, without its library: ours must be found first.
find_path(fmt_include fmt/format.h PATHS /usr/include /usr/local/include NO_DEFAULT_PATH REQUIRED)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include_first)
file(CREATE_LINK ${fmt_include}/fmt ${CMAKE_BINARY_DIR}/include_first/fmt SYMBOLIC)

add_library(deps::torch INTERFACE IMPORTED GLOBAL)
target_include_directories(deps::torch SYSTEM INTERFACE
  ${CMAKE_BINARY_DIR}/include_first ${torch_root}/include ${torch_root}/include/torch/csrc/api/include)
target_compile_definitions(deps::torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
target_link_libraries(deps::torch INTERFACE
  ${torch_root}/lib/libtorch_cpu.so ${torch_root}/lib/libc10.so)
target_link_options(deps::torch INTERFACE
  -Wl,--allow-shlib-undefined -Wl,-rpath,${torch_root}/lib -Wl,-rpath,${nvidia_lib})

# NCCL and the CUDA runtime, for the few files that speak to them. libtorch_cuda.so registers its kernels when it is loaded, so it is
# needed although no symbol of it may be.
if(LEROBOT_CUDA)
  lerobot_require_file(${torch_root}/lib/libtorch_cuda.so "Run scripts/setup --cuda, or set LEROBOT_TORCH_DIR to a torch with CUDA.")
  find_path(cuda_include cuda_runtime_api.h PATHS ${torch_site}/nvidia/cu13/include /usr/local/cuda/include NO_DEFAULT_PATH REQUIRED)
  find_path(nccl_include nccl.h PATHS ${torch_site}/nvidia/nccl/include /usr/include /usr/local/cuda/include NO_DEFAULT_PATH REQUIRED)
  file(GLOB nvidia_libs LIST_DIRECTORIES true ${torch_site}/nvidia/*/lib)
  list(TRANSFORM nvidia_libs PREPEND -Wl,-rpath, OUTPUT_VARIABLE nvidia_rpaths)
  target_include_directories(deps::torch SYSTEM INTERFACE ${cuda_include} ${nccl_include})
  target_compile_definitions(deps::torch INTERFACE LEROBOT_CUDA USE_C10D_NCCL)
  target_link_libraries(deps::torch INTERFACE -Wl,--no-as-needed ${torch_root}/lib/libtorch_cuda.so ${torch_root}/lib/libc10_cuda.so -Wl,--as-needed)
  target_link_options(deps::torch INTERFACE ${nvidia_rpaths})
endif()

# torch's ProcessGroupGloo.hpp includes Gloo's headers, which the wheel lacks. Only the headers are used: libtorch_cpu.so has
# Gloo in it.
find_path(gloo_include gloo/config.h REQUIRED)
add_library(deps::gloo INTERFACE IMPORTED GLOBAL)
target_include_directories(deps::gloo SYSTEM INTERFACE ${gloo_include})
target_link_libraries(deps::gloo INTERFACE deps::torch)

# --- Arrow and Parquet: the PyPI wheel of pyarrow --------------------------------------------------
set(arrow_root ${LEROBOT_DEPS}/site/pyarrow)
lerobot_require_file(${arrow_root}/include/arrow/api.h "Run scripts/setup.")
file(GLOB arrow_library ${arrow_root}/libarrow.so.*)
file(GLOB parquet_library ${arrow_root}/libparquet.so.*)
add_library(deps::parquet INTERFACE IMPORTED GLOBAL)
target_include_directories(deps::parquet SYSTEM INTERFACE ${arrow_root}/include)
target_link_libraries(deps::parquet INTERFACE ${parquet_library} ${arrow_library})
target_link_options(deps::parquet INTERFACE -Wl,--allow-shlib-undefined -Wl,-rpath,${arrow_root})
