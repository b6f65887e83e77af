#include "lerobot/distributed/world.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <exception>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "lerobot/base/error.h"
#include "lerobot/base/interrupt.h"
#include "lerobot/distributed/communicator_state.h"
#include "lerobot/distributed/rendezvous.h"

namespace lerobot::distributed {
namespace {

std::chrono::milliseconds seconds_of(const Environment& environment, std::string_view name,
                                     std::chrono::milliseconds otherwise) {
  constexpr std::int64_t kMost = 365 * 24 * 3600;
  const std::string* text = find_variable(environment, name);
  if (text == nullptr) return otherwise;
  std::int64_t number = 0;
  const char* end = text->data() + text->size();
  const auto [stop, problem] = std::from_chars(text->data(), end, number);
  if (problem != std::errc() || stop != end || number < 1 || number > kMost)
    fail("environment variable {}: expected whole seconds from 1 to {}, found \"{}\"", name, kMost,
         *text);
  return std::chrono::seconds(number);
}

/// Gloo writes to the sockets of ranks that are gone: that is to be an error, not a signal.
void ignore_broken_pipes() {
  struct sigaction current {};
  if (::sigaction(SIGPIPE, nullptr, &current) != 0 || current.sa_handler != SIG_DFL) return;
  current.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &current, nullptr);
}

/// However long it takes. Throws when a rank is gone meanwhile.
std::string wait_for(c10d::Store& store, const std::string& key, RankMonitor& monitor) {
  constexpr std::chrono::milliseconds kBetweenLooks{200};
  constexpr const char* kOperation = "waiting for rank 0";
  const int before = InterruptGuard::received();  // of a run that ends in order already
  try {
    while (!store.check({key})) {
      if (before == 0) throw_when_interrupted();
      monitor.check(kOperation);
      std::this_thread::sleep_for(kBetweenLooks);
    }
    const auto bytes = store.get(key);
    return {bytes.begin(), bytes.end()};
  } catch (const c10::Error& error) {
    monitor.fail_operation(kOperation, error.what_without_backtrace());
  }
}

}  // namespace

WorldOptions read_world_options(const Environment& environment) {
  WorldOptions options;
  options.start_timeout = seconds_of(environment, "LEROBOT_START_TIMEOUT_S", options.start_timeout);
  options.operation_timeout =
      seconds_of(environment, "LEROBOT_OPERATION_TIMEOUT_S", options.operation_timeout);
  options.silence_limit = seconds_of(environment, "LEROBOT_SILENCE_LIMIT_S", options.silence_limit);
  return options;
}

WorldOptions read_world_options() { return read_world_options(current_environment()); }

/// The group of a thread beside the training thread.
constexpr const char* kBackground = "background";

// Members go in the reverse order: the groups first, the store and the monitor's farewell last.
struct World::State {
  Mesh mesh;
  std::int64_t local_rank = 0;
  int exceptions = std::uncaught_exceptions();
  Meeting meeting;
  Communicator all;
  Communicator shards;
  Communicator replicas;
  Communicator background;
  std::shared_ptr<StepClock> clock;
  int from_main_calls = 0;

  ~State() {
    if (!meeting.monitor) return;
    if (std::uncaught_exceptions() > exceptions)
      meeting.monitor->report_failure("an error that its own log names");
    else
      meeting.monitor->leave();
  }

  void build_groups(at::Device device, const WorldOptions& options) {
    const std::string address = meeting.monitor->reachable_address();
    const auto build = [&](const std::string& name, std::int64_t rank, std::int64_t size,
                           at::Device carried) {
      return make_communicator(c10::make_intrusive<c10d::PrefixStore>(name, meeting.store),
                               meeting.monitor,
                               {rank, size, carried, options.operation_timeout, address,
                                name == kBackground ? nullptr : clock});
    };
    all = build("all", mesh.rank, mesh.world_size(), device);
    background = build(kBackground, mesh.rank, mesh.world_size(), at::kCPU);
    if (mesh.dp_shard == mesh.world_size())
      shards = all;
    else if (mesh.dp_shard > 1)
      shards = build(fmt::format("shards/{}", mesh.replica()), mesh.shard(), mesh.dp_shard, device);
    if (mesh.dp_replicate == mesh.world_size())
      replicas = all;
    else if (mesh.dp_replicate > 1)
      replicas = build(fmt::format("replicas/{}", mesh.shard()), mesh.replica(), mesh.dp_replicate,
                       device);
    // Rank 0 may end at once, and its store with it: nobody needs it after this.
    all.barrier();
  }
};

World::World(at::Device device) : state_(std::make_unique<State>()) {
  state_->clock = std::make_shared<StepClock>(device);
}

World::World(const LaunchEnvironment& environment, const Mesh& mesh, at::Device device,
             const WorldOptions& options)
    : World(device) {
  check_internal(mesh.rank == environment.rank && mesh.world_size() == environment.world_size,
                 "a mesh of other processes than the launcher's");
  state_->mesh = mesh;
  state_->local_rank = environment.local_rank;
  if (mesh.world_size() == 1) return;
  ignore_broken_pipes();
  state_->meeting = meet(environment, mesh, options);
  try {
    state_->build_groups(device, options);
  } catch (const std::exception& error) {
    report_failure(error.what());
    throw;
  }
}

World::World(World&&) noexcept = default;
World& World::operator=(World&&) noexcept = default;
World::~World() = default;

const Mesh& World::mesh() const { return state_->mesh; }
std::int64_t World::local_rank() const { return state_->local_rank; }
const Communicator& World::all() const { return state_->all; }
const Communicator& World::shards() const { return state_->shards; }
const Communicator& World::replicas() const { return state_->replicas; }
const Communicator& World::background() const { return state_->background; }

StepClock& World::clock() const { return *state_->clock; }

std::string World::from_main(const std::function<std::string()>& work) const {
  if (size() == 1) return work();
  const std::string key = fmt::format("from_main/{}", state_->from_main_calls++);
  std::string text;
  if (is_main()) {
    text = work();
    state_->meeting.store->set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
  } else {
    text = wait_for(*state_->meeting.store, key, *state_->meeting.monitor);
  }
  // Rank 0 may end at once, and its store with it.
  all().barrier();
  return text;
}

void World::report_failure(const std::string& message) const {
  if (state_->meeting.monitor) state_->meeting.monitor->report_failure(message);
}

at::Device rank_device(at::Device device, std::int64_t local_rank) {
  if (!device.is_cuda()) return device;
  const std::int64_t gpus = at::detail::getCUDAHooks().deviceCount();
  const std::int64_t index = device.has_index() ? device.index() : local_rank;
  if (index >= gpus)
    fail(
        "rank {} of this machine needs cuda:{}, and {} GPUs are visible here: launch at most as "
        "many "
        "processes on a machine as it has GPUs, or use --policy.device=cpu",
        local_rank, index, gpus);
  const at::Device own(at::kCUDA, static_cast<at::DeviceIndex>(index));
  c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(own);
  return own;
}

}  // namespace lerobot::distributed
