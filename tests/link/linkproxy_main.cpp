// SPDX-License-Identifier: Apache-2.0
// kvcodec-linkproxy: a link of given speed before a server, see link_proxy.h and link_trace.h.
#include <fmt/format.h>
#include <signal.h>

#include <charconv>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>

#include "link/link_proxy.h"

namespace kvcodec {
namespace {

constexpr char kUsage[] =
    "Usage: kvcodec-linkproxy --to [HOST:]PORT [--listen PORT] (--rate BITS | --trace FILE)\n"
    "Forwards a port of the loopback interface to a server as if over a link, until it is\n"
    "interrupted. BITS is a second's, with K, M or G; FILE has a rate a line: \"SECONDS BITS\",\n"
    "also reset, loop, jitter, latency and seed (tests/link/link_trace.h).\n"
    "Example: kvcodec-linkproxy --to 6379 --listen 16379 --rate 10G\n";

bool parse_port(std::string_view text, uint16_t& port) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), port);
  return failed == std::errc{} && end == text.data() + text.size();
}

Result<LinkProxy::Options> parse(int count, char** words) {
  LinkProxy::Options options;
  bool has_target = false, has_rate = false;
  for (int i = 1; i < count; i += 2) {
    const std::string_view flag = words[i];
    const std::string value = i + 1 < count ? words[i + 1] : "";
    bool good = !value.empty();
    if (flag == "--to") {
      const size_t colon = value.rfind(':');
      if (colon != std::string::npos) options.to_host = value.substr(0, colon);
      good = good && parse_port(std::string_view(value).substr(colon + 1), options.to_port);
      has_target = good;
    } else if (flag == "--listen") {
      good = good && parse_port(value, options.listen_port);
    } else if (flag == "--rate") {
      KVCODEC_TRY(options.trace, WireTrace::parse("0 " + value, "--rate"));
      has_rate = true;
    } else if (flag == "--trace") {
      KVCODEC_TRY(options.trace, WireTrace::load(value));
      has_rate = true;
    } else {
      good = false;
    }
    if (!good)
      return Error{ErrorCode::invalid_argument, fmt::format("what is '{} {}'?", flag, value)};
  }
  if (!has_target || !has_rate) {
    return Error{ErrorCode::invalid_argument, "expected --to, and --rate or --trace"};
  }
  return options;
}

int run(int count, char** words) {
  auto options = parse(count, words);
  if (!options.ok()) {
    fmt::print(stderr, "error: {}\n{}", options.error().message, kUsage);
    return 2;
  }
  // Blocked before threads begin, so that it comes here.
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const LinkProxy proxy(*std::move(options));
  fmt::print("listening on 127.0.0.1:{}\n", proxy.port());
  std::fflush(stdout);
  int signal = 0;
  ::sigwait(&signals, &signal);
  const auto& counts = proxy.counts();
  fmt::print("{} connections, {} bytes up, {} bytes down, {} resets\n", counts.connections.load(),
             counts.bytes_up.load(), counts.bytes_down.load(), counts.resets.load());
  return 0;
}

}  // namespace
}  // namespace kvcodec

int main(int count, char** words) {
  try {
    return kvcodec::run(count, words);
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
}
