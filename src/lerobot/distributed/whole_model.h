// A policy that one process trains as it is.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lerobot/distributed/training_model.h"

namespace lerobot::distributed {

std::unique_ptr<TrainingModel> make_whole_model(policy::Policy& policy);

/// TrainingModel::state() of a module that every rank holds as a whole.
std::vector<LocalTensor> whole_state(const nn::Module& module);

/// A tensor that every rank holds as a whole.
LocalTensor whole_tensor(std::string name, at::Tensor tensor);

}  // namespace lerobot::distributed
