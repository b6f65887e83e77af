#include "lerobot/train/policy_weights.h"

#include <utility>

#include "lerobot/checkpoint/layout.h"
#include "lerobot/checkpoint/state_load.h"
#include "lerobot/checkpoint/state_source.h"

namespace lerobot::train {

using distributed::LocalTensor;

const char* weights_file(const Session& session) {
  return session.adapter ? checkpoint::kAdapterModelFile : checkpoint::kModelFile;
}

std::vector<LocalTensor> policy_weights(const Session& session) {
  std::vector<LocalTensor> state = session.model->state();
  if (!session.adapter) return state;
  std::vector<LocalTensor> adapter;
  for (LocalTensor& local : state) {
    auto name = policy::adapter_tensor_name(local.name);
    if (!name) continue;
    adapter.push_back(std::move(local));
    adapter.back().name = std::move(*name);
  }
  return adapter;
}

serialization::NamedTensors tensors_of(const std::vector<LocalTensor>& locals) {
  serialization::NamedTensors tensors;
  for (const LocalTensor& local : locals) tensors.emplace_back(local.name, local.tensor);
  return tensors;
}

void load_weights(const Session& session, const std::filesystem::path& pretrained_model) {
  const auto source = checkpoint::open_model(pretrained_model, weights_file(session));
  const auto unexpected = checkpoint::load_model(policy_weights(session), *source);
  if (session.world->is_main()) checkpoint::warn_about_unexpected(unexpected, source->where());
}

}  // namespace lerobot::train
