// hub_get TYPE ID REVISION CACHE [PATTERN...]
//
// Downloads the files of a repository that one of the patterns matches (none: all) and prints the
// folder of the snapshot. TYPE is model or dataset. With HUB_GET_VERBOSE the log tells the
// progress.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/base/interrupt.h"
#include "lerobot/hub/snapshot.h"

namespace {

using namespace lerobot;

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 4) fail_usage("expected TYPE ID REVISION CACHE [PATTERN...]");
  const auto type = arguments[0] == "model" ? hub::RepoType::kModel : hub::RepoType::kDataset;
  const std::vector<std::string> patterns(arguments.begin() + 4, arguments.end());
  hub::SnapshotOptions options;
  if (!patterns.empty())
    options.wanted = [&](std::string_view path) { return hub::matches_any(path, patterns); };
  const auto log = hub::log_download(arguments[1]);
  options.progress = [&log](const hub::TransferProgress& progress) {
    throw_when_interrupted();
    if (std::getenv("HUB_GET_VERBOSE")) log(progress);
  };
  const InterruptGuard guard("stopping\n");
  hub::HubClient client(hub::HubEnvironment::read());
  const hub::Snapshot snapshot = hub::download_snapshot(client, hub::make_repo(type, arguments[1]),
                                                        arguments[2], arguments[3], options);
  std::printf("%s\n", snapshot.folder.c_str());
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run({arguments + 1, arguments + count});
  } catch (const Error& error) {
    std::fprintf(stderr, "hub_get: %s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hub_get: %s\n", error.what());
    return 1;
  }
}
