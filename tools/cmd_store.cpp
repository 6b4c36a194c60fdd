// SPDX-License-Identifier: Apache-2.0
// ls, rm, gc: objects in a store.
#include <fmt/format.h>

#include <algorithm>

#include "commands.h"
#include "options.h"
#include "output.h"

namespace kvcodec::tools {

namespace {

using nlohmann::json;

int64_t age_seconds(const ObjectStat& object) {
  const auto age = std::chrono::system_clock::now() - object.last_used;
  return std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(age).count());
}

std::string human_age(int64_t seconds) {
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 7200) return fmt::format("{} min", seconds / 60);
  if (seconds < 172800) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / 86400);
}

// namespace/key/rendition, the digests cut for people.
std::vector<std::string> short_name(const std::string& name) {
  const size_t first = name.find('/'), second = name.find('/', first + 1);
  if (first != 64 || second != 129) return {"-", "-", name};
  return {name.substr(0, 12), name.substr(65, 12), name.substr(130)};
}

struct LsArgs {
  StoreFlags store;
  std::string prefix;
  bool names = false, json = false;
};

Status run_ls(const LsArgs& args) {
  KVCODEC_TRY(const auto store, args.store.open());
  KVCODEC_TRY(const std::vector<ObjectStat> objects, store->list(args.prefix));
  uint64_t bytes = 0;
  json listed = json::array();
  Table table({"namespace", "key", "rendition", "bytes", "last used"});
  for (const ObjectStat& object : objects) {
    bytes += object.bytes;
    listed.push_back(
        {{"name", object.name}, {"bytes", object.bytes}, {"idle_seconds", age_seconds(object)}});
    std::vector<std::string> row = short_name(object.name);
    row.push_back(fmt::format("{}", object.bytes));
    row.push_back(human_age(age_seconds(object)));
    table.add(std::move(row));
    if (args.names && !args.json) fmt::print("{}\n", object.name);
  }
  if (args.json) {
    print_json({{"objects", listed}, {"bytes", bytes}});
  } else if (!args.names) {
    if (!objects.empty()) fmt::print("{}\n", table.text());
    fmt::print("{} objects, {}\n", objects.size(), human_bytes(bytes));
  }
  return ok_status();
}

struct RmArgs {
  StoreFlags store;
  std::vector<std::string> names;
  std::string prefix;
  bool json = false;
};

Status run_rm(const RmArgs& args) {
  if (args.names.empty() == args.prefix.empty()) {
    return Error{ErrorCode::invalid_argument, "rm: expected either names or --prefix"};
  }
  KVCODEC_TRY(const auto store, args.store.open());
  std::vector<std::string> names = args.names;
  if (!args.prefix.empty()) {
    KVCODEC_TRY(const std::vector<ObjectStat> objects, store->list(args.prefix));
    for (const ObjectStat& object : objects) names.push_back(object.name);
  }
  for (const std::string& name : names) {
    Status removed = store->remove(name);
    // Under --prefix somebody else may have been quicker; a name that was given must exist.
    if (!removed.ok() && (args.prefix.empty() || removed.error().code != ErrorCode::not_found)) {
      return removed;
    }
  }
  if (args.json) {
    print_json({{"removed", names.size()}});
  } else {
    fmt::print("{} objects removed\n", names.size());
  }
  return ok_status();
}

struct GcArgs {
  StoreFlags store;
  std::string max_bytes;
  bool json = false;
};

Status run_gc(const GcArgs& args) {
  KVCODEC_TRY(const uint64_t max_bytes, parse_bytes(args.max_bytes));
  KVCODEC_TRY(const auto store, args.store.open());
  KVCODEC_TRY(const GcReport report, collect_garbage(*store, max_bytes));
  if (args.json) {
    print_json({{"objects_before", report.objects_before},
                {"bytes_before", report.bytes_before},
                {"objects_removed", report.objects_removed},
                {"bytes_removed", report.bytes_removed}});
  } else {
    fmt::print("{} objects, {}; removed {}, {}\n", report.objects_before,
               human_bytes(report.bytes_before), report.objects_removed,
               human_bytes(report.bytes_removed));
  }
  return ok_status();
}

}  // namespace

void add_ls(CLI::App& app, Outcome& outcome) {
  auto* command = app.add_subcommand("ls", "List a store");
  auto args = std::make_shared<LsArgs>();
  args->store.add_to(*command);
  command->add_option("PREFIX", args->prefix, "only names that start so");
  command->add_flag("--names", args->names, "whole names, one a line");
  command->add_flag("--json", args->json, "as JSON");
  command->footer("Example: kvcodec ls --store file:///var/cache/kv");
  command->callback([args, &outcome] { outcome.exit_code = exit_code(run_ls(*args), args->json); });
}

void add_rm(CLI::App& app, Outcome& outcome) {
  auto* command = app.add_subcommand("rm", "Remove objects");
  auto args = std::make_shared<RmArgs>();
  args->store.add_to(*command);
  command->add_option("NAME", args->names, "names, as `ls --names` prints them");
  command->add_option("--prefix", args->prefix, "every name that starts so");
  command->add_flag("--json", args->json, "as JSON");
  command->footer("Example: kvcodec rm --store file:///var/cache/kv --prefix 3f9a0c");
  command->callback([args, &outcome] { outcome.exit_code = exit_code(run_rm(*args), args->json); });
}

void add_gc(CLI::App& app, Outcome& outcome) {
  auto* command = app.add_subcommand("gc", "Evict the least recently used objects");
  auto args = std::make_shared<GcArgs>();
  args->store.add_to(*command);
  command->add_option("--max-bytes", args->max_bytes, "what may remain: 512M, 20G")->required();
  command->add_flag("--json", args->json, "as JSON");
  command->footer("Example: kvcodec gc --store file:///var/cache/kv --max-bytes 20G");
  command->callback([args, &outcome] { outcome.exit_code = exit_code(run_gc(*args), args->json); });
}

}  // namespace kvcodec::tools
