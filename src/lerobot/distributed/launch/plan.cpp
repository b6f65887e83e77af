#include "lerobot/distributed/launch/plan.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <netinet/in.h>
#include <random>
#include <sys/socket.h>
#include <unistd.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"

namespace lerobot::distributed {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr int kDefaultMasterPort = 29500;    // torchrun's --master-port
constexpr int kDefaultEndpointPort = 29400;  // torchrun's --rdzv-endpoint without a port

// --- Workers and ranks
// ----------------------------------------------------------------------------

int choose_local_workers(const LaunchOptions& options, const Machine& machine, LaunchPlan& plan) {
  const std::string& wanted = options.nproc_per_node;
  if (wanted == "gpu" && machine.cuda_devices == 0)
    fail_usage(
        "--nproc-per-node=gpu: this machine shows no CUDA device (neither "
        "/proc/driver/nvidia/gpus nor /dev/nvidia0, or CUDA_VISIBLE_DEVICES hides them); give a "
        "number, or cpu");
  const bool by_devices = wanted == "gpu" || (wanted == "auto" && machine.cuda_devices > 0);
  if (!by_devices && wanted != "cpu" && wanted != "auto") return std::stoi(wanted);
  const int chosen = by_devices ? machine.cuda_devices : machine.cpus;
  plan.notes.push_back(fmt::format("--nproc-per-node={}: {} workers, one for each {} of {}", wanted,
                                   chosen, by_devices ? "CUDA device" : "CPU", machine.host_name));
  return chosen;
}

int choose_node_rank(const LaunchOptions& options) {
  if (options.nnodes > 1 && !options.node_rank)
    fail_usage(
        "--nnodes={} needs --node-rank, this machine's number from 0 to {}; under Slurm it is "
        "$SLURM_NODEID (machines do not find their numbers by themselves)",
        options.nnodes, options.nnodes - 1);
  const int node_rank = options.node_rank.value_or(0);
  if (node_rank >= options.nnodes)
    fail_usage("--node-rank={}: expected 0 to {}, because --nnodes={}", node_rank,
               options.nnodes - 1, options.nnodes);
  return node_rank;
}

// --- Where rank 0 listens
// -------------------------------------------------------------------------

struct Endpoint {
  std::string host;
  int port = kDefaultEndpointPort;
};

/// HOST, HOST:PORT, [IPv6] or [IPv6]:PORT.
Endpoint parse_endpoint(const std::string& text) {
  const auto refuse = [&](const char* reason) {
    fail_usage("--rdzv-endpoint={}: {}; expected HOST or HOST:PORT, for instance node0:29400", text,
               reason);
  };
  Endpoint endpoint;
  std::string port;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string::npos) refuse("the closing ] is missing");
    endpoint.host = text.substr(1, close - 1);
    if (close + 1 < text.size() && text[close + 1] != ':') refuse("it goes on after the ]");
    if (close + 1 < text.size()) port = text.substr(close + 2);
    if (close + 2 == text.size()) refuse("the port is missing");
  } else {
    const std::size_t colon = text.find(':');
    if (colon != std::string::npos && text.find(':', colon + 1) != std::string::npos)
      refuse("an IPv6 address stands in brackets, as in [::1]:29400");
    endpoint.host = text.substr(0, colon);
    if (colon != std::string::npos) {
      port = text.substr(colon + 1);
      if (port.empty()) refuse("the port is missing");
    }
  }
  if (endpoint.host.empty()) refuse("the host is missing");
  if (port.empty()) return endpoint;
  const char* const end = port.data() + port.size();
  const auto parsed = std::from_chars(port.data(), end, endpoint.port);
  if (parsed.ec != std::errc() || parsed.ptr != end || endpoint.port < 0 || endpoint.port > 65535)
    refuse("the port is no number from 0 to 65535");
  return endpoint;
}

std::string without_brackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

