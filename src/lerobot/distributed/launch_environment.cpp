#include "lerobot/distributed/launch_environment.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "lerobot/base/error.h"

namespace lerobot::distributed {
namespace {

constexpr std::int64_t kMostRanks = 1 << 20;
constexpr std::int64_t kLastPort = 65535;

/// Reads the numbers of one launcher's group of variables.
class Group {
 public:
  Group(const Environment& environment, std::string_view launcher)
      : environment_(environment), launcher_(launcher) {}

  /// Throws when one of the variables is not set.
  void require(std::span<const char* const> names) const {
    std::vector<std::string_view> missing, found;
    for (const char* name : names)
      (find_variable(environment_, name) != nullptr ? found : missing).emplace_back(name);
    if (!missing.empty())
      fail(
          "{}'s variables are set only in part: {} {} missing beside {}. Start the program with a "
          "launcher that sets all of them, or unset the ones that are left over",
          launcher_, fmt::join(missing, ", "), missing.size() == 1 ? "is" : "are",
          fmt::join(found, ", "));
  }

  const std::string& text(const char* name) const { return *find_variable(environment_, name); }

  std::int64_t number(const char* name, std::int64_t least, std::int64_t most) const {
    const std::string& value = text(name);
    std::int64_t number = 0;
    const char* end = value.data() + value.size();
    const auto [stop, problem] = std::from_chars(value.data(), end, number);
    if (problem != std::errc() || stop != end)
      fail("environment variable {}: expected an integer, found \"{}\"", name, value);
    if (number < least || number > most)
      fail("environment variable {}: expected {} to {}, found {}", name, least, most, number);
    return number;
  }

  /// A rank and the number of ranks.
  std::pair<std::int64_t, std::int64_t> place(const char* rank, const char* size) const {
    const std::int64_t ranks = number(size, 1, kMostRanks);
    const std::int64_t mine = number(rank, 0, kMostRanks);
    if (mine >= ranks)
      fail("environment variables {}={} and {}={} contradict each other: ranks are 0 to {}", rank,
           mine, size, ranks, ranks - 1);
    return {mine, ranks};
  }

  std::uint16_t port() const {
    return static_cast<std::uint16_t>(number("MASTER_PORT", 1, kLastPort));
  }

  bool has(const char* name) const { return find_variable(environment_, name) != nullptr; }

