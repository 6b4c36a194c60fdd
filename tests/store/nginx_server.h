// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server_process.h"
#include "temp_dir.h"

namespace kvcodec {

// nginx on a folder of its own, plain and with TLS.
class Nginx {
 public:
  explicit Nginx(const std::string& certificate_host = "IP:127.0.0.1")
      : port_(free_port()), tls_port_(free_port()), certificates_(dir_.path(), certificate_host) {
    std::filesystem::create_directories(dir_ / "www/kv");
    const std::string user = ::geteuid() == 0 ? "user root;\n" : "";
    write_text(dir_ / "nginx.conf",
               user + "daemon off; master_process off; pid " + (dir_ / "pid") + "; error_log " +
                   (dir_ / "error.log") + ";\nevents {}\nhttp { access_log off; root " +
                   (dir_ / "www") + "; client_body_temp_path " + (dir_ / "t1") +
                   "; proxy_temp_path " + (dir_ / "t2") + "; fastcgi_temp_path " + (dir_ / "t3") +
                   "; uwsgi_temp_path " + (dir_ / "t4") + "; scgi_temp_path " + (dir_ / "t5") +
                   ";\nserver { listen 127.0.0.1:" + std::to_string(port_) +
                   "; location /moved/ { rewrite ^/moved/(.*)$ /kv/$1 redirect; }\n"
                   "location /guarded/ { alias " +
                   (dir_ / "www/kv") +
                   "/; auth_basic x; "
                   "auth_basic_user_file " +
                   (dir_ / "passwd") +
                   "; } }\n"
                   "server { listen 127.0.0.1:" +
                   std::to_string(tls_port_) + " ssl; ssl_certificate " +
                   certificates_.certificate + "; ssl_certificate_key " + certificates_.key +
                   "; } }\n");
    write_text(dir_ / "passwd", "user:{PLAIN}pass word\n");
    process_.emplace(
        std::vector<std::string>{"nginx", "-e", dir_ / "error.log", "-c", dir_ / "nginx.conf"},
        dir_ / "log");
    process_->await(port_);
  }
  void write(const std::string& name, std::span<const std::byte> bytes) const {
    const std::filesystem::path path = dir_ / ("www/kv/" + name);
    std::filesystem::create_directories(path.parent_path());
    write_text(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  std::string url(const std::string& path, const std::string& login = {}) const {
    return "http://" + login + "127.0.0.1:" + std::to_string(port_) + path;
  }
  std::string tls_url(const std::string& path) const {
    return "https://127.0.0.1:" + std::to_string(tls_port_) + path;
  }
  const std::string& ca_file() const { return certificates_.ca; }
  std::filesystem::path folder() const { return dir_ / "www"; }
  uint16_t port() const { return port_; }
  static bool installed() { return is_installed("nginx"); }

 private:
  TempDir dir_;
  uint16_t port_, tls_port_;
  TestCertificates certificates_;
  std::optional<ServerProcess> process_;
};

}  // namespace kvcodec
