#include "tests/support/ranks.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"

namespace lerobot::distributed {
namespace {

using Clock = std::chrono::steady_clock;

/// A file without a name, which a rank writes and the test reads afterwards.
class Scratch {
 public:
  Scratch() : file_(std::tmpfile()) {
    if (file_ == nullptr) fail_system(errno, "a temporary file");
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::fclose(file_); }

  int fd() const { return ::fileno(file_); }
  std::string text() const {
    std::string text;
    char buffer[4096];
    for (off_t at = 0;; at = static_cast<off_t>(text.size())) {
      const ssize_t got = ::pread(fd(), buffer, sizeof buffer, at);
      if (got <= 0) return text;
      text.append(buffer, static_cast<std::size_t>(got));
    }
  }

 private:
  std::FILE* file_;
};

int assertions_so_far() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return test == nullptr ? 0 : test->result()->total_part_count();
}

bool assertion_failed_since(int count) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  for (int i = count; test != nullptr && i < test->result()->total_part_count(); ++i)
    if (test->result()->GetTestPartResult(i).failed()) return true;
  return false;
}

/// One forked process.
class Rank {
 public:
  Rank(const LaunchEnvironment& environment,
       const std::function<void(const LaunchEnvironment&)>& body)
      : rank_(environment.rank) {
    std::fflush(nullptr);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) fail_system(errno, "fork");
    if (pid_ == 0) run(parent, environment, body);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    if (ended_) return;
    kill();
    ::waitpid(pid_, nullptr, 0);
  }

  bool has_ended(double seconds) {
    int status = 0;
    if (!ended_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
      ended_ = true;
      end_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      end_.seconds = seconds;
    }
    return ended_;
  }
  void kill() const { ::kill(pid_, SIGKILL); }

  RankEnd end() {
    end_.rank = rank_;
    end_.output = output_.text();
    end_.error = error_.text();
    return end_;
  }

 private:
  [[noreturn]] void run(pid_t parent, const LaunchEnvironment& environment,
                        const std::function<void(const LaunchEnvironment&)>& body) const {
    // A test that is killed leaves no ranks behind.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::dup2(output_.fd(), STDOUT_FILENO);
    ::dup2(output_.fd(), STDERR_FILENO);
    at::set_num_threads(1);
    const int before = assertions_so_far();
    int code = 0;
    try {
      body(environment);
    } catch (const std::exception& error) {
      ::dprintf(error_.fd(), "%s", error.what());
      code = 1;
    }
    if (assertion_failed_since(before)) code = 1;
    std::fflush(nullptr);
    ::_exit(code);
  }

  std::int64_t rank_;
  Scratch output_;
  Scratch error_;
  pid_t pid_ = -1;
  bool ended_ = false;
  RankEnd end_;
};

}  // namespace

std::vector<RankEnd> ends_of_processes(const std::vector<LaunchEnvironment>& environments,
                                       const std::function<void(const LaunchEnvironment&)>& body,
                                       std::chrono::seconds limit) {
  const auto begin = Clock::now();
  std::vector<std::unique_ptr<Rank>> ranks;
  for (const LaunchEnvironment& environment : environments)
    ranks.push_back(std::make_unique<Rank>(environment, body));

  bool killed = false;
  for (bool all_ended = false; !all_ended;) {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    all_ended = true;
    for (const auto& rank : ranks) all_ended = rank->has_ended(seconds) && all_ended;
    if (all_ended) break;
    if (Clock::now() - begin > limit && !std::exchange(killed, true)) {
      ADD_FAILURE() << "ranks did not end within " << limit.count() << " s";
      for (const auto& rank : ranks)
        if (!rank->has_ended(seconds)) rank->kill();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::vector<RankEnd> ends;
  for (const auto& rank : ranks) ends.push_back(rank->end());
  return ends;
}

std::vector<RankEnd> ends_of_ranks(Degrees degrees, const std::function<void(const World&)>& body,
                                   const WorldOptions& options, std::chrono::seconds limit) {
  const ReservedPort port;
  const auto environments =
      local_environments(degrees.dp_replicate * degrees.dp_shard, port.number());
  return ends_of_processes(
      environments,
      [&](const LaunchEnvironment& environment) {
        const Mesh mesh{environment.rank, degrees.dp_replicate, degrees.dp_shard};
        const World world(environment, mesh, at::kCPU, options);
        try {
          body(world);
        } catch (const std::exception& error) {
          world.report_failure(error.what());
          throw;
        }
      },
      limit);
}

void run_ranks(Degrees degrees, const std::function<void(const World&)>& body,
               std::chrono::seconds limit) {
  const auto ends = ends_of_ranks(degrees, body, {}, limit);
  for (const RankEnd& end : ends)
    if (end.exit_code != 0) {
      ADD_FAILURE() << describe(ends);
      return;
    }
}

void run_ranks(std::int64_t ranks, const std::function<void(const World&)>& body,
               std::chrono::seconds limit) {
  run_ranks(Degrees{ranks, 1}, body, limit);
}

ReservedPort::ReservedPort() : socket_(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int on = 1, off = 0;
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  socklen_t size = sizeof address;
  // Bound, but not listening: the rank that sets SO_REUSEADDR too may bind and listen.
  if (socket_ < 0 || ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::setsockopt(socket_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0 ||
      ::bind(socket_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    fail_system(errno, "a free port");
  number_ = ntohs(address.sin6_port);
}

ReservedPort::~ReservedPort() { ::close(socket_); }

std::vector<LaunchEnvironment> local_environments(std::int64_t ranks, std::uint16_t port) {
  std::vector<LaunchEnvironment> environments;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    environments.push_back({.rank = rank,
                            .world_size = ranks,
                            .local_rank = rank,
                            .local_world_size = ranks,
                            .master_addr = "127.0.0.1",
                            .master_port = port});
  return environments;
}

std::string describe(const std::vector<RankEnd>& ends) {
  std::string text;
  for (const RankEnd& end : ends)
    text += fmt::format("rank {} ended with {} after {:.1f} s\n  threw: {}\n  wrote: {}\n",
                        end.rank, end.exit_code, end.seconds, end.error, end.output);
  return text;
}

}  // namespace lerobot::distributed
