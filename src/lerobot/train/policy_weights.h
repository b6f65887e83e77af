// Which tensors of a session are the policy's weights in a checkpoint, and in which file they lie:
// the whole policy's, or those of an adapter, whose frozen base stays where it is.
#pragma once

#include <filesystem>
#include <vector>

#include "lerobot/serialization/safetensors.h"
#include "lerobot/train/session.h"

namespace lerobot::train {

/// "model.safetensors" or "adapter_model.safetensors".
const char* weights_file(const Session& session);

/// What this rank holds of the weights, under the names that they have in the file.
std::vector<distributed::LocalTensor> policy_weights(const Session& session);

serialization::NamedTensors tensors_of(const std::vector<distributed::LocalTensor>& locals);

/// Reads the weights in a pretrained_model folder into the model: every rank its own rows, whatever
/// layout and format wrote them. Throws Error naming a tensor that is missing or has another shape.
void load_weights(const Session& session, const std::filesystem::path& pretrained_model);

}  // namespace lerobot::train
