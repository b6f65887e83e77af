#include "lerobot/train/report/run_state.h"

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <unistd.h>
#include <utility>

#include <torch/headeronly/version.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/base/process.h"
#include "lerobot/config/command_line.h"
#include "lerobot/policy/registry.h"
#include "lerobot/train/panel.h"

namespace lerobot::train {
namespace {

constexpr std::array<RunStatus, 5> kStatuses = {RunStatus::kRunning, RunStatus::kFinished,
                                                RunStatus::kStopped, RunStatus::kFailed,
                                                RunStatus::kDied};

/// Of another machine's processes nothing is known.
bool is_gone(const ProcessIdentity& process) {
  if (process.host != host_name() || process.process <= 0) return false;
  return process_start_ticks(process.process) != process.started_ticks;
}

std::string command_line() {
  std::ifstream stream("/proc/self/cmdline");
  std::string arguments{std::istreambuf_iterator<char>(stream), {}};
  const char* name = std::getenv("LEROBOT_TRAIN_COMMAND");
  std::istringstream parts(arguments);
  std::string text;
  for (std::string part; std::getline(parts, part, '\0');) {
    if (text.empty()) {
      text = name != nullptr ? name : part;
      continue;
    }
    const bool plain = part.find_first_of(" \t\n'\"\\$`(){}[]*?;&|<>#~!") == std::string::npos;
    std::string quoted = "'";
    for (const char c : part) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += " " + (plain && !part.empty() ? part : quoted + "'");
  }
  return text;
}

Json to_json(const RunState& state) {
  Json before = Json::array();
  for (const EarlierRun& run : state.before)
    before.push_back({{"started", run.started},
                      {"updated", run.updated},
                      {"start_step", run.start_step},
                      {"status", run.status},
                      {"host", run.host},
                      {"ranks", run.ranks}});
  return {{"version", 1},
          {"status", name_of(state.status)},
          {"message", state.message},
          {"started", state.started},
          {"updated", state.updated},
          {"host", state.process.host},
          {"process", state.process.process},
          {"process_started_ticks", state.process.started_ticks},
          {"ranks", state.ranks},
          {"device", state.device},
          {"program", state.program},
          {"command", state.command},
          {"folder", state.folder},
          {"start_step", state.start_step},
          {"steps", state.steps},
          {"samples_per_step", state.samples_per_step},
          {"frames", state.frames},
          {"episodes", state.episodes},
          {"learnable_parameters", state.learnable_parameters},
          {"total_parameters", state.total_parameters},
          {"panel", state.panel},
          {"before", before},
          {"configuration", state.configuration}};
}

/// Takes fields out of an object; those that are absent keep their defaults.
auto taker(const Json& json) {
  return [&json](const char* name, auto& value) {
    if (const auto found = json.find(name); found != json.end() && !found->is_null())
      found->get_to(value);
  };
}

EarlierRun earlier_run(const Json& json) {
  EarlierRun run;
  const auto take = taker(json);
  take("started", run.started);
  take("updated", run.updated);
  take("start_step", run.start_step);
  take("status", run.status);
  take("host", run.host);
  take("ranks", run.ranks);
  return run;
}

RunState from_json(const Json& json) {
  RunState state;
  const auto take = taker(json);
  std::string status = name_of(RunStatus::kRunning);
  take("status", status);
  for (const RunStatus each : kStatuses)
    if (status == name_of(each)) state.status = each;
  take("message", state.message);
  take("started", state.started);
  take("updated", state.updated);
  take("host", state.process.host);
  take("process", state.process.process);
  take("process_started_ticks", state.process.started_ticks);
  take("ranks", state.ranks);
  take("device", state.device);
  take("program", state.program);
  take("command", state.command);
  take("folder", state.folder);
  take("start_step", state.start_step);
  take("steps", state.steps);
  take("samples_per_step", state.samples_per_step);
  take("frames", state.frames);
  take("episodes", state.episodes);
  take("learnable_parameters", state.learnable_parameters);
  take("total_parameters", state.total_parameters);
  take("panel", state.panel);
  for (const Json& run : json.value("before", Json::array()))
    state.before.push_back(earlier_run(run));
  take("configuration", state.configuration);
  return state;
}

/// The runs before this one. What can't be read of them is no reason not to begin.
std::vector<EarlierRun> runs_before(const fs::path& folder) {
  try {
    auto previous = read_run_state(folder);
    if (!previous) return {};
    previous->before.push_back({.started = previous->started,
                                .updated = previous->updated,
                                .start_step = previous->start_step,
                                .status = name_of(previous->status),
                                .host = previous->process.host,
                                .ranks = previous->ranks});
    return std::move(previous->before);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

const char* name_of(RunStatus status) {
  switch (status) {
    case RunStatus::kRunning:
      return "running";
    case RunStatus::kFinished:
      return "finished";
    case RunStatus::kStopped:
      return "stopped";
    case RunStatus::kFailed:
      return "failed";
    case RunStatus::kDied:
      break;
  }
  return "died";
}

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

RunState begin_run_state(const Session& session, const std::vector<std::string>& panel) {
  const config::TrainConfig& config = session.config;
  const ParameterCounts parameters = count_parameters(session);
  RunState state;
  state.started = unix_time();
  state.process = {host_name(), ::getpid(), process_start_ticks(::getpid()).value_or(0)};
  state.ranks = session.world->size();
  state.device = session.device.str();
  state.program = fmt::format("lerobot.cpp {}, torch {}.{}.{}", LEROBOT_VERSION,
                              TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH);
  state.command = command_line();
  state.folder = fs::absolute(session.output_dir).lexically_normal().string();
  state.start_step = session.start.step;
  state.steps = config.steps;
  state.samples_per_step = config.batch_size * state.ranks;
  state.frames = session.datasets.frames();
  state.episodes = session.datasets.episodes();
  state.learnable_parameters = parameters.learnable;
  state.total_parameters = parameters.total;
  state.panel = panel;
  state.configuration = config::to_json(config, policy::policy_types());
  if (config.resume) state.before = runs_before(session.output_dir);
  return state;
}

void write_run_state(const fs::path& folder, RunState& state) {
  state.updated = unix_time();
  write_file_atomic(folder / kRunFile, to_python_json(to_json(state), 2) + "\n");
}

std::optional<RunState> read_run_state(const fs::path& folder) {
  const fs::path file = folder / kRunFile;
  if (!fs::exists(file)) return std::nullopt;
  const Json json = read_json_file(file);
  if (!json.is_object()) fail("{}: expected an object, found {}", file.string(), json.type_name());
  try {
    RunState state = from_json(json);
    if (state.status == RunStatus::kRunning && is_gone(state.process))
      state.status = RunStatus::kDied;
    return state;
  } catch (const nlohmann::json::exception& error) {
    fail("{}: {}", file.string(), error.what());
  }
}

}  // namespace lerobot::train
