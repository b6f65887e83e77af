// hub_put TYPE ID BRANCH FOLDER [MESSAGE]
//
// Publishes a folder: makes the repository and, from main, the branch, and uploads all files in one
// commit, whose id it prints, or "unchanged ID". TYPE is model, dataset or bucket; of a Bucket,
// which must be there, BRANCH is ignored and nothing is printed.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/base/interrupt.h"
#include "lerobot/hub/bucket.h"
#include "lerobot/hub/upload.h"

namespace {

using namespace lerobot;

hub::RepoType type_named(const std::string& name) {
  if (name == "model") return hub::RepoType::kModel;
  if (name == "dataset") return hub::RepoType::kDataset;
  if (name == "bucket") return hub::RepoType::kBucket;
  fail_usage("{}: expected model, dataset or bucket", name);
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 4) fail_usage("expected TYPE ID BRANCH FOLDER [MESSAGE]");
  const hub::Repo repo = hub::make_repo(type_named(arguments[0]), arguments[1]);
  const std::string& branch = arguments[2];
  const std::string message =
      arguments.size() > 4 ? arguments[4] : "Upload folder using huggingface_hub";
  const std::vector<hub::UploadFile> files = hub::folder_files(arguments[3], "");

  const InterruptGuard guard("stopping\n");
  hub::HubClient client(hub::HubEnvironment::read());
  const OnInterrupt cancel([&client] { client.cancel(); });
  const hub::UploadOptions options{.progress = hub::log_upload(arguments[1])};
  if (repo.type == hub::RepoType::kBucket) {
    hub::upload_to_bucket(client, repo, files, options);
    return 0;
  }
  hub::create_repo(client, repo, std::nullopt);
  if (branch != "main") hub::create_branch(client, repo, branch, "main");
  const hub::CommitResult result = hub::upload_commit(
      client, repo, {.branch = branch, .message = message, .files = files}, options);
  std::printf("%s%s\n", result.unchanged ? "unchanged " : "", result.commit.c_str());
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run({arguments + 1, arguments + count});
  } catch (const Error& error) {
    std::fprintf(stderr, "hub_put: %s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hub_put: %s\n", error.what());
    return 1;
  }
}