 private:
  const Environment& environment_;
  std::string_view launcher_;
};

void check_address(const LaunchEnvironment& launch) {
  if (launch.master_addr.empty())
    fail("environment variable MASTER_ADDR: expected a host, found nothing");
  if (launch.local_world_size > launch.world_size)
    fail(
        "{} ranks on this machine are more than the {} of the whole job: see LOCAL_WORLD_SIZE and "
        "WORLD_SIZE, or what your launcher calls them",
        launch.local_world_size, launch.world_size);
}

/// A port below the ones that the kernel gives to outgoing connections, the same for all ranks of
/// a job.
std::uint16_t port_of_job(std::uint64_t job) {
  constexpr std::uint64_t kFirst = 20000, kCount = 10000;
  return static_cast<std::uint16_t>(kFirst + job % kCount);
}

std::uint64_t number_of_text(std::string_view text) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

// --- torchrun, lerobot-launch -----------------------------------------------------------------

std::optional<LaunchEnvironment> read_torchrun(const Environment& environment) {
  constexpr std::array kNames = {"RANK",        "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                 "MASTER_ADDR", "MASTER_PORT"};
  const Group group(environment, "torchrun");
  // The address alone is what people export for srun and mpirun.
  if (!group.has("RANK") && !group.has("WORLD_SIZE") && !group.has("LOCAL_RANK"))
    return std::nullopt;
  group.require(kNames);
  LaunchEnvironment launch;
  std::tie(launch.rank, launch.world_size) = group.place("RANK", "WORLD_SIZE");
  std::tie(launch.local_rank, launch.local_world_size) =
      group.place("LOCAL_RANK", "LOCAL_WORLD_SIZE");
  launch.master_addr = group.text("MASTER_ADDR");
  launch.master_port = group.port();
  launch.launcher_serves_store = group.has("TORCHELASTIC_USE_AGENT_STORE") &&
                                 group.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (group.has("TORCHELASTIC_RESTART_COUNT"))
    launch.restart_count = group.number("TORCHELASTIC_RESTART_COUNT", 0, kMostRanks);
  return launch;
}

// --- Open MPI ---------------------------------------------------------------------------------

/// What names the job of mpirun, the same in all of its processes.
std::uint16_t port_of_mpirun(const Group& group) {
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"})
    if (group.has(name)) return port_of_job(number_of_text(group.text(name)));
  return port_of_job(0);
}

std::optional<LaunchEnvironment> read_mpirun(const Environment& environment) {
  constexpr std::array kNames = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                 "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
  const Group group(environment, "mpirun");
  if (std::none_of(kNames.begin(), kNames.end(), [&](const char* name) { return group.has(name); }))
    return std::nullopt;
  group.require(kNames);
  LaunchEnvironment launch;
  std::tie(launch.rank, launch.world_size) = group.place(kNames[0], kNames[1]);
  std::tie(launch.local_rank, launch.local_world_size) = group.place(kNames[2], kNames[3]);
  if (group.has("MASTER_ADDR"))
    launch.master_addr = group.text("MASTER_ADDR");
  else if (launch.local_world_size != launch.world_size)
    fail(
        "mpirun started {} ranks on several machines, and MASTER_ADDR does not say where rank 0 "
        "is: pass the address of its machine with -x MASTER_ADDR=HOST",
        launch.world_size);
  launch.master_port = group.has("MASTER_PORT") ? group.port() : port_of_mpirun(group);
  return launch;
}

// --- Slurm ------------------------------------------------------------------------------------

/// The first of the variables that is set: Slurm says the same thing of a step and of its job.
const char* first_set(const Group& group, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (group.has(name)) return name;
  return nullptr;
}

/// Tasks of the node with the given index in a list such as "4(x2),3".
std::int64_t tasks_of_node(const char* name, const std::string& list, std::int64_t node) {
  const char* at = list.data();
  const char* const end = at + list.size();
  const auto number = [&](std::int64_t& value) {
    const auto [stop, problem] = std::from_chars(at, end, value);
    at = stop;
    return problem == std::errc();
  };
  std::int64_t passed = 0;
  while (at < end) {
    std::int64_t tasks = 0, nodes = 1;
    if (!number(tasks)) break;
    if (std::string_view(at, end).starts_with("(x")) {
      at += 2;
      if (!number(nodes) || at == end || *at++ != ')') break;
    }
    passed += nodes;
    if (node < passed) return tasks;
    if (at == end || *at++ != ',') break;
  }
  fail("environment variable {}=\"{}\" does not say how many tasks node {} has", name, list, node);
}

std::uint16_t port_of_slurm(const Group& group) {
  const char* job = first_set(group, {"SLURM_JOB_ID", "SLURM_JOBID"});
  if (job == nullptr)
    fail(
        "neither SLURM_JOB_ID nor MASTER_PORT is set: the port at which the ranks meet is unknown");
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  // Steps of one job may run at once.
  constexpr std::uint64_t kBetweenJobs = 17;
  return port_of_job(static_cast<std::uint64_t>(group.number(job, 0, kMost)) * kBetweenJobs +
                     static_cast<std::uint64_t>(group.number("SLURM_STEP_ID", 0, kMost)));
}

std::optional<LaunchEnvironment> read_slurm(const Environment& environment) {
  const Group group(environment, "srun");
  const char* size = first_set(group, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  if (!group.has("SLURM_STEP_ID") || size == nullptr || group.number(size, 1, kMostRanks) == 1)
    return std::nullopt;
  group.require(std::array{"SLURM_PROCID", "SLURM_LOCALID"});
  LaunchEnvironment launch;
  std::tie(launch.rank, launch.world_size) = group.place("SLURM_PROCID", size);
  launch.local_rank = group.number("SLURM_LOCALID", 0, kMostRanks);

  const char* tasks = first_set(group, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (tasks == nullptr)
    fail("srun's variables are set only in part: SLURM_STEP_TASKS_PER_NODE is missing");
  const std::int64_t node =
      group.has("SLURM_NODEID") ? group.number("SLURM_NODEID", 0, kMostRanks) : 0;
  launch.local_world_size = tasks_of_node(tasks, group.text(tasks), node);
  if (launch.local_rank >= launch.local_world_size)
    fail("environment variables SLURM_LOCALID={} and {}={} contradict each other",
         launch.local_rank, tasks, group.text(tasks));

  if (group.has("MASTER_ADDR")) {
    launch.master_addr = group.text("MASTER_ADDR");
  } else {
    const char* nodes =
        first_set(group, {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"});
    if (nodes == nullptr)
      fail("srun's variables are set only in part: SLURM_STEP_NODELIST is missing");
    launch.master_addr = first_slurm_node(group.text(nodes));
  }
  launch.master_port = group.has("MASTER_PORT") ? group.port() : port_of_slurm(group);
  return launch;
}

bool says_no(std::string_view value) {
  return value.size() == 2 && (value[0] == 'n' || value[0] == 'N') &&
         (value[1] == 'o' || value[1] == 'O');
}

bool configures_an_engine(const Environment& environment, std::string_view name) {
  constexpr std::array<std::string_view, 3> kNames = {"ACCELERATE_USE_FSDP",
                                                      "ACCELERATE_USE_PARALLELISM_CONFIG",
                                                      "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"};
  if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) return true;
  if (name.starts_with("ACCELERATE_DYNAMO_")) {
    const std::string* engine = find_variable(environment, "ACCELERATE_DYNAMO_BACKEND");
    return engine == nullptr || !says_no(*engine);
  }
  return name.starts_with("FSDP_") || name.starts_with("PARALLELISM_CONFIG_");
}

}  // namespace

std::string first_slurm_node(std::string_view list) {
  std::string node;
  std::size_t at = 0;
  for (; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      node += list[at];
      continue;
    }
    const std::size_t close = list.find(']', at);
    const std::size_t end = list.find_first_of("-,]", at);
    if (close == std::string_view::npos) break;
    node += list.substr(at + 1, end - at - 1);
    at = close;
  }
  if (node.empty() || (at < list.size() && list[at] == '['))
    fail("Slurm's list of nodes \"{}\" is not understood: set MASTER_ADDR to the machine of rank 0",
         list);
  return node;
}

std::optional<LaunchEnvironment> read_launch_environment(const Environment& environment) {
  for (const auto read : {read_torchrun, read_mpirun, read_slurm})
    if (const auto launch = read(environment)) {
      check_address(*launch);
      return launch->world_size > 1 ? launch : std::nullopt;
    }
  return std::nullopt;
}

std::optional<LaunchEnvironment> read_launch_environment() {
  return read_launch_environment(current_environment());
}

void refuse_accelerate_environment(const Environment& environment) {
  const std::string* allowed = find_variable(environment, "LEROBOT_ALLOW_ACCELERATE_ENV");
  if (allowed != nullptr && !allowed->empty()) return;
  for (const auto& [name, value] : environment)
    if (configures_an_engine(environment, name))
      fail(
          "the environment variable {}={} configures an engine of accelerate, which this trainer "
          "does not read: use --parallelism.* and --accelerator.*, start `accelerate launch` "
          "without a configuration of its own, or set LEROBOT_ALLOW_ACCELERATE_ENV=1 to go on "
          "regardless",
          name, value);
}

void refuse_accelerate_environment() { refuse_accelerate_environment(current_environment()); }

}  // namespace lerobot::distributed
