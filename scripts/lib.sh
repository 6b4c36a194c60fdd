# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts in this folder, which source it. Sets the paths below; prints nothing.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Everything that is fetched or built from elsewhere; safe to delete, shared between clones.
cache=${KVCODEC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvcodec}
[[ $cache == /* ]] || cache=$PWD/$cache
venv=$cache/venv
llama_version=0.3.36 # of llama-cpp-python, see pypi.txt
moto_version=5.2.5 # see pypi.txt
model=$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf
# The second model of bench/fidelity, of another family: scripts/second-model fetches it.
second_model=$cache/models/Qwen2.5-Coder-0.5B-Instruct.Q4.gguf
# Flags of the llama.cpp build; a part of its prefix's name, as are the compiler and the processor.
llama_flags=(
  -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=ON -DGGML_CCACHE=OFF
  -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_MTMD=OFF -DLLAMA_BUILD_TOOLS=OFF
  -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF
  -DCMAKE_INSTALL_LIBDIR=lib "-DCMAKE_INSTALL_RPATH=\$ORIGIN"
  # Native code without AMX: some virtual machines show the flag, grant the tile state and still
  # raise SIGILL at the first tile instruction.
  "-DCMAKE_C_FLAGS=-U__AMX_INT8__ -U__AMX_TILE__" "-DCMAKE_CXX_FLAGS=-U__AMX_INT8__ -U__AMX_TILE__"
)

say() { printf '== %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Where the build of llama.cpp for this compiler and processor belongs. GGML_NATIVE compiles for
# the processor at hand, so a cache shared by several kinds of machine keeps a build for each.
llama_prefix() {
  local id
  id=$({
    g++ --version | head -1
    grep -m1 -E '^(flags|Features)' /proc/cpuinfo || uname -m
    printf '%s\n' "${llama_flags[@]}"
  } | sha256sum | cut -c1-12)
  printf '%s/llama-%s-%s\n' "$cache" "$llama_version" "$id"
}

# The venv of scripts/install-python for its pins.
python_env() {
  printf '%s/python-%s\n' "$cache" "$({
    /usr/bin/python3 --version
    cat "$root/scripts/python.txt" "$root/scripts/torch_stubs.py"
  } | sha256sum | cut -c1-12)"
}

# run_logged LOG COMMAND...: runs it with its output in LOG, whose end is shown if it fails.
run_logged() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  "$@" >"$log" 2>&1 && return
  local rc=$?
  printf -- '--- end of %s\n' "$log" >&2
  tail -n "${KVCODEC_LOG_TAIL:-40}" "$log" >&2
  printf -- '--- exit status %d: %s\n' "$rc" "$*" >&2
  return "$rc"
}

# download NAME [pip option...]: leaves the pinned file of that package in $work/NAME. pip checks
# its hash before it is there.
download() {
  local name=$1
  shift
  grep "^$name==" "$root/scripts/pypi.txt" >"$work/$name.txt"
  run_logged "$cache/logs/download-$name.log" "$venv/bin/pip" --disable-pip-version-check download \
    --no-deps --require-hashes "$@" --dest "$work/$name" --requirement "$work/$name.txt"
}

# Configures a preset for a machine prepared by install-deps: configure_preset NAME [cmake option...]
configure_preset() {
  local options=("-DPython3_EXECUTABLE=$venv/bin/python")
  if command -v ccache >/dev/null; then
    options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  cmake -S "$root" --preset "$@" "${options[@]}"
}

# ccache serves every build folder and every clone from one place.
export CCACHE_DIR=${CCACHE_DIR:-$cache/ccache} CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
