// SPDX-License-Identifier: Apache-2.0
#include "codec/exact_tier.h"

#include "transform/exact_split.h"

namespace kvcodec {
namespace {

transform::ExactSplit split_of(const format::Header& header, KvKind kind) {
  return transform::ExactSplit::of(header.shape.dtype,
                                   header.symbol_mantissa_bits[static_cast<size_t>(kind)]);
}

}  // namespace

void split_group(const GroupPlan& plan, const std::byte* rows, format::Header& header,
                 std::span<PictureContent> contents) {
  const transform::ExactSplit how = split_of(header, plan.kind);
  const size_t row_bytes = header.tokens * dtype_bytes(header.shape.dtype);
  uint8_t* keys = header.row_keys[static_cast<size_t>(plan.kind)].data() + plan.rows.first_row;
  for (size_t row = 0; row < plan.rows.rows; ++row)
    keys[row] = transform::row_key(how, rows + row * row_bytes, header.tokens);

  for (size_t i = 0; i < plan.symbols.size(); ++i) {
    const format::Picture& picture = header.pictures[plan.symbols[i]];
    PictureContent& symbols = contents[plan.symbols[i]];
    symbols.stride = picture.width;
    symbols.samples.assign(size_t{picture.width} * picture.height, 128);
    contents[plan.low_bits[i]].stored.resize(picture.rows * how.low_row_bytes(header.tokens));
  }
  const std::vector<RowPlace> places = place_rows(header, plan);
  for (size_t row = 0; row < places.size(); ++row) {
    PictureContent& symbols = contents[plan.symbols[places[row].picture]];
    PictureContent& low = contents[plan.low_bits[places[row].picture]];
    transform::best_split().split(
        how, rows + row * row_bytes, header.tokens,
        static_cast<uint8_t>(keys[row] >> how.key_shift),
        symbols.samples.data() + places[row].row * symbols.stride,
        low.stored.data() + places[row].row * how.low_row_bytes(header.tokens));
  }
}

void merge_group(const GroupPlan& plan, const format::Header& header,
                 std::span<const PictureContent> contents, std::byte* rows) {
  const transform::ExactSplit how = split_of(header, plan.kind);
  const size_t row_bytes = header.tokens * dtype_bytes(header.shape.dtype);
  const uint8_t* keys =
      header.row_keys[static_cast<size_t>(plan.kind)].data() + plan.rows.first_row;
  const std::vector<RowPlace> places = place_rows(header, plan);
  for (size_t row = 0; row < places.size(); ++row) {
    const PictureContent& symbols = contents[plan.symbols[places[row].picture]];
    const PictureContent& low = contents[plan.low_bits[places[row].picture]];
    transform::best_split().merge(
        how, symbols.samples.data() + places[row].row * symbols.stride,
        low.payload.data() + places[row].row * how.low_row_bytes(header.tokens), header.tokens,
        static_cast<uint8_t>(keys[row] >> how.key_shift), rows + row * row_bytes);
  }
}

}  // namespace kvcodec
