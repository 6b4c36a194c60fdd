// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <condition_variable>
#include <new>

#include "base/error.h"
#include "fetch/rendition_planner.h"
#include "fetch/restore_loop.h"
#include "kvcodec/adaptive.h"

namespace kvcodec {
namespace {

Status check_options(const ChunkRestorer& restorer, const AdaptiveOptions& options) {
  const auto wrong = [](std::string_view what) {
    return make_error(ErrorCode::invalid_argument, "fetch: {}", what);
  };
  if (options.chunk_tokens == 0) return wrong("chunk_tokens is 0");
  if (options.max_chunks_in_flight == 0) return wrong("max_chunks_in_flight is 0");
  if (options.transfers == 0 || options.transfers > 256)
    return wrong("transfers: expected 1 to 256");
  if (!(options.stall_seconds > 0)) return wrong("stall_seconds: expected more than 0");
  if (!(options.deadline_seconds >= 0)) return wrong("deadline_seconds is negative");
  if (options.profile != nullptr)
    KVCODEC_CHECK(options.profile->check_shape(restorer.geometry().shape));
  return ok_status();
}

// A store call on a thread of its own, which is left behind where it takes too long.
struct CatalogCall {
  std::mutex mutex;
  std::condition_variable ready;
  std::optional<Result<PrefixCatalog>> catalog;
};

}  // namespace

struct PrefixFetcher::Left {
  std::vector<LeftThread> threads;
};

class PrefixFetcher::Run {
 public:
  Run(PrefixFetcher& fetcher, const Digest& ns, std::span<const int32_t> tokens,
      ChunkRestorer& restorer, const AdaptiveOptions& options)
      : fetcher_(fetcher), ns_(ns), tokens_(tokens), restorer_(restorer), options_(options) {}

  Result<AdaptiveReport> fetch() {
    auto catalog = read_catalog_in_time();
    if (!catalog.ok()) {
      report_.stopped_by = std::move(catalog.error());
      return finish();
    }
    const std::vector<Digest> keys = chunk_keys(ns_, tokens_, options_.chunk_tokens);
    report_.chunks_known = catalog->chunks();
    KVCODEC_TRY(auto planner, make_planner(*std::move(catalog)));
    // A chunk that lacks all that may be used ends the chain.
    const size_t chunks = planner->chunks();
    if (chunks > 0) restore(keys, *planner);
    if (!report_.stopped_by && chunks < keys.size())
      report_.stopped_by = make_error(ErrorCode::not_found, "{}: no rendition that may be used",
                                      object_name(ns_, keys[chunks], "*"));
    return finish();
  }

 private:
  Result<PrefixCatalog> read_catalog_in_time() {
    const TraceSpan span(options_.observers, "plan", "read manifests");
    auto call = std::make_shared<CatalogCall>();
    auto ended = std::make_shared<std::atomic<bool>>(false);
    std::thread thread([call, ended, &store = fetcher_.store_, ns = ns_,
                        tokens = std::vector<int32_t>(tokens_.begin(), tokens_.end()),
                        chunk_tokens = options_.chunk_tokens] {
      Result<PrefixCatalog> read = [&]() -> Result<PrefixCatalog> {
        try {
          return read_catalog(store, ns, tokens, chunk_tokens);
        } catch (const std::bad_alloc&) {
          return make_error(ErrorCode::out_of_memory, "fetch: no memory for the manifests");
        }
      }();
      const std::lock_guard lock(call->mutex);
      call->catalog = std::move(read);
      *ended = true;
      call->ready.notify_all();
    });
    double allowed = 4 * options_.stall_seconds;  // a few rounds of gets
    if (options_.deadline_seconds > 0) allowed = std::min(allowed, options_.deadline_seconds);
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(allowed);
    const std::stop_callback wake(options_.stop, [&] { call->ready.notify_all(); });
    std::unique_lock lock(call->mutex);
    while (!call->catalog && !options_.stop.stop_requested() &&
           std::chrono::steady_clock::now() < until)
      call->ready.wait_for(lock, std::chrono::duration<double>(std::min(allowed, 0.05)));
    if (call->catalog) {
      Result<PrefixCatalog> catalog = *std::move(call->catalog);
      lock.unlock();
      thread.join();
      return catalog;
    }
    lock.unlock();
    std::vector<LeftThread> left;
    left.push_back({std::move(thread), ended});
    fetcher_.leave(std::move(left));
    if (options_.stop.stop_requested())
      return make_error(ErrorCode::cancelled, "fetch: cancelled before the first chunk");
    return make_error(ErrorCode::unavailable, "fetch: no manifest in {:.3f} s", allowed);
  }