void choose_endpoint(const LaunchOptions& options, LaunchPlan& plan) {
  if (options.standalone) {
    if (options.nnodes > 1) fail_usage("--standalone is for one machine, --nnodes={}", plan.nodes);
    plan.master_addr = kLoopback;
    plan.master_port = 0;
    return;
  }
  if (!options.rdzv_endpoint.empty()) {
    const Endpoint endpoint = parse_endpoint(options.rdzv_endpoint);
    plan.master_addr = endpoint.host;
    plan.master_port = endpoint.port;
  } else {
    if (plan.nodes > 1 && !options.master_addr)
      fail_usage(
          "--nnodes={} needs --rdzv-endpoint=HOST[:PORT] (or --master-addr): machine 0's address, "
          "the same on every machine",
          plan.nodes);
    if (options.rdzv_backend == "c10d" && options.master_addr)
      plan.notes.emplace_back("--rdzv-backend=c10d without --rdzv-endpoint: using --master-addr");
    plan.master_addr = without_brackets(options.master_addr.value_or(kLoopback));
    plan.master_port = options.master_port.value_or(kDefaultMasterPort);
  }
  if (plan.master_port == 0 && plan.nodes > 1)
    fail_usage("port 0 (any free one) needs --nnodes=1: other machines can't know which it is");
}

/// A random UUID (RFC 9562, version 4), as torchrun names standalone jobs.
std::string random_uuid() {
  std::random_device random;
  const auto word = [&] { return static_cast<unsigned>(random()); };
  return fmt::format("{:08x}-{:04x}-4{:03x}-{:04x}-{:08x}{:04x}", word(), word() & 0xffff,
                     word() & 0xfff, (word() & 0x3fff) | 0x8000, word(), word() & 0xffff);
}

// --- The program
// ----------------------------------------------------------------------------------

bool is_executable_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

/// The file that a shell would start. Throws Error naming what is wrong with it.
std::string find_program(const std::string& name, const Environment& environment) {
  if (name.find('/') != std::string::npos) {
    std::error_code error;
    if (!fs::exists(name, error))
      fail("{}: no such program{}", name, error ? " (" + error.message() + ")" : "");
    if (fs::is_directory(name, error)) fail("{}: is a folder, expected a program", name);
    if (!is_executable_file(name))
      fail("{}: not executable; allow it with chmod +x, or start it through its interpreter", name);
    return name;
  }
  const std::string* const variable = find_variable(environment, "PATH");
  const std::string path = variable != nullptr ? *variable : "/usr/local/bin:/usr/bin:/bin";
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (is_executable_file(candidate)) return candidate;
    begin = end + 1;
  }
  std::error_code ignored;
  fail(
      "{}: no such program in PATH{}", name,
      fs::exists(name, ignored) ? fmt::format("; for the one of this folder give ./{}", name) : "");
}

/// Unbuffered Python, so that lines arrive when they are printed.
void start_with_python(const LaunchOptions& options, const Environment& environment,
                       LaunchPlan& plan) {
  const std::string* const chosen = find_variable(environment, "PYTHON_EXEC");
  const std::string interpreter = chosen != nullptr && !chosen->empty() ? *chosen : "python3";
  if (!options.module) {
    const std::string& script = options.command.front();
    std::error_code error;
    if (!fs::exists(script, error)) fail("{}: no such Python script", script);
    if (::access(script.c_str(), R_OK) != 0) fail_system(errno, "{}: cannot be read", script);
  }
  plan.program = find_program(interpreter, environment);
  plan.arguments = {interpreter, "-u"};
  if (options.module) plan.arguments.emplace_back("-m");
}

void choose_program(const LaunchOptions& options, const Environment& environment,
                    LaunchPlan& plan) {
  const std::string& program = options.command.front();
  if (options.module && options.no_python)
    fail_usage("--module and --no-python exclude each other: a module needs Python");
  if (options.module || (!options.no_python && program.ends_with(".py")))
    start_with_python(options, environment, plan);
  else
    plan.program = find_program(program, environment);
  plan.arguments.insert(plan.arguments.end(), options.command.begin(), options.command.end());
}

// --- The rest
// -------------------------------------------------------------------------------------

/// Every process of several would otherwise start as many threads as there are CPUs.
void share_cpus(const Machine& machine, LaunchPlan& plan) {
  if (plan.local_workers == 1 || plan.environment.contains("OMP_NUM_THREADS")) return;
  const int threads = std::max(1, machine.cpus / plan.local_workers);
  plan.environment["OMP_NUM_THREADS"] = std::to_string(threads);
  plan.notes.push_back(
      fmt::format("OMP_NUM_THREADS={} for each worker ({} CPUs for {}); set it to choose yourself",
                  threads, machine.cpus, plan.local_workers));
}

