// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace kvcodec::tools {

// Every command stores its exit code here when it has run.
struct Outcome {
  int exit_code = 0;
};

void add_encode(CLI::App& app, Outcome& outcome);
void add_decode(CLI::App& app, Outcome& outcome);
void add_info(CLI::App& app, Outcome& outcome);
void add_verify(CLI::App& app, Outcome& outcome);
void add_publish(CLI::App& app, Outcome& outcome);
void add_fetch(CLI::App& app, Outcome& outcome);
void add_ls(CLI::App& app, Outcome& outcome);
void add_rm(CLI::App& app, Outcome& outcome);
void add_gc(CLI::App& app, Outcome& outcome);
void add_bench(CLI::App& app, Outcome& outcome);
void add_eval(CLI::App& app, Outcome& outcome);

}  // namespace kvcodec::tools
