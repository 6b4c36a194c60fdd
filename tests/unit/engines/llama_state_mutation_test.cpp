// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <string>

#include "engines/llama_state.h"
#include "unit/engines/code_of.h"
#include "unit/engines/raw_llama_state.h"

// The largest single allocation of this process, to show that claims are refused before memory is
// taken for them.
static std::atomic<size_t> largest_allocation{0};
// Not inlined: GCC would take malloc and operator delete for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t bytes) {
  size_t largest = largest_allocation.load();
  while (bytes > largest && !largest_allocation.compare_exchange_weak(largest, bytes)) {
  }
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace kvcodec {
namespace {

constexpr uint32_t kTokens = 3;
// Offsets in a state of kTokens tokens of kSmallShape.
constexpr size_t kCells = 16, kSection = kCells + 12 * kTokens, kFirstTensor = kSection + 8;
constexpr size_t kTensorBytes = 12 + kTokens * 16;
constexpr size_t kFirstValue = kFirstTensor + 3 * kTensorBytes;

std::vector<std::byte> small_state() { return RawLlamaState(kSmallShape, kTokens).bytes(); }

bool in_a_row(size_t offset) {
  return offset >= kFirstTensor && (offset - kFirstTensor) % kTensorBytes >= 12;
}

template <typename T>
std::vector<std::byte> with(size_t offset, T value) {
  auto bytes = small_state();
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  return bytes;
}

// Copied to memory of exactly its size, so that a sanitizer sees a read beyond it.
Result<LlamaState> parse_exact(const std::vector<std::byte>& bytes, size_t size) {
  const std::vector<std::byte> exact(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
  return parse_llama_state(exact, kSmallShape);
}

void expect_refused(const std::vector<std::byte>& bytes, ErrorCode code, const char* message) {
  const auto state = parse_llama_state(bytes, kSmallShape);
  ASSERT_FALSE(state.ok()) << message;
  EXPECT_EQ(code_of(state), code) << state.error().message;
  EXPECT_NE(state.error().message.find(message), std::string::npos) << state.error().message;
}

TEST(LlamaStateMutation, RefusesEveryTruncation) {
  const auto bytes = small_state();
  ASSERT_TRUE(parse_exact(bytes, bytes.size()).ok());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto state = parse_exact(bytes, size);
    ASSERT_FALSE(state.ok()) << size;
    EXPECT_EQ(code_of(state), ErrorCode::corrupt) << size << ": " << state.error().message;
  }
}

TEST(LlamaStateMutation, RefusesTrailingBytes) {
  auto bytes = small_state();
  bytes.push_back(std::byte{0});
  expect_refused(bytes, ErrorCode::corrupt, "1 bytes after the last layer");
}

TEST(LlamaStateMutation, RefusesEveryBitOfAHeader) {
  const auto bytes = small_state();
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    auto flipped = bytes;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_EQ(parse_llama_state(flipped, kSmallShape).ok(), in_a_row(bit / 8))
        << "bit " << bit % 8 << " of byte " << bit / 8;
  }
}

TEST(LlamaStateMutation, NamesTheField) {
  using enum ErrorCode;
  expect_refused(with(0, 0x67677371u), corrupt,
                 "magic at byte 0: expected af143cd8, found 67677371");
  expect_refused(with(4, -1), corrupt, "sequence id at byte 4");
  expect_refused(with(4, 1), corrupt, "cell 0 at byte 16: expected sequence 1, found 0");
  expect_refused(with(8, 0u), corrupt, "n_stream at byte 8");
  expect_refused(with(8, 2u), unsupported, "kv_unified");
  expect_refused(with(12, 0u), invalid_argument, "the sequence is empty");
  expect_refused(with(kCells, 3), unsupported, "positions have gaps");
  expect_refused(with(kCells, -2), corrupt, "expected a position of 0 or more, found -2");
  expect_refused(with(kCells + 12, 0), corrupt, "position 0 is also that of cell 0");
  expect_refused(with(kCells + 12 + 4, 2u), corrupt, "cell 1 at byte 28: expected 1 sequence");
  expect_refused(with(kSection, 1u), unsupported, "enable flash attention");
  expect_refused(with(kSection, 2u), corrupt, "v_trans at byte 52");
  expect_refused(with(kSection + 4, 2u), invalid_argument, "layer count at byte 56: expected 3");
  expect_refused(with(kFirstTensor, 8), unsupported, "K layer 0 at byte 60: q8_0 is quantised");
  expect_refused(with(kFirstTensor, 0), invalid_argument, "expected f16, found f32");
  expect_refused(with(kFirstTensor, 77), corrupt, "77 is no KV cache type");
  expect_refused(with(kFirstValue + kTensorBytes, 2), unsupported, "V layer 1");
  expect_refused(with(kFirstTensor + 4, uint64_t{0}), invalid_argument, "row size of K layer 0");
  expect_refused(with(kFirstValue + 4, UINT64_MAX), invalid_argument, "row size of V layer 0");
}

TEST(LlamaStateMutation, NamesExtendedCells) {
  for (size_t ext : {8u, 12u}) {
    for (uint32_t tokens : {1u, 3u}) {
      RawLlamaState raw(kSmallShape, tokens);
      raw.cell_ext_bytes = ext;
      expect_refused(raw.bytes(), ErrorCode::unsupported, "extended position");
    }
  }
}

TEST(LlamaStateMutation, RefusesTheStateOfAnotherShape) {
  const auto bytes = small_state();
  for (uint32_t KvShape::*field : {&KvShape::layers, &KvShape::kv_heads, &KvShape::key_dim}) {
    for (int change : {-1, 1}) {
      KvShape shape = kSmallShape;
      shape.*field += static_cast<uint32_t>(change);
      const auto state = parse_llama_state(bytes, shape);
      ASSERT_FALSE(state.ok());
      EXPECT_EQ(code_of(state), ErrorCode::invalid_argument) << state.error().message;
    }
  }
  KvShape shape = kSmallShape;
  shape.value_dim = 0;  // the values are then bytes after the end
  EXPECT_EQ(code_of(parse_llama_state(bytes, shape)), ErrorCode::corrupt);
  shape = kSmallShape;
  shape.dtype = DType::bf16;
  EXPECT_EQ(code_of(parse_llama_state(bytes, shape)), ErrorCode::invalid_argument);
}

TEST(LlamaStateMutation, RefusesHostileCountsBeforeAllocating) {
  KvShape deep = kSmallShape;
  deep.layers = UINT32_MAX;
  const auto cells = with(12, UINT32_MAX);
  const auto layers = with(kSection + 4, UINT32_MAX);
  largest_allocation = 0;
  const auto many_cells = parse_llama_state(cells, kSmallShape);
  const auto many_layers = parse_llama_state(layers, kSmallShape);
  const auto matching_layers = parse_llama_state(layers, deep);
  EXPECT_LT(largest_allocation.load(), 4096u);
  for (const auto* state : {&many_cells, &many_layers, &matching_layers}) {
    ASSERT_FALSE(state->ok());
    EXPECT_EQ(code_of(*state), ErrorCode::corrupt) << state->error().message;
  }
  // The counter does count.
  ::operator delete(::operator new(1 << 20));
  EXPECT_GE(largest_allocation.load(), size_t{1} << 20);
}

TEST(LlamaStateMutation, SurvivesGarbage) {
  std::mt19937 random(5);
  const auto good = small_state();
  size_t accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    auto bytes = good;
    const size_t changes = 1 + random() % 8;
    for (size_t i = 0; i < changes; ++i)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (round % 3 == 0) bytes.resize(random() % (bytes.size() + 1));
    if (round % 7 == 0)
      std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random()); });
    const auto state = parse_exact(bytes, bytes.size());
    if (!state.ok()) continue;
    ++accepted;
    ASSERT_TRUE(state->geometry.validate(bytes.size()).ok());
  }
  EXPECT_GT(accepted, 100u);  // changes of rows alone
}

}  // namespace
}  // namespace kvcodec
