// SPDX-License-Identifier: Apache-2.0
// Publishing in several renditions, and finding them again.
#include "fetch/manifest.h"
#include "fetch_fixture.h"
#include "store/faulty_store.h"

namespace kvcodec {
namespace {

class Renditions : public FetchFixture {
 protected:
  std::vector<PublishReport> publish_as(std::vector<std::string> renditions) {
    auto reports =
        publish_renditions(*store_, namespace_, tokens_, source(), renditions, publish_options());
    EXPECT_TRUE(reports.ok()) << reports.error().message;
    return reports.ok() ? *std::move(reports) : std::vector<PublishReport>{};
  }
  PrefixCatalog catalog(Store& store) const {
    auto read = read_catalog(store, namespace_, tokens_, kTestChunk);
    EXPECT_TRUE(read.ok()) << read.error().message;
    return read.ok() ? *std::move(read) : PrefixCatalog{};
  }
  PrefixCatalog catalog() const { return catalog(*store_); }
  uint64_t bytes_of(size_t chunk, const char* rendition) const {
    return store_->stat(name(chunk, rendition))->bytes;
  }
};

TEST_F(Renditions, OneCallPublishesAllAndSaysSo) {
  const auto reports = publish_as({"exact", "int8", "int8-h144"});
  ASSERT_EQ(reports.size(), 3u);
  for (const PublishReport& report : reports) EXPECT_EQ(report.written, 5u);
  EXPECT_EQ(store_->list()->size(), 20u) << "three renditions and a manifest a chunk";
  const PrefixCatalog found = catalog();
  EXPECT_EQ(found.renditions, (std::vector<std::string>{"exact", "int8", "int8-h144"}));
  ASSERT_EQ(found.chunks(), 5u);
  for (size_t chunk = 0; chunk < 5; ++chunk)
    for (size_t r = 0; r < 3; ++r)
      EXPECT_EQ(found.bytes[chunk][r], bytes_of(chunk, found.renditions[r].c_str()));
  // The heights are what the names say.
  const auto info = read_chunk_info(*get_object(*store_, name(1, "int8-h144"), UINT64_MAX));
  for (const PictureInfo& picture : info->pictures) EXPECT_LE(picture.height, 144u);
  for (const auto& report : publish_as({"exact", "int8", "int8-h144"}))
    EXPECT_EQ(report.written, 0u);
}

TEST_F(Renditions, LaterOnesJoinTheManifests) {
  publish_as({"int8"});
  publish_as({"exact"});
  PrefixCatalog found = catalog();
  EXPECT_EQ(found.renditions, (std::vector<std::string>{"exact", "int8"}));
  for (size_t chunk = 0; chunk < 5; ++chunk) {
    EXPECT_EQ(found.bytes[chunk][0], bytes_of(chunk, "exact"));
    EXPECT_EQ(found.bytes[chunk][1], bytes_of(chunk, "int8"));
  }
}

// A longer prefix has chunks in one rendition that its beginning has in another.
TEST_F(Renditions, ChunksMayDiffer) {
  const std::span<const int32_t> begin(tokens_.data(), 2 * kTestChunk);
  const std::vector<std::string> exact = {"exact"};
  ASSERT_TRUE(
      publish_renditions(*store_, namespace_, begin, source(), exact, publish_options()).ok());
  EXPECT_EQ(catalog().chunks(), 2u);
  publish_as({"int8"});
  // The manifests of later chunks know what the beginning has as int8 alone; those of the
  // beginning know both.
  const PrefixCatalog found = catalog();
  ASSERT_EQ(found.chunks(), 5u);
  for (size_t chunk = 0; chunk < 5; ++chunk) {
    const auto at = std::find(found.renditions.begin(), found.renditions.end(), "int8");
    ASSERT_NE(at, found.renditions.end());
    EXPECT_EQ(found.bytes[chunk][static_cast<size_t>(at - found.renditions.begin())],
              bytes_of(chunk, "int8"));
  }
}

TEST_F(Renditions, AForkIsFoundUpToTheFork) {
  publish_as({"exact"});
  tokens_[3 * kTestChunk + 2] ^= 1;
  EXPECT_EQ(catalog().chunks(), 3u);
  tokens_[0] ^= 1;
  EXPECT_EQ(catalog().chunks(), 0u);
}

// Every subset of lost manifests: never a wrong size, and the last one alone finds everything.
TEST_F(Renditions, LostManifests) {
  publish_as({"exact", "int8"});
  const auto keys = chunk_keys(namespace_, tokens_, kTestChunk);
  std::vector<std::vector<std::byte>> kept;
  for (const Digest& key : keys)
    kept.push_back(*get_object(*store_, manifest_name(namespace_, key), kMaxManifestBytes));
  for (unsigned lost = 0; lost < 32; ++lost) {
    for (size_t i = 0; i < 5; ++i) {
      const std::string at = manifest_name(namespace_, keys[i]);
      ASSERT_TRUE(store_->put(at, kept[i]).ok());
      if (lost >> i & 1) {
        ASSERT_TRUE(store_->remove(at).ok());
      }
    }
    const PrefixCatalog found = catalog();
    if ((lost & 16) == 0) {
      EXPECT_EQ(found.chunks(), 5u) << lost;
    }
    for (size_t chunk = 0; chunk < found.chunks(); ++chunk)
      EXPECT_EQ(found.bytes[chunk][0], bytes_of(chunk, "exact"));
  }
}

TEST_F(Renditions, FaultyManifestsCountAsMissing) {
  publish_as({"exact"});
  const auto keys = chunk_keys(namespace_, tokens_, kTestChunk);
  const std::string last = manifest_name(namespace_, keys[4]);
  const auto other = get_object(*store_, manifest_name(namespace_, keys[3]), kMaxManifestBytes);
  ASSERT_TRUE(store_->put(last, *other).ok());
  EXPECT_EQ(catalog().chunks(), 4u) << "another chunk's";
  ASSERT_TRUE(store_->put(last, std::vector<std::byte>(100000)).ok());
  EXPECT_EQ(catalog().chunks(), 4u) << "too large";
  ASSERT_TRUE(store_->put(last, {}).ok());
  EXPECT_EQ(catalog().chunks(), 4u) << "empty";
  publish_as({"exact"});
  EXPECT_EQ(catalog().chunks(), 5u) << "publishing mends it";
  FaultyStore faulty(*store_, fail_calls(StoreOp::get, ErrorCode::unavailable));
  const auto read = read_catalog(faulty, namespace_, tokens_, kTestChunk);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::unavailable);
}

// A fetch pays a few rounds of gets, not one a chunk and rendition.
TEST_F(Renditions, FewRoundTrips) {
  std::vector<int32_t> tokens(200);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i);
  const KvGeometry geometry = KvGeometry::contiguous({1, 1, 8, 8, DType::f16}, 200);
  const std::vector<std::byte> memory(geometry.contiguous_bytes());
  PublishOptions options = publish_options();
  options.chunk_tokens = 1;
  const std::vector<std::string> names = {"exact", "int8"};
  ASSERT_TRUE(
      publish_renditions(*store_, namespace_, tokens, {memory, &geometry}, names, options).ok());
  for (size_t length : {size_t{64}, size_t{200}}) {
    FaultyStore counting(*store_);
    const auto found = read_catalog(counting, namespace_, std::span(tokens).first(length), 1);
    EXPECT_EQ(found->chunks(), length);
    EXPECT_LE(counting.calls(StoreOp::get), 12u);
    EXPECT_EQ(counting.calls(StoreOp::stat) + counting.calls(StoreOp::list), 0u);
  }
  for (size_t at : {size_t{1}, size_t{77}, size_t{199}}) {
    auto forked = tokens;
    forked[at] = -1;
    FaultyStore counting(*store_);
    EXPECT_EQ(read_catalog(counting, namespace_, forked, 1)->chunks(), at);
    EXPECT_LE(counting.calls(StoreOp::get), 3 * 8u + 4) << at;
  }
}

TEST_F(Renditions, WrongCallsAreErrors) {
  const auto refused = [&](std::vector<std::string> names) {
    const auto reports =
        publish_renditions(*store_, namespace_, tokens_, source(), names, publish_options());
    return !reports.ok() && reports.error().code == ErrorCode::invalid_argument;
  };
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused({"best"}));
  EXPECT_TRUE(refused({"exact", "exact"}));
  EXPECT_TRUE(refused({"small-0123456789abcdef"})) << "its profile is missing";
  std::vector<std::string> many;
  for (int i = 0; i < 17; ++i) many.push_back("int8-h" + std::to_string(144 + 8 * i));
  EXPECT_TRUE(refused(many));
  EXPECT_TRUE(store_->list()->empty());
  EXPECT_FALSE(read_catalog(*store_, namespace_, tokens_, 0).ok());
}

}  // namespace
}  // namespace kvcodec
