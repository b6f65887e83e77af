#include "lerobot/distributed/whole_model.h"

#include <utility>

#include "lerobot/optim/optimizer.h"

namespace lerobot::distributed {
namespace {

class WholeModel final : public TrainingModel {
 public:
  explicit WholeModel(policy::Policy& policy)
      : policy_(policy), parameters_(policy.module().trainable_parameters()) {}

  const nn::NamedTensors& parameters() const override { return parameters_; }
  std::vector<LocalTensor> state() const override { return whole_state(policy_.module()); }

  policy::TrainOutput compute_loss(dataset::Batch& batch, bool /*synchronise*/) override {
    return policy_.compute_loss(batch);
  }
  void backward(const at::Tensor& loss) override { loss.backward(); }
  std::vector<LocalTensor> accumulated_gradients() override {
    std::vector<LocalTensor> gradients;
    for (const auto& [name, parameter] : parameters_)
      if (parameter.grad().defined()) gradients.push_back(whole_tensor(name, parameter.grad()));
    return gradients;
  }
  at::Tensor clip_grad_norm(double max_norm) override {
    return optim::clip_grad_norm(parameters_, max_norm);
  }

 private:
  policy::Policy& policy_;
  nn::NamedTensors parameters_;
};

}  // namespace

std::unique_ptr<TrainingModel> make_whole_model(policy::Policy& policy) {
  return std::make_unique<WholeModel>(policy);
}

std::vector<LocalTensor> whole_state(const nn::Module& module) {
  std::vector<LocalTensor> state;
  for (const auto& [name, tensor] : module.state_dict())
    state.push_back(whole_tensor(name, tensor.detach()));
  return state;
}

LocalTensor whole_tensor(std::string name, at::Tensor tensor) {
  std::vector<std::int64_t> size = tensor.sizes().vec();
  return {.name = std::move(name),
          .tensor = std::move(tensor),
          .global_size = std::move(size),
          .first_row = 0,
          .divided = false};
}

}  // namespace lerobot::distributed
