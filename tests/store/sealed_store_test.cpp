// SPDX-License-Identifier: Apache-2.0
#include "store/sealed_store.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "sealed_bytes.h"
#include "store_kinds.h"

namespace kvcodec {
namespace {

constexpr uint64_t kSegment = SealHeader::kSegmentBytes;
constexpr uint64_t kStride = kSegment + SealHeader::kTagBytes;

std::string hex_key(char digit) { return std::string(64, digit); }

AeadKey make_key(char digit) { return (*parse_keys(hex_key(digit), "test"))[0]; }

class SealedStoreTest : public testing::Test {
 protected:
  void SetUp() override { reopen({make_key('1')}); }
  void reopen(std::vector<AeadKey> keys) {
    auto borrowed = std::make_unique<FaultyStore>(below);
    faults = borrowed.get();
    store = std::make_unique<SealedStore>(std::move(borrowed), std::move(keys));
  }
  std::vector<std::byte> raw(const std::string& name) {
    return *get_object(below, name, UINT64_MAX);
  }
  // What reading tells of changed bytes below.
  Result<std::vector<std::byte>> read_changed(const std::string& name,
                                              const std::vector<std::byte>& bytes) {
    EXPECT_TRUE(below.put(name, bytes).ok());
    std::vector<std::byte> out(1 << 20);
    KVCODEC_TRY(const size_t n, store->get(name, out, 0));
    out.resize(n);
    return out;
  }

  MemoryStore below;
  FaultyStore* faults = nullptr;
  std::unique_ptr<SealedStore> store;
};

// Made by Python's hmac and cryptography from docs/stores.md alone.
TEST_F(SealedStoreTest, OpensWhatAnotherProgramSealed) {
  const std::string key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
  const std::string sealed =
      "4b56435345414c31a82d0fa13c86592e050000000000000000000100000000006465666768696a6b"
      "6c6d6e6f707172737475767778797a7b7c7d7e7f80818283bdf21cea5783813bcf9871fc879e36782e227ae802";
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < sealed.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(sealed.substr(i, 2), nullptr, 16)));
  }
  reopen(*parse_keys(key, "test"));
  const auto opened = read_changed("a/b", bytes);
  ASSERT_TRUE(succeeds(opened));
  EXPECT_EQ(*opened, to_bytes("hello"));
}

TEST_F(SealedStoreTest, KnowsItsSizes) {
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, kSegment - 1, kSegment, kSegment + 1,
                              3 * kSegment, 3 * kSegment + 5, uint64_t{1} << 40}) {
    const uint64_t sealed = SealHeader::sealed_bytes(size);
    EXPECT_EQ(SealHeader::plain_bytes(sealed), size);
  }
  for (const uint64_t sealed :
       {uint64_t{0}, uint64_t{79}, 80 + kSegment + 1, 80 + kSegment + 16, 64 + 2 * kStride + 7}) {
    EXPECT_FALSE(SealHeader::plain_bytes(sealed)) << sealed;
  }
}

TEST_F(SealedStoreTest, ReadsAnyRange) {
  const auto bytes = make_sealed("a", 1, 3 * kSegment + 100);
  ASSERT_TRUE(succeeds(store->put("a", bytes)));
  for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, kSegment - 1, kSegment, kSegment + 1,
                                2 * kSegment, 3 * kSegment + 99, 3 * kSegment + 100}) {
    for (const size_t room :
         {size_t{1}, size_t{2}, size_t{kSegment}, size_t{2 * kSegment + 1}, size_t{1} << 20}) {
      std::vector<std::byte> out(room, std::byte{0xee});
      const auto n = store->get("a", out, offset);
      ASSERT_TRUE(succeeds(n)) << offset;
      ASSERT_EQ(*n, std::min<uint64_t>(room, bytes.size() - offset));
      EXPECT_TRUE(std::equal(out.begin(), out.begin() + static_cast<ptrdiff_t>(*n),
                             bytes.begin() + static_cast<ptrdiff_t>(offset)));
    }
  }
}

TEST_F(SealedStoreTest, KeepsNothingInClear) {
  const auto text = to_bytes("a text that must not be seen");
  ASSERT_TRUE(succeeds(store->put("a", text)));
  const auto first = raw("a");
  EXPECT_EQ(std::search(first.begin(), first.end(), text.begin() + 2, text.begin() + 8),
            first.end());
  ASSERT_TRUE(succeeds(store->put("a", text)));
  const auto second = raw("a");
  EXPECT_FALSE(std::equal(first.begin() + 32, first.end(), second.begin() + 32));
}

