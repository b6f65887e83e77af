// Weights and optimizer state of a sharded run in a checkpoint, which its ranks write together.
//
//   model.safetensors       safetensors, safetensors_dcp   whole tensors, float32, by rank 0
//   pytorch_model_fsdp_0/   dcp, safetensors_dcp           every rank its rows
//                           (of an adapter alone, the file is adapter_model.safetensors)
//   optimizer_0/            always                         every rank its rows
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lerobot/checkpoint/background_saver.h"
#include "lerobot/train/session.h"

namespace lerobot::train {

/// What this rank copies at every save, for BackgroundSaver::prepare().
std::vector<std::pair<std::string, serialization::NamedTensors>> sharded_tensors(
    const Session& session);

/// Copies this rank's rows and appends the files that --checkpoint_format asks for. Every rank adds
/// the same ones.
void add_sharded_files(const Session& session, std::int64_t step, checkpoint::HostCopies& copies,
                       std::vector<checkpoint::FileEntry>& files);

/// TrainingModel::accumulated_gradients() as one file of whole tensors.
void add_gathered_gradients(const Session& session,
                            const std::vector<distributed::LocalTensor>& gradients,
                            const std::filesystem::path& file, checkpoint::HostCopies& copies,
                            std::vector<checkpoint::FileEntry>& files);

}  // namespace lerobot::train