  Result<std::unique_ptr<RenditionPlanner>> make_planner(PrefixCatalog catalog) {
    PlannerOptions planner;
    planner.allowed = options_.renditions;
    planner.profile = options_.profile;
    planner.lowest_tier = options_.lowest_tier;
    planner.prefill = options_.prefill;
    planner.chunk_bytes =
        restorer_.geometry().shape.token_bytes() * uint64_t{options_.chunk_tokens};
    const std::lock_guard lock(fetcher_.mutex_);
    return RenditionPlanner::create(ns_, chunk_keys(ns_, tokens_, options_.chunk_tokens),
                                    std::move(catalog), fetcher_.rates_, planner);
  }

  void restore(const std::vector<Digest>& keys, RenditionPlanner& planner) {
    WindowOptions window_options;
    window_options.transfers = options_.transfers;
    window_options.max_chunks = options_.max_chunks_in_flight;
    window_options.max_bytes = options_.max_bytes_in_flight;
    window_options.max_object_bytes = options_.limits.max_object_bytes;
    window_options.stall_seconds = options_.stall_seconds;
    window_options.assumed_bytes_per_second = options_.assumed_bytes_per_second;
    if (window_options.assumed_bytes_per_second <= 0) {
      const std::lock_guard lock(fetcher_.mutex_);
      window_options.assumed_bytes_per_second = fetcher_.link_bytes_per_second_;
    }
    const auto window = std::make_shared<TransferWindow>(
        fetcher_.store_, window_options, planner.chunks(),
        [&](const PlanQuestion& question) { return planner.plan(question); }, &options_.observers);
    window->start();
    RestoreRequest request;
    request.ns = ns_;
    request.keys = std::span(keys).first(planner.chunks());
    request.renditions = planner.renditions();
    request.rendition_names = planner.names();
    request.total_chunks = keys.size();
    request.chunk_tokens = options_.chunk_tokens;
    request.decode.profile = options_.profile;
    request.decode.limits = options_.limits;
    request.decode.threads = options_.threads;
    request.max_together = std::max<size_t>(1, options_.max_chunks_in_flight / 2);
    if (options_.deadline_seconds > 0)
      request.deadline_seconds = std::max(1e-9, options_.deadline_seconds - all_.seconds());
    request.progress = options_.progress;
    request.stop = options_.stop;
    request.observers = &options_.observers;
    request.measured = [&](std::span<const size_t> renditions, double seconds) {
      planner.measured(renditions, seconds);
    };
    restore_in_order(*window, restorer_, request, report_);
    const double link = window->bytes_per_second();
    fetcher_.leave(window->close());
    const auto totals = window->totals();
    report_.transfer_seconds = totals.seconds;
    report_.wasted_bytes = totals.wasted_bytes;
    report_.hedges = totals.hedges;
    report_.retries = totals.retries;
    report_.switches = totals.switches;
    report_.bytes_per_second = link;
    report_.expected_seconds = planner.expected_seconds();
    report_.recompute_is_sooner = planner.recompute_is_sooner();
    const std::lock_guard lock(fetcher_.mutex_);
    fetcher_.rates_ = planner.rates();
    if (link > 0) fetcher_.link_bytes_per_second_ = link;
  }

  AdaptiveReport finish() {
    report_.seconds = all_.seconds();
    if (options_.observers.metrics != nullptr) count_fetch(report_, *options_.observers.metrics);
    return std::move(report_);
  }

  PrefixFetcher& fetcher_;
  const Digest ns_;
  const std::span<const int32_t> tokens_;
  ChunkRestorer& restorer_;
  const AdaptiveOptions& options_;
  const Stopwatch all_;
  AdaptiveReport report_;
};

PrefixFetcher::PrefixFetcher(Store& store, DecodeRates rates)
    : store_(store), rates_(std::move(rates)), left_(std::make_unique<Left>()) {}

PrefixFetcher::~PrefixFetcher() {
  for (LeftThread& left : left_->threads) left.thread.join();
}

void PrefixFetcher::leave(std::vector<LeftThread> threads) {
  const std::lock_guard lock(mutex_);
  auto& all = left_->threads;
  for (LeftThread& thread : threads) all.push_back(std::move(thread));
  std::erase_if(all, [](LeftThread& left) {
    if (!*left.ended) return false;
    left.thread.join();
    return true;
  });
}

Result<AdaptiveReport> PrefixFetcher::fetch(const Digest& ns, std::span<const int32_t> tokens,
                                            ChunkRestorer& restorer,
                                            const AdaptiveOptions& options) {
  KVCODEC_CHECK(check_options(restorer, options));
  const auto leading = tokens.first(std::min<size_t>(tokens.size(), options.max_tokens));
  const size_t whole = leading.size() / options.chunk_tokens * options.chunk_tokens;
  if (restorer.geometry().tokens < whole)
    return make_error(ErrorCode::invalid_argument,
                      "fetch: the target holds {} tokens, the sequence needs {}",
                      restorer.geometry().tokens, whole);
  return Run(*this, ns, leading.first(whole), restorer, options).fetch();
}

}  // namespace kvcodec