TEST_F(SealedStoreTest, FindsEveryFlippedByte) {
  ASSERT_TRUE(succeeds(store->put("a", make_sealed("a", 1, 2 * kSegment + 50))));
  const auto good = raw("a");
  std::vector<size_t> places;
  for (size_t i = 0; i < 200; ++i) places.push_back(i);
  for (size_t i = 0; i < good.size(); i += 997) places.push_back(i);
  for (size_t i = good.size() - 100; i < good.size(); ++i) places.push_back(i);
  for (const size_t at : places) {
    auto bad = good;
    bad[at] ^= std::byte{0x10};
    const auto opened = read_changed("a", bad);
    ASSERT_FALSE(opened.ok()) << at;
    // A flipped key id is a key that is not there.
    const bool is_key_id = at >= 8 && at < 16;
    EXPECT_EQ(opened.error().code, is_key_id ? ErrorCode::invalid_argument : ErrorCode::corrupt);
  }
  EXPECT_TRUE(succeeds(read_changed("a", good)));
}

TEST_F(SealedStoreTest, FindsCutsAtEveryKindOfPlace) {
  ASSERT_TRUE(succeeds(store->put("a", make_sealed("a", 1, 2 * kSegment + 50))));
  const auto good = raw("a");
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{80}, size_t{64 + kStride - 1},
        size_t{64 + kStride}, size_t{64 + 2 * kStride}, good.size() - 16, good.size() - 1}) {
    EXPECT_TRUE(
        fails_with(read_changed("a", {good.begin(), good.begin() + static_cast<ptrdiff_t>(size)}),
                   ErrorCode::corrupt, "'a'"))
        << size;
  }
}

TEST_F(SealedStoreTest, FindsWhatWasMoved) {
  ASSERT_TRUE(succeeds(store->put("a", make_sealed("a", 1, 2 * kSegment))));
  ASSERT_TRUE(succeeds(store->put("b", make_sealed("a", 1, 2 * kSegment))));
  const auto a = raw("a"), b = raw("b");
  EXPECT_TRUE(fails_with(read_changed("b", a), ErrorCode::corrupt)) << "another object";
  auto swapped = a;
  std::swap_ranges(swapped.begin() + 64, swapped.begin() + 64 + kStride,
                   swapped.begin() + 64 + static_cast<ptrdiff_t>(kStride));
  EXPECT_TRUE(fails_with(read_changed("a", swapped), ErrorCode::corrupt)) << "segments swapped";
  auto mixed = a;
  std::copy(b.begin() + 64, b.begin() + 64 + static_cast<ptrdiff_t>(kStride), mixed.begin() + 64);
  EXPECT_TRUE(fails_with(read_changed("a", mixed), ErrorCode::corrupt)) << "another's segment";
}

// A header that says less, or more, than there is must not pass where no byte is read.
TEST_F(SealedStoreTest, FindsAChangedSize) {
  ASSERT_TRUE(succeeds(store->put("a", make_sealed("a", 1, 2 * kSegment))));
  const auto good = raw("a");
  for (const uint64_t size : {uint64_t{0}, uint64_t{100}, kSegment, 2 * kSegment - 1, 3 * kSegment,
                              uint64_t{1} << 50, UINT64_MAX}) {
    auto bad = good;
    std::memcpy(bad.data() + 16, &size, sizeof size);
    ASSERT_TRUE(succeeds(below.put("a", bad)));
    std::array<std::byte, 8> out;
    for (const uint64_t offset : {uint64_t{0}, uint64_t{200}, kSegment + 1, 10 * kSegment}) {
      reopen({make_key('1')});  // nothing is remembered
      EXPECT_FALSE(store->get("a", out, offset).ok()) << size << " " << offset;
    }
  }
}

TEST_F(SealedStoreTest, NeedsTheKey) {
  ASSERT_TRUE(succeeds(store->put("a", to_bytes("x"))));
  reopen({make_key('2')});
  std::array<std::byte, 8> out;
  const auto refused = store->get("a", out, 0);
  EXPECT_TRUE(fails_with(refused, ErrorCode::invalid_argument, to_hex(make_key('1').id())));
  EXPECT_EQ(refused.error().message.find("1111"), std::string::npos);
  EXPECT_TRUE(fails_with(store->get("a", out, 1), ErrorCode::invalid_argument));
  // A new key seals, the old one still opens.
  reopen({make_key('2'), make_key('1')});
  EXPECT_EQ(*get_object(*store, "a", 10), to_bytes("x"));
  ASSERT_TRUE(succeeds(store->put("a", to_bytes("y"))));
  reopen({make_key('2')});
  EXPECT_EQ(*get_object(*store, "a", 10), to_bytes("y"));
}