/// Options that name workers name only those that there are.
void check_local_ranks(const LaunchOptions& options, int local_workers) {
  const auto check = [&](const char* option, int local_rank) {
    if (local_rank >= local_workers)
      fail_usage("{} names local rank {}, but there are {} workers, from 0", option, local_rank,
                 local_workers);
  };
  for (const int local_rank : options.local_ranks_filter) check("--local-ranks-filter", local_rank);
  for (const auto& [local_rank, bits] : options.redirects.by_local_rank)
    check("--redirects", local_rank);
  for (const auto& [local_rank, bits] : options.tee.by_local_rank) check("--tee", local_rank);
}

void choose_log_files(const LaunchOptions& options, LaunchPlan& plan) {
  plan.redirects = options.redirects;
  plan.tee = options.tee;
  if (options.log_dir && options.redirects.empty() && options.tee.empty()) plan.tee.of_all = 3;
  if (options.log_dir) plan.log_dir = *options.log_dir;
  if (plan.log_dir.empty() && !(plan.redirects.empty() && plan.tee.empty()))
    fail_usage("--redirects and --tee need --log-dir, the folder for their files");
}

}  // namespace

LaunchPlan make_launch_plan(const LaunchOptions& options, const Environment& environment,
                            const Machine& machine) {
  LaunchPlan plan;
  plan.environment = environment;
  plan.nodes = options.nnodes;
  plan.node_rank = choose_node_rank(options);
  plan.local_workers = choose_local_workers(options, machine, plan);
  choose_endpoint(options, plan);
  plan.run_id = options.standalone ? random_uuid() : options.rdzv_id;
  plan.role = options.role;

  if (plan.nodes > 1 && options.max_restarts > 0)
    fail_usage(
        "--max-restarts={} needs --nnodes=1: workers start again on all machines together or not "
        "at all, and the launchers of several machines do not talk to each other; let the job "
        "scheduler start the job again",
        options.max_restarts);
  plan.max_restarts = options.max_restarts;
  plan.shutdown_grace_s = options.shutdown_grace_s;
  check_local_ranks(options, plan.local_workers);
  plan.local_ranks_filter = options.local_ranks_filter;
  choose_log_files(options, plan);
  share_cpus(machine, plan);
  choose_program(options, environment, plan);
  return plan;
}

Environment worker_environment(const LaunchPlan& plan, int local_rank, int restart,
                               int master_port) {
  const std::string rank = std::to_string(plan.rank(local_rank));
  const std::string world_size = std::to_string(plan.world_size());
  Environment environment = plan.environment;
  environment["RANK"] = rank;
  environment["LOCAL_RANK"] = std::to_string(local_rank);
  environment["GROUP_RANK"] = std::to_string(plan.node_rank);
  environment["ROLE_RANK"] = rank;
  environment["ROLE_NAME"] = plan.role;
  environment["WORLD_SIZE"] = world_size;
  environment["LOCAL_WORLD_SIZE"] = std::to_string(plan.local_workers);
  environment["GROUP_WORLD_SIZE"] = std::to_string(plan.nodes);
  environment["ROLE_WORLD_SIZE"] = world_size;
  environment["MASTER_ADDR"] = plan.master_addr;
  environment["MASTER_PORT"] = std::to_string(master_port);
  environment["TORCHELASTIC_RUN_ID"] = plan.run_id;
  environment["TORCHELASTIC_RESTART_COUNT"] = std::to_string(restart);
  environment["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(plan.max_restarts);
  // torchrun keeps a store that workers join as clients; here rank 0 opens it.
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  environment.erase("TORCHELASTIC_ERROR_FILE");  // of a torchrun around this launcher
  environment.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  return environment;
}

int free_local_port() {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) fail_system(errno, "a socket cannot be made");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket.get(), generic, size) != 0 || ::getsockname(socket.get(), generic, &size) != 0)
    fail_system(errno, "no free port on {}", kLoopback);
  return ntohs(address.sin_port);
}

}  // namespace lerobot::distributed
