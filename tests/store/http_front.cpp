// SPDX-License-Identifier: Apache-2.0
#include "http_front.h"

#include <fmt/chrono.h>

#include <stdexcept>

namespace kvcodec {

HttpFront::HttpFront(bool ranges)
    : ranges_(ranges), server_(ScriptedServer::http([this](const std::string& request, int) {
        return answer(request);
      })) {
  auto opened = open_store(fmt::format("http://127.0.0.1:{}/some/where", server_.port()));
  if (!opened.ok()) throw std::runtime_error(opened.error().message);
  http_ = *std::move(opened);
}

std::string HttpFront::answer(const std::string& request) {
  const size_t space = request.find(' ');
  const std::string method = request.substr(0, space);
  std::string path = request.substr(space + 1, request.find(' ', space + 1) - space - 1);
  const std::string root = "/some/where/";
  if (!path.starts_with(root)) return http_reply("400 Bad Request", "");
  path.erase(0, root.size());
  // The object and its time are of one version: a list is one look.
  const auto listed = memory_.list(path);
  const auto bytes = get_object(memory_, path, UINT64_MAX);
  if (!bytes.ok()) return http_reply("404 Not Found", method == "HEAD" ? "" : "gone");
  std::chrono::system_clock::time_point time{};
  for (const auto& object : *listed) {
    if (object.name == path) time = object.last_used;
  }
  const std::string body(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  const std::string modified = fmt::format("Last-Modified: {:%a, %d %b %Y %H:%M:%S GMT}",
                                           fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
  if (method == "HEAD") {
    return fmt::format("HTTP/1.1 200 OK\r\n{}\r\nContent-Length: {}\r\n\r\n", modified,
                       body.size());
  }
  const size_t range = request.find("Range: bytes=");
  if (!ranges_ || range == std::string::npos) return http_reply("200 OK", body, {modified});
  char* end = nullptr;
  const uint64_t first = std::strtoull(request.c_str() + range + 13, &end, 10);
  const uint64_t last = std::strtoull(end + 1, nullptr, 10);
  if (first >= body.size()) {
    return http_reply("416 Range Not Satisfiable", "",
                      {fmt::format("Content-Range: bytes */{}", body.size())});
  }
  const std::string part = body.substr(first, std::min<uint64_t>(last - first + 1, body.size()));
  return http_reply("206 Partial Content", part,
                    {modified, fmt::format("Content-Range: bytes {}-{}/{}", first,
                                           first + part.size() - 1, body.size())});
}

}  // namespace kvcodec