TEST_F(SealedStoreTest, PlainObjectsAreNotTaken) {
  ASSERT_TRUE(succeeds(below.put("a", to_bytes("plain"))));
  ASSERT_TRUE(succeeds(below.put("b", std::vector<std::byte>(500))));
  std::array<std::byte, 8> out;
  EXPECT_TRUE(fails_with(store->get("a", out, 0), ErrorCode::corrupt, "not sealed"));
  EXPECT_TRUE(fails_with(store->get("b", out, 3), ErrorCode::corrupt, "not sealed"));
  EXPECT_TRUE(fails_with(store->stat("a"), ErrorCode::corrupt, "not sealed"));
  EXPECT_EQ(names_of(*store), std::vector<std::string>{"b"}) << "its size could be one";
  EXPECT_TRUE(succeeds(store->remove("a")));
}

// The object is replaced between the reading of its header and of its segments.
TEST_F(SealedStoreTest, ReadsOneVersionOfAnObjectThatIsReplaced) {
  const std::vector<std::byte> first(3 * kSegment, std::byte{1}),
      second(2 * kSegment, std::byte{2});
  MemoryStore other;
  ASSERT_TRUE(succeeds(store->put("a", second)));
  const auto replacement = raw("a");
  ASSERT_TRUE(succeeds(store->put("a", first)));
  int gets = 0;
  faults->set_plan([&](const StoreCall& call) {
    if (call.op == StoreOp::get && ++gets == 2) {
      EXPECT_TRUE(below.put("a", replacement).ok());
    }
    return Fault{};
  });
  std::vector<std::byte> out(3 * kSegment);
  const auto n = store->get("a", out, 10);
  ASSERT_TRUE(succeeds(n));
  EXPECT_EQ(*n, 2 * kSegment - 10);
  EXPECT_TRUE(std::all_of(out.begin(), out.begin() + static_cast<ptrdiff_t>(*n),
                          [](std::byte b) { return b == std::byte{2}; }));
  // A header that is remembered and out of date is read anew.
  ASSERT_TRUE(succeeds(below.put("a", replacement)));
  EXPECT_EQ(*store->get("a", out, 2 * kSegment - 1), 1u);
}

TEST(AeadKeys, ReadsFilesAndTheEnvironment) {
  const TempDir dir;
  const std::string file = dir / "keys";
  const auto write = [&](const std::string& text, mode_t mode = 0600) {
    write_text(file, text);
    ::chmod(file.c_str(), mode);
  };
  write("# the new one\n" + hex_key('a') + "  # comment\r\n\n" + hex_key('B') + "\n");
  const auto keys = load_keys(file);
  ASSERT_TRUE(succeeds(keys));
  ASSERT_EQ(keys->size(), 2u);
  EXPECT_EQ((*keys)[0].id(), make_key('a').id());
  EXPECT_EQ((*keys)[1].id(), make_key('b').id());
  EXPECT_NE((*keys)[0].id(), (*keys)[1].id());

  write(hex_key('a'), 0640);
  EXPECT_TRUE(fails_with(load_keys(file), ErrorCode::invalid_argument, "chmod 600"));
  for (const std::string& text :
       {std::string(), std::string("# none\n"), hex_key('a') + "a", hex_key('a').substr(1),
        hex_key('x'), hex_key('a') + " " + hex_key('a'), std::string(100000, ' ')}) {
    write(text);
    const auto refused = load_keys(file);
    EXPECT_TRUE(fails_with(refused, ErrorCode::invalid_argument, "key"));
    EXPECT_EQ(refused.error().message.find("aaaa"), std::string::npos);
    EXPECT_EQ(refused.error().message.find("xxxx"), std::string::npos);
  }
  EXPECT_TRUE(fails_with(load_keys(dir / "none"), ErrorCode::io, "none"));

  ::setenv("KVCODEC_KEY", hex_key('c').c_str(), 1);
  EXPECT_EQ((*load_keys(""))[0].id(), make_key('c').id());
  write(hex_key('d'));
  ::setenv("KVCODEC_KEY_FILE", file.c_str(), 1);
  EXPECT_EQ((*load_keys(""))[0].id(), make_key('d').id());
  // What open_store opens is sealed then.
  const std::string uri = "file://" + (dir / "store");
  ASSERT_TRUE(succeeds((*open_store(uri))->put("a", to_bytes("x"))));
  ::unsetenv("KVCODEC_KEY_FILE");
  ::unsetenv("KVCODEC_KEY");
  EXPECT_TRUE(load_keys("")->empty());
  EXPECT_EQ((*open_store(uri))->stat("a")->bytes, SealHeader::sealed_bytes(1));
  EXPECT_EQ((*open_store(uri, {.encryption_key_file = file}))->stat("a")->bytes, 1u);
}

}  // namespace
}  // namespace kvcodec
