// Adam and AdamW (https://docs.pytorch.org/docs/2.11/generated/torch.optim.AdamW.html).
#pragma once

#include "lerobot/base/parallel_loop.h"
#include "lerobot/optim/optimizer.h"

namespace lerobot::optim {

/// AdamW shrinks parameters beside the update (decoupled weight decay), Adam adds the decay to the
/// gradient (coupled).
class Adam final : public Optimizer {
 public:
  struct Settings {
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
  };

  Adam(double lr, const Settings& settings, bool decoupled_weight_decay, std::vector<Group> groups);

  void step() override;

 private:
  Json settings(std::size_t group) const override;
  void load_settings(std::size_t group, const Json& settings, const std::string& where,
                     bool apply) override;

  std::vector<Settings> settings_;  // by group
  bool decoupled_;
  ParallelLoop loop_{"optimizer"};
};

}  // namespace lerobot::optim
