// Runs that LeRobot made, too: its logs and checkpoints of them are in tests/data.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <gmock/gmock.h>

#include "lerobot/checkpoint/state_source.h"
#include "tests/train/several_processes.h"

namespace lerobot::train {

class ReproducesLeRobot : public SeveralProcesses {
 protected:
  /// Every sample, loss and gradient norm of a rank; of the steps `first` to `last` only.
  void expect_log(const std::string& name, double tolerance, double norm_tolerance, int rank = 0,
                  std::size_t first = 1, std::size_t last = SIZE_MAX) const {
    const auto expected = lines(data() / "logs" / fmt::format("{}.rank{}.jsonl", name, rank));
    const auto actual = samples(name, rank);
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = first - 1; i < std::min(expected.size(), last); ++i) {
      EXPECT_EQ(actual[i]["step"], expected[i]["step"]);
      EXPECT_EQ(actual[i]["index"], expected[i]["index"]) << "step " << i + 1;
      expect_close(actual[i]["loss"], expected[i]["loss"], tolerance, "loss", i + 1);
      expect_close(actual[i]["grad_norm"], expected[i]["grad_norm"], norm_tolerance, "grad_norm",
                   i + 1);
    }
  }

  static void expect_close(const Json& actual, const Json& expected, double tolerance,
                           const char* what, std::size_t step) {
    const double a = actual.get<double>(), e = expected.get<double>();
    EXPECT_LE(std::abs(a - e), tolerance * std::abs(e))
        << what << " at step " << step << ": " << a << " for " << e;
  }

  static void expect_tensors(const fs::path& actual_file, const fs::path& expected_file,
                             double tolerance) {
    expect_tensors(*checkpoint::open_tensor_file(actual_file),
                   *checkpoint::open_tensor_file(expected_file), tolerance);
  }

  static void expect_tensors(const checkpoint::StateSource& actual,
                             const checkpoint::StateSource& expected, double tolerance) {
    EXPECT_THAT(actual.names(), ::testing::UnorderedElementsAreArray(expected.names()));
    for (const auto& name : expected.names()) {
      at::Tensor a = actual.tensor(name).to(at::kDouble), e = expected.tensor(name).to(at::kDouble);
      ASSERT_EQ(a.sizes(), e.sizes()) << name;
      if (e.numel() == 0) continue;
      if (name.ends_with("in_proj_bias")) {
        // A bias on attention's keys changes nothing: its gradient is rounding noise, which Adam
        // turns into steps of full size. Queries come first, then keys, then values.
        const std::int64_t width = a.numel() / 3;
        a = at::cat({a.narrow(0, 0, width), a.narrow(0, 2 * width, width)});
        e = at::cat({e.narrow(0, 0, width), e.narrow(0, 2 * width, width)});
      }
      const double difference = (a - e).abs().max().item().toDouble();
      EXPECT_LE(difference, tolerance * std::max(e.abs().max().item().toDouble(), 1e-3)) << name;
    }
  }
};

}  // namespace lerobot::train
