// Runs of lerobot-train inside the test process, and what they leave behind.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lerobot/base/files.h"
#include "lerobot/base/json.h"
#include "lerobot/train/train_program.h"

namespace lerobot::train {

class RunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::temp_directory_path() /
        fmt::format("lerobot run {}.{} {}", test->test_suite_name(), test->name(), ::getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static fs::path data() { return LEROBOT_TEST_DATA; }

  /// The flags of the small ACT that the fixtures were made with.
  std::vector<std::string> small_act(const std::string& run, const std::string& dataset) const {
    return {"--dataset.repo_id=facts/" + dataset,
            "--dataset.root=" + (data() / "datasets" / dataset).string(),
            "--policy.type=act",
            "--policy.device=cpu",
            "--policy.push_to_hub=false",
            "--policy.pretrained_backbone_weights=null",
            "--policy.dim_model=32",
            "--policy.n_heads=4",
            "--policy.dim_feedforward=48",
            "--policy.n_encoder_layers=2",
            "--policy.n_decoder_layers=1",
            "--policy.n_vae_encoder_layers=2",
            "--policy.latent_dim=8",
            "--policy.chunk_size=5",
            "--policy.n_action_steps=5",
            "--policy.dropout=0.0",
            "--batch_size=4",
            "--num_workers=0",
            "--seed=1000",
            "--log_freq=1",
            "--log_samples=true",
            "--output_dir=" + output(run).string(),
            "--job_name=" + run};
  }

  fs::path output(const std::string& run) const { return folder_ / run; }
  fs::path checkpoint(const std::string& run, const std::string& step) const {
    return output(run) / "checkpoints" / step;
  }

  static std::vector<std::string> with(std::vector<std::string> flags,
                                       const std::vector<std::string>& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }

  /// The step that the fixture's checkpoints end with.
  static std::string last(const std::string& fixture) {
    return read_text_file(data() / "checkpoints" / fixture / "last");
  }

  /// One JSON object a line.
  static std::vector<Json> lines(const fs::path& file) {
    std::vector<Json> objects;
    std::ifstream stream(file);
    for (std::string line; std::getline(stream, line);)
      objects.push_back(parse_json(line, file.string()));
    return objects;
  }
  std::vector<Json> samples(const std::string& run, int rank = 0) const {
    return lines(output(run) / fmt::format("samples.rank{}.jsonl", rank));
  }

  struct Outcome {
    int code = -1;  // exit code, or minus the signal
    std::string text;
  };

  /// Runs the program itself. After `signal_after` (if not empty) is in its output, sends `signal`.
  Outcome run_program(const std::vector<std::string>& flags, const std::string& signal_after = "",
                      int signal = 0) const {
    return run_command(with({program("lerobot-train")}, flags), signal_after,
                       [signal](pid_t pid) { ::kill(pid, signal); });
  }

  static std::string program(const std::string& name) {
    return std::string(LEROBOT_PROGRAM_DIR) + "/" + name;
  }

  /// Runs a command. When `after` (if not empty) is in its output, calls `then` with its process.
  template <class F>
  Outcome run_command(const std::vector<std::string>& command, const std::string& after,
                      const F& then) const {
    const fs::path log = folder_ / "output.txt";
    fs::remove(log);
    const pid_t child = ::fork();
    if (child == 0) {
      if (!std::freopen(log.c_str(), "w", stdout) || ::dup2(STDOUT_FILENO, STDERR_FILENO) < 0)
        ::_exit(99);
      std::vector<const char*> arguments;
      for (const auto& argument : command) arguments.push_back(argument.c_str());
      arguments.push_back(nullptr);
      ::execv(arguments[0], const_cast<char* const*>(arguments.data()));
      ::_exit(98);
    }
    if (!after.empty()) {
      for (int i = 0; i < 600; ++i) {
        if (fs::exists(log) && read_text_file(log).find(after) != std::string::npos) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      then(child);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_text_file(log)};
  }

  fs::path folder_;
};

}  // namespace lerobot::train
