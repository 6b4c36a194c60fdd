// SPDX-License-Identifier: Apache-2.0
// A publisher that is killed at any moment leaves whole chunks or none, and the next one goes on.
#include <random>

#include "fetch_fixture.h"
#include "store/child_process.h"
#include "store/temp_dir.h"

namespace kvcodec {
namespace {

class PublishKill : public FetchFixture {};

TEST_F(PublishKill, ChunksAreWholeOrAbsent) {
  const TempDir dir;
  const std::string uri = "file://" + (dir / "store");
  std::mt19937 random(11);
  size_t partial = 0, verified = 0;
  // Until some met a first publication under way, or the test would show nothing.
  for (int kill = 0; kill < 60 || (partial == 0 && kill < 2000); ++kill) {
    ChildProcess publisher([&] {
      const auto store = open_store(uri);
      if (!store.ok()) return 1;
      PublishOptions options = publish_options(kill % 2 == 0 ? Tier::exact : Tier::int8);
      for (;;) {
        if (!publish_prefix(**store, namespace_, tokens_, source(), options).ok()) return 2;
        options.replace = true;
      }
    });
    // Every fourth meets an empty store and comes early.
    ::usleep(static_cast<useconds_t>(random() % (kill % 4 == 0 ? 6000 : 40000)));
    ASSERT_EQ(publisher.kill(), 128 + SIGKILL) << "it ended by itself";

    const auto store = open_store(uri);
    ASSERT_TRUE(store.ok()) << store.error().message;
    const auto objects = (*store)->list();
    ASSERT_TRUE(objects.ok()) << objects.error().message;
    partial += objects->size() % 5 != 0;
    for (const ObjectStat& object : *objects) {
      const auto bytes = get_object(**store, object.name, UINT64_MAX);
      ASSERT_TRUE(bytes.ok()) << bytes.error().message;
      const Status whole = verify_chunk(*bytes);
      ASSERT_TRUE(whole.ok()) << object.name << ": " << whole.error().message;
      ++verified;
    }
    Target target = make_target();
    const auto report =
        fetch_prefix(**store, namespace_, tokens_, target.target(), fetch_options());
    ASSERT_TRUE(report.ok());
    expect_restored(target, report->tokens_restored);
    // Now and then from the beginning, so that kills meet first publications too.
    if (kill % 4 == 3) {
      ASSERT_TRUE(collect_garbage(**store, 0).ok());
    }
  }
  EXPECT_GT(partial, 0u) << "no kill came in the middle of a publication";
  EXPECT_GT(verified, 0u);
}

}  // namespace
}  // namespace kvcodec
