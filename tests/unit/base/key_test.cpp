// SPDX-License-Identifier: Apache-2.0
#include "kvcodec/key.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "store/temp_dir.h"

namespace kvcodec {
namespace {

Digest digest_of(std::string_view hex) {
  const auto digest = digest_from_hex(hex);
  EXPECT_TRUE(digest.ok()) << hex;
  return *digest;
}

Digest sha256_of(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

// FIPS 180-4 examples.
TEST(Sha256, MatchesTheStandard) {
  EXPECT_EQ(to_hex(sha256_of("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(sha256_of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256File, HashesWholeFiles) {
  const TempDir dir;
  // Below, at and above the size of its buffer.
  for (const size_t size : {0u, 3u, (1u << 20) - 1, 1u << 20, (1u << 20) + 1, 3'000'000u}) {
    std::string content(size, 'x');
    for (size_t i = 0; i < size; i += 1000) content[i] = static_cast<char>(i / 1000);
    write_text(dir / "file", content);
    const auto digest = sha256_file(dir / "file");
    ASSERT_TRUE(digest.ok());
    EXPECT_EQ(*digest, sha256_of(content)) << size;
  }
}

TEST(Sha256File, ReportsWhatItCannotRead) {
  const TempDir dir;
  const auto absent = sha256_file(dir / "absent");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::not_found);
  EXPECT_NE(absent.error().message.find(dir / "absent"), std::string::npos);
  const auto folder = sha256_file(dir.path());
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, ErrorCode::io);
}

TEST(Digest, GoesToHexAndBack) {
  Digest digest;
  for (size_t i = 0; i < 32; ++i) digest.bytes[i] = static_cast<std::byte>(i * 8 + 7);
  const std::string hex = to_hex(digest);
  EXPECT_EQ(hex, "070f171f272f373f474f575f676f777f878f979fa7afb7bfc7cfd7dfe7eff7ff");
  EXPECT_EQ(digest_of(hex), digest);
  EXPECT_EQ(digest_of(std::string(64, '0')), Digest{});
}

TEST(Digest, RefusesOtherText) {
  const std::string good(64, 'a');
  for (const std::string& text :
       {std::string(), good.substr(1), good + "a", std::string(64, 'A'), std::string(64, 'g'),
        " " + good.substr(1), "0x" + good.substr(2), good.substr(1) + "/", good.substr(1) + ":",
        good.substr(1) + "`", good.substr(1) + '\0'}) {
    const auto digest = digest_from_hex(text);
    ASSERT_FALSE(digest.ok()) << text;
    EXPECT_EQ(digest.error().code, ErrorCode::invalid_argument);
  }
}

NamespaceFields example_fields() {
  NamespaceFields fields;
  fields.model = "llama";
  for (size_t i = 0; i < 32; ++i) fields.weights.bytes[i] = static_cast<std::byte>(i);
  fields.shape = {30, 3, 64, 64, DType::f16};
  fields.rope = {Rope::Style::interleaved, 4, {uint64_t{1} << 60, 12345}};
  fields.rank = 1;
  fields.ranks = 2;
  fields.salt = "tenant";
  return fields;
}

// Computed with Python's hashlib and struct from docs/format.md, "Namespace".
TEST(NamespaceDigest, IsTheDocumentedSerialisation) {
  EXPECT_EQ(to_hex(namespace_digest(example_fields())),
            "e8a988cbdb9eddccd42ce243ce0d97638f12235a17133974bebf9b7627a12c55");
}

TEST(NamespaceDigest, EveryFieldCounts) {
  const NamespaceFields same = example_fields();
  std::vector<NamespaceFields> all(17, same);
  all[1].model = "llamb";
  all[2].weights.bytes[31] = std::byte{0};
  all[3].shape.layers = 31;
  all[4].shape.kv_heads = 4;
  all[5].shape.key_dim = 65;
  all[6].shape.value_dim = 65;
  all[7].shape.dtype = DType::bf16;
  all[8].rope.style = Rope::Style::neox;
  all[9].rope.rotary_dims = 6;
  all[10].rope.phase_steps[1] = 12346;
  all[11].rope.phase_steps.push_back(0);
  all[12].rank = 0;
  all[13].ranks = 3;
  all[14].salt = "";
  all[15].profile.bytes[0] = std::byte{1};
  // The border between two fields.
  all[16].model = "llam";
  all[16].salt = "atenant";
  std::set<Digest> digests;
  for (const auto& fields : all) digests.insert(namespace_digest(fields));
  EXPECT_EQ(digests.size(), all.size());
  EXPECT_EQ(namespace_digest(same), namespace_digest(example_fields()));
}

TEST(ChunkKeys, ChainOverWholeChunks) {
  const Digest ns = namespace_digest(example_fields());
  const std::vector<int32_t> tokens = {1, 2, 3, -1, INT32_MAX, 7, 8};
  const auto keys = chunk_keys(ns, tokens, 3);
  ASSERT_EQ(keys.size(), 2u) << "the remainder of one token has no key";
  // Python's hashlib.
  EXPECT_EQ(to_hex(keys[0]), "2e54a0828dbc365da624dcf2216fb0ba8419c2a89f14eaa340bf26cadf41acec");
  EXPECT_EQ(to_hex(keys[1]), "025a57f0a70a7687d049e8bc6c337a280194f4956657e003b19326186178ec17");
  EXPECT_EQ(chunk_key(ns, std::span(tokens).first(3)), keys[0]);
  EXPECT_EQ(chunk_key(keys[0], std::span(tokens).subspan(3, 3)), keys[1]);
  EXPECT_TRUE(chunk_keys(ns, std::span(tokens).first(2), 3).empty());
  EXPECT_TRUE(chunk_keys(ns, {}, 1).empty());
  EXPECT_EQ(chunk_keys(ns, tokens, 7).size(), 1u);
  EXPECT_EQ(chunk_keys(ns, tokens, UINT32_MAX).size(), 0u);
}

TEST(ChunkKeys, DependOnAllThatCameBefore) {
  const std::vector<int32_t> a = {1, 2, 3, 4}, b = {9, 2, 3, 4};
  const auto keys_a = chunk_keys(Digest{}, a, 2), keys_b = chunk_keys(Digest{}, b, 2);
  EXPECT_NE(keys_a[0], keys_b[0]);
  EXPECT_NE(keys_a[1], keys_b[1]) << "same tokens after another start";
  EXPECT_NE(chunk_keys(sha256_of("other"), a, 2)[0], keys_a[0]);
}

TEST(ObjectName, IsNamespaceKeyRendition) {
  const std::string name = object_name(Digest{}, sha256_of("abc"), "exact");
  EXPECT_EQ(name, std::string(64, '0') +
                      "/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad/exact");
}

}  // namespace
}  // namespace kvcodec
