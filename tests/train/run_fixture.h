// Runs of lerobot-train inside the test process, and what they leave behind.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
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
  std::vector<Json> samples(const std::string& run) const {
    return lines(output(run) / "samples.rank0.jsonl");
  }

  fs::path folder_;
};

}  // namespace lerobot::train
