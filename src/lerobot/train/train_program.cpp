#include "lerobot/train/train_program.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <malloc.h>

#include <ATen/Parallel.h>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/base/program.h"
#include "lerobot/base/threads.h"
#include "lerobot/config/command_line.h"
#include "lerobot/config/run_folder.h"
#include "lerobot/policy/registry.h"
#include "lerobot/train/data_only.h"
#include "lerobot/train/session.h"
#include "lerobot/train/training_loop.h"

namespace lerobot::train {
namespace {

namespace fs = std::filesystem;

/// Where a resumed run writes: the recorded folder, unless the checkpoint has been moved elsewhere.
void follow_moved_run(config::TrainConfig& config, bool output_dir_given) {
  if (!config.resume || !config.checkpoint_path || output_dir_given) return;
  const fs::path checkpoints = fs::path(*config.checkpoint_path).parent_path();
  if (checkpoints.filename() != "checkpoints") return;
  const fs::path run = checkpoints.parent_path();
  std::error_code ignored;
  if (config.output_dir && fs::equivalent(run, *config.output_dir, ignored)) return;
  log::info("The run has moved from {} to {}: going on there", config.output_dir.value_or("?"),
            run.string());
  config.output_dir = run.string();
}

/// A run never mixes its files with another one's.
void check_output_dir(const config::TrainConfig& config) {
  const fs::path output_dir = *config.output_dir;
  if (!fs::exists(output_dir)) return;
  if (!fs::is_directory(output_dir)) fail("--output_dir={} is not a folder", output_dir.string());
  if (config.resume) return;
  const bool resumable = !config::step_folders(output_dir / config::kCheckpointsFolder).empty();
  fail("--output_dir={} exists already and --resume is false: choose another folder{}",
       output_dir.string(),
       resumable
           ? fmt::format(", or go on with --resume=true --config_path='{}'", output_dir.string())
           : "");
}

/// A launcher that starts several processes would get as many runs of the whole job.
void refuse_several_processes() {
  const char* world_size = std::getenv("WORLD_SIZE");
  if (world_size != nullptr && std::atoll(world_size) > 1)
    fail("WORLD_SIZE={}: training with several processes is not supported yet; start one process",
         world_size);
}

int run(std::span<const std::string> arguments) {
  const auto& policies = policy::policy_types();
  auto command_line = config::parse_train_command_line(arguments, policies);
  if (command_line.help) {
    std::fputs(config::train_help(policies).c_str(), stdout);
    return 0;
  }
  refuse_several_processes();
  for (const std::string& notice : command_line.notices) log::warning("{}", notice);
  for (const std::string& notice : config::resolve_training_preset(command_line))
    log::info("{}", notice);
  config::TrainConfig& config = command_line.config;
  const bool output_dir_given = command_line.given.contains("output_dir");
  config::resolve_output(config);
  follow_moved_run(config, output_dir_given);

  // Decode threads share the machine with torch's: it gets what this process may use, unless the
  // user has chosen.
  if (std::getenv("OMP_NUM_THREADS") == nullptr) at::set_num_threads(available_cpus());

  // glibc gives threads up to eight arenas a CPU, each of which keeps what was freed in it.
  ::mallopt(M_ARENA_MAX, available_cpus());

  if (config.data_only) return run_data_only(config, output_dir_given);
  check_output_dir(config);
  log::info("{}", to_python_json(config::to_json(config, policies), 4));
  log::info("Logs will be saved locally.");
  Session session = make_session(std::move(config), command_line.given);
  return run_training(session);
}

}  // namespace

int train_program(std::span<const std::string> arguments) {
  return run_program("lerobot-train", [&] { return run(arguments); });
}

}  // namespace lerobot::train
