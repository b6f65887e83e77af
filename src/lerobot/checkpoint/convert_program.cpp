#include "lerobot/checkpoint/convert_program.h"

#include <chrono>
#include <cstdio>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "lerobot/base/error.h"
#include "lerobot/base/interrupt.h"
#include "lerobot/base/log.h"
#include "lerobot/base/program.h"
#include "lerobot/checkpoint/dcp_convert.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/config/arguments.h"
#include "lerobot/config/nearest_name.h"
#include "lerobot/config/run_folder.h"
#include "lerobot/config/text_value.h"
#include "lerobot/hub/account.h"
#include "lerobot/hub/hub_client.h"
#include "lerobot/hub/repo.h"
#include "lerobot/hub/upload.h"

namespace lerobot::checkpoint {
namespace {

constexpr const char* kHelp =
    R"(usage: lerobot-convert-dcp --checkpoint_dir=FOLDER [options]

Merges the sharded weights of a checkpoint (pytorch_model_fsdp_0/) into model.safetensors beside
them, so that from_pretrained and --policy.path load it; an adapter's into
adapter_model.safetensors.

  --checkpoint_dir=FOLDER  the checkpoint, its pretrained_model folder, or the run's folder, whose
                           last checkpoint is taken
  --delete_dcp=BOOL        remove the shards when the file is complete; a sharded run can then no
                           longer resume from this checkpoint (default: false)
  --push_to_hub=REPO       publish the converted folder, without the shards, as the model OWNER/NAME
                           on the Hub (default: null)
  --help                   show this text
)";

constexpr double kMegabyte = 1e6;

/// Collects mistakes, so that the user sees all of them at once.
class Parser {
 public:
  ConvertArguments parse(std::span<const std::string> words) {
    const config::Arguments split = config::split_arguments(words);
    result_.help = split.help;
    if (result_.help) return result_;
    for (const config::Problem& problem : split.problems) mistakes_.push_back(problem.message);
    for (const auto& [name, text] : split.arguments) take(name, text);
    if (!given_folder_ && mistakes_.empty()) mistakes_.emplace_back("--checkpoint_dir is required");
    if (!mistakes_.empty()) throw UsageError(fmt::format("{}", fmt::join(mistakes_, "\n")));
    return result_;
  }

 private:
  void take(const std::string& name, const std::string& text) {
    if (name == "checkpoint_dir") return take_folder(text);
    const Json value = config::parse_value(text);
    if (name == "delete_dcp") {
      if (value.is_boolean())
        result_.delete_dcp = value.get<bool>();
      else
        mistakes_.push_back(fmt::format("--delete_dcp={}: expected true or false", text));
    } else if (name == "push_to_hub") {
      take_repository(value, text);
    } else {
      const std::vector<std::string> names = {"checkpoint_dir", "delete_dcp", "push_to_hub"};
      const std::string nearest = config::nearest_name(name, names);
      mistakes_.push_back(
          fmt::format("unknown option --{}{}", name,
                      nearest.empty() ? "" : fmt::format("; did you mean --{}?", nearest)));
    }
  }

  void take_repository(const Json& value, const std::string& text) {
    if (value.is_null()) return;
    try {
      result_.push_to_hub = hub::make_repo(hub::RepoType::kModel, text).id;
      if (text.find('/') == std::string::npos)
        mistakes_.push_back(fmt::format("--push_to_hub={}: expected OWNER/NAME", text));
    } catch (const UsageError& error) {
      mistakes_.push_back(fmt::format("--push_to_hub: {}", error.what()));
    }
  }

  void take_folder(const std::string& text) {
    given_folder_ = true;
    result_.checkpoint_dir = text;
    if (text.empty()) mistakes_.emplace_back("--checkpoint_dir is empty");
  }

