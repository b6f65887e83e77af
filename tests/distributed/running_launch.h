// A lerobot-launch that runs, and what it has written so far.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/distributed/launch/environment.h"

namespace lerobot::distributed {

inline std::string launch_path() { return std::string(LEROBOT_PROGRAM_DIR) + "/lerobot-launch"; }

/// The path of a new folder that goes with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "lerobot-launch-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) fail_system(errno, "{}", pattern);
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  std::string file(const std::string& name, const std::string& text, int mode = 0644) const {
    const fs::path file = path_ / name;
    std::ofstream(file) << text;
    ::chmod(file.c_str(), static_cast<mode_t>(mode));
    return file.string();
  }

 private:
  fs::path path_;
};

/// Starts the program at construction; ends whatever is left of it at destruction. Every process
/// below it can be found by a variable in its environment.
class RunningLaunch {
 public:
  explicit RunningLaunch(std::vector<std::string> arguments, Environment variables = {}) {
    static std::atomic<int> number{0};
    mark_ = fmt::format("LAUNCH_TEST_MARK={}-{}", ::getpid(), number++);
    Environment environment = current_environment();
    for (const char* name : {"OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"}) environment.erase(name);
    environment["LAUNCH_TEST_MARK"] = mark_.substr(mark_.find('=') + 1);
    for (const auto& [name, value] : variables) environment[name] = value;

    arguments.insert(arguments.begin(), launch_path());
    std::vector<std::string> lines = as_lines(environment);
    std::vector<char*> argv, envp;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    for (std::string& line : lines) envp.push_back(line.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);

    int out[2], err[2];
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) fail_system(errno, "pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(out[1], STDOUT_FILENO);
      ::dup2(err[1], STDERR_FILENO);
      ::execve(argv[0], argv.data(), envp.data());
      ::_exit(126);
    }
    ::close(out[1]);
    ::close(err[1]);
    readers_[0] = std::thread([this, fd = out[0]] { read_all(fd, out_); });
    readers_[1] = std::thread([this, fd = err[0]] { read_all(fd, err_); });
  }
  RunningLaunch(const RunningLaunch&) = delete;
  RunningLaunch& operator=(const RunningLaunch&) = delete;
  ~RunningLaunch() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    for (const pid_t left : processes()) ::kill(left, SIGKILL);
    for (std::thread& reader : readers_)
      if (reader.joinable()) reader.join();
  }

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }

  /// Its exit code (128 + n when signal n ended it), once it and its output have ended.
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
    pid_ = -1;
    for (std::thread& reader : readers_) reader.join();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::string out() const { return copy(out_); }
  std::string err() const { return copy(err_); }

  /// Waits until it has written the text to either stream.
  bool shows(const std::string& text) const {
    return soon([&] {
      return out().find(text) != std::string::npos || err().find(text) != std::string::npos;
    });
  }

  /// Living processes that descend from it, itself included.
  std::vector<pid_t> processes() const {
    std::vector<pid_t> found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::ifstream file(entry.path() / "environ");
      const std::string environment{std::istreambuf_iterator<char>(file), {}};
      // A process that has ended shows no environment.
      if (environment.find(mark_ + '\0') != std::string::npos) found.push_back(std::stoi(name));
    }
    return found;
  }
  bool leaves_nothing() const {
    return soon([&] { return processes().empty(); });
  }

  template <class Condition>
  static bool soon(Condition condition, double seconds = 20) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

 private:
  void read_all(int fd, std::string& text) {
    std::array<char, 1 << 16> buffer;
    while (true) {
      const ssize_t n = ::read(fd, buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      std::lock_guard lock(mutex_);
      text.append(buffer.data(), static_cast<std::size_t>(n));
    }
    ::close(fd);
  }
  std::string copy(const std::string& text) const {
    std::lock_guard lock(mutex_);
    return text;
  }

  std::string mark_;
  pid_t pid_ = -1;
  mutable std::mutex mutex_;
  std::string out_;
  std::string err_;
  std::array<std::thread, 2> readers_;
};

/// The lines of a text, in order.
inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  return lines;
}

/// The lines of one rank, without their mark.
inline std::vector<std::string> lines_of_rank(const std::string& text, int rank) {
  const std::string mark = fmt::format("[rank {}] ", rank);
  std::vector<std::string> lines;
  for (const std::string& line : lines_of(text))
    if (line.starts_with(mark)) lines.push_back(line.substr(mark.size()));
  return lines;
}

}  // namespace lerobot::distributed
