#include "lerobot/train/train_program.h"

#include <algorithm>
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
#include "lerobot/distributed/launch_environment.h"
#include "lerobot/distributed/world.h"
#include "lerobot/policy/registry.h"
#include "lerobot/train/data_only.h"
#include "lerobot/train/hub_files.h"
#include "lerobot/train/layout.h"
#include "lerobot/train/profile/torch_profiler.h"
#include "lerobot/train/publishing.h"
#include "lerobot/train/report/report.h"
#include "lerobot/train/session.h"
#include "lerobot/train/torch_errors.h"
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

/// What is the same on all ranks goes to the log once, from rank 0; what concerns one rank, with
/// its number.
void log_as_rank(std::int64_t rank) {
  log::set_rank(rank);
  log::set_level(rank == 0 ? log::Level::kInfo : log::Level::kWarning);
}

/// Decode threads share the machine with torch's, and so do the other ranks: torch gets this rank's
/// share of what it may use, unless the user (or torchrun) has chosen.
void set_thread_counts(std::int64_t local_world_size) {
  if (std::getenv("OMP_NUM_THREADS") == nullptr)
    at::set_num_threads(std::max(
        1, available_cpus() / static_cast<int>(std::max<std::int64_t>(local_world_size, 1))));

  // glibc gives threads up to eight arenas a CPU, each of which keeps what was freed in it.
  ::mallopt(M_ARENA_MAX, available_cpus());
}

int train(config::TrainCommandLine& command_line, const distributed::World& world,
          at::Device device) {
  config::TrainConfig& config = command_line.config;
  // The default has the time in it.
  config.output_dir = world.all().broadcast_text(*config.output_dir);
  follow_moved_run(config, command_line.given.contains("output_dir"));
  if (world.is_main()) {
    check_output_dir(config);
    check_publishing(config);
  }
  log::info("{}", to_python_json(config::to_json(config, policy::policy_types()), 4));
  log::info("Logs will be saved locally.");
  // Every rank builds the same: rank 0 warns for all.
  if (!world.is_main()) log::set_level(log::Level::kError);
  Session session = make_session(std::move(config), command_line.given, world, device);
  log_as_rank(world.rank());
  return run_training(session);
}

/// The others hear why this rank ends.
template <class F>
int reporting_to(const distributed::World& world, const F& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    world.report_failure(message_of(error));
    throw;
  }
}

int run(std::span<const std::string> arguments) {
  if (asks_for_report(arguments)) return report_program(arguments);
  const auto& policies = policy::policy_types();
  auto command_line = config::parse_train_command_line(arguments, policies, hub_files());
  if (command_line.help) {
    std::fputs(config::train_help(policies).c_str(), stdout);
    return 0;
  }
  distributed::refuse_accelerate_environment();
  const auto launch =
      distributed::read_launch_environment().value_or(distributed::LaunchEnvironment());
  log_as_rank(launch.rank);
  if (launch.rank == 0)
    for (const std::string& notice : command_line.notices) log::warning("{}", notice);
  for (const std::string& notice : config::resolve_training_preset(command_line))
    log::info("{}", notice);
  config::TrainConfig& config = command_line.config;
  const bool output_dir_given = command_line.given.contains("output_dir");
  config::resolve_output(config);
  set_thread_counts(launch.local_world_size);
  const distributed::Mesh mesh =
      resolve_layout(config, command_line.given, launch.rank, launch.world_size);
  if (config.data_only)
    return run_data_only(config, {.world = launch.world_size, .rank = launch.rank},
                         output_dir_given);

  const at::Device device = distributed::rank_device(choose_device(config), launch.local_rank);
  const distributed::World world = launch.world_size == 1
                                       ? distributed::World(device)
                                       : distributed::World(launch, mesh, device);
  return reporting_to(world, [&] { return train(command_line, world, device); });
}

/// What torch says about an operation that it could not do, without the call stack behind it.
int run_without_call_stacks(std::span<const std::string> arguments) {
  try {
    return run(arguments);
  } catch (const c10::Error& error) {
    throw Error(message_of(error));
  }
}

}  // namespace

int train_program(std::span<const std::string> arguments) {
  keep_torch_profiler_quiet();
  return run_program("lerobot-train", [&] { return run_without_call_stacks(arguments); });
}

}  // namespace lerobot::train
