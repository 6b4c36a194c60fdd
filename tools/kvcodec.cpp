// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "commands.h"
#include "kvcodec/version.h"
#include "output.h"

int main(int argc, char** argv) {
  using namespace kvcodec::tools;
  CLI::App app{"KVCodec: KV caches of language models as lossless HEVC pictures"};
  app.set_version_flag("--version", "kvcodec " KVCODEC_VERSION_STRING);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  kvcodec encode kv.safetensors -o chunk.kvc --tier int8 --rope interleaved:100000\n"
      "  kvcodec publish --store file:///var/cache/kv --model model.gguf --text document.txt\n"
      "  kvcodec fetch --store file:///var/cache/kv --model model.gguf --text document.txt \\\n"
      "                --prompt 'What is this about?'\n"
      "  kvcodec ls --store file:///var/cache/kv\n"
      "`kvcodec COMMAND --help` shows a command's options and examples.\n\n"
      "Exit codes: 0 done; 1 a check failed; 2 wrong usage; 11 invalid argument; 12 not found;\n"
      "13 corrupt; 14 unsupported; 15 unavailable; 16 io; 17 out of memory; 18 device;\n"
      "19 internal; 20 cancelled");
  Outcome outcome;
  add_encode(app, outcome);
  add_decode(app, outcome);
  add_info(app, outcome);
  add_verify(app, outcome);
  add_publish(app, outcome);
  add_fetch(app, outcome);
  add_ls(app, outcome);
  add_rm(app, outcome);
  add_gc(app, outcome);
  add_bench(app, outcome);
  add_eval(app, outcome);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11's own codes would clash with ours; help and version are not errors.
    return app.exit(error) == 0 ? 0 : kUsageExit;
  } catch (const std::bad_alloc&) {
    return report_error({kvcodec::ErrorCode::out_of_memory, "out of memory"}, false);
  }
  return outcome.exit_code;
}
