#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: neon_check.sh COMPILER EMULATOR SOURCE_FOLDER BUILD_FOLDER
# Builds encoders and decoders for 64-bit ARM and compares them with the references in an emulator.
set -eu
compiler=$1 emulator=$2 source=$3 build=$4
hevc=$source/src/hevc
# Highway's headers are the host's; they come last.
"$compiler" -std=c++20 -O2 -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Werror -static \
  -DFMT_HEADER_ONLY -I"$source/src" -I"$source/include" -I"$source/tests" -I"$build/include" \
  -idirafter /usr/include \
  "$source/tests/variants/neon_check.cpp" "$source/src/base/parallel.cpp" \
  "$hevc/bit_writer.cpp" "$hevc/cabac_encoder.cpp" "$hevc/cabac_tables.cpp" "$hevc/encoder.cpp" \
  "$hevc/encoder_nobmi2.cpp" "$hevc/encoder_reference.cpp" "$hevc/encoder_scalar.cpp" \
  "$hevc/fast_cabac.cpp" "$hevc/lane_encoder.cpp" "$hevc/lane_scratch.cpp" \
  "$hevc/cabac_decoder.cpp" "$hevc/decoder_lanes.cpp" "$hevc/decoder_nobmi2.cpp" \
  "$hevc/decoder_reference.cpp" "$hevc/decoder_scalar.cpp" "$hevc/decoder_variants.cpp" \
  -o "$build/neon_check"
"$emulator" "$build/neon_check"
