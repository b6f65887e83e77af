// Stochastic gradient descent (https://docs.pytorch.org/docs/2.11/generated/torch.optim.SGD.html).
#pragma once

#include "lerobot/base/parallel_loop.h"
#include "lerobot/optim/optimizer.h"

namespace lerobot::optim {

class Sgd final : public Optimizer {
 public:
  struct Settings {
    double momentum;
    double dampening;
    double weight_decay;
    bool nesterov;
  };

  Sgd(double lr, const Settings& settings, std::vector<Group> groups);

  void step() override;

 private:
  Json settings(std::size_t group) const override;
  void load_settings(std::size_t group, const Json& settings, const std::string& where,
                     bool apply) override;

  std::vector<Settings> settings_;  // by group
  ParallelLoop loop_{"optimizer"};
};

}  // namespace lerobot::optim