  ConvertArguments result_;
  bool given_folder_ = false;
  std::vector<std::string> mistakes_;
};

/// Every few seconds a line; the way out when a signal has arrived.
class Report {
 public:
  void operator()(const ConvertProgress& progress) {
    throw_when_interrupted();
    const auto now = Clock::now();
    if (now - written_ < kInterval) return;
    written_ = now;
    log::info("Merged {}/{} tensors, {:.0f}/{:.0f} MB", progress.tensors, progress.all_tensors,
              static_cast<double>(progress.bytes) / kMegabyte,
              static_cast<double>(progress.all_bytes) / kMegabyte);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kInterval{2};
  Clock::time_point written_ = Clock::now();
};

/// Before the work: the Hub is asked whether the token may publish there.
void check_may_push(const ConvertArguments& arguments) {
  if (!arguments.push_to_hub) return;
  hub::HubClient client(hub::HubEnvironment::read());
  hub::check_may_publish(client, hub::make_repo(hub::RepoType::kModel, *arguments.push_to_hub));
}

/// The folder of a checkpoint whose shards have been merged and removed: only its upload is left to
/// do. nullopt for any other.
std::optional<fs::path> merged_folder(const ConvertArguments& arguments) {
  if (!arguments.push_to_hub) return std::nullopt;
  fs::path folder = config::find_pretrained(arguments.checkpoint_dir);
  if (fs::exists(folder / kShardedModelFolder)) return std::nullopt;
  if (!fs::exists(folder / kModelFile) && !fs::exists(folder / kAdapterModelFile))
    return std::nullopt;
  return folder;
}

/// The converted folder stays as it is when it can't be published.
void publish(const fs::path& folder, const std::string& repo_id) {
  try {
    hub::HubClient client(hub::HubEnvironment::read());
    const hub::Repo repo = hub::make_repo(hub::RepoType::kModel, repo_id);
    const std::string page = hub::create_repo(client, repo, std::nullopt);
    const auto is_no_shard = [](const std::string& path) {
      return !path.starts_with(fmt::format("{}/", kShardedModelFolder));
    };
    const auto report = hub::log_upload(repo_id);
    hub::upload_commit(client, repo,
                       {.message = "Upload converted policy (DCP -> safetensors)",
                        .files = hub::folder_files(folder, "", is_no_shard)},
                       {.progress = [&](const hub::TransferProgress& progress) {
                         throw_when_interrupted();
                         report(progress);
                       }});
    fmt::print("Pushed to {}\n", page);
  } catch (const Interrupted&) {
    throw;
  } catch (const Error& error) {
    fail(
        "the merged weights are complete in {}, but are not published: {}; the same command "
        "publishes them",
        folder.string(), error.what());
  }
}

int run(std::span<const std::string> command_line) {
  const auto begin = std::chrono::steady_clock::now();
  const ConvertArguments arguments = parse_convert_arguments(command_line);
  if (arguments.help) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  const InterruptGuard interrupts(
      "\nStopping; the checkpoint stays as it was. Once more to stop at once.\n");
  check_may_push(arguments);
  if (const auto merged = merged_folder(arguments)) {
    log::info("{} has been merged already; publishing it", merged->string());
    publish(*merged, *arguments.push_to_hub);
    return 0;
  }
  const fs::path folder = find_sharded_model(arguments.checkpoint_dir);
  ConvertOptions options;
  options.delete_dcp = arguments.delete_dcp;
  options.progress = Report();
  const Converted converted = convert_dcp(folder, options);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  fmt::print("Wrote {}\n", converted.file.string());
  fmt::print("{} tensors, {:.1f} MB, {:.1f} s\n", converted.total.tensors,
             static_cast<double>(converted.total.bytes) / kMegabyte, elapsed.count());
  if (arguments.delete_dcp) fmt::print("Removed the shards\n");
  if (arguments.push_to_hub) publish(folder, *arguments.push_to_hub);
  return 0;
}

}  // namespace

ConvertArguments parse_convert_arguments(std::span<const std::string> arguments) {
  return Parser().parse(arguments);
}

int convert_program(std::span<const std::string> arguments) {
  return run_program(
      "lerobot-convert-dcp", [&] { return run(arguments); },
      "; the checkpoint is as it was, or has been merged as a whole");
}

}  // namespace lerobot::checkpoint
