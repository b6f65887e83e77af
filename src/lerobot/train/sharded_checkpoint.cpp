#include "lerobot/train/sharded_checkpoint.h"

#include <filesystem>
#include <variant>

#include "lerobot/checkpoint/dcp_entries.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/checkpoint/shared_files.h"
#include "lerobot/config/run_folder.h"
#include "lerobot/train/policy_weights.h"

namespace lerobot::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::LocalDcpEntry;
using distributed::LocalTensor;
using serialization::NamedTensors;

// Names of what is copied before it is written.
constexpr const char* kModelSet = "model";
constexpr const char* kOptimizerSet = "optimizer";
constexpr const char* kGradientSet = "accumulated gradients";

NamedTensors tensors_in(const std::vector<LocalDcpEntry>& entries) {
  NamedTensors tensors;
  for (const LocalDcpEntry& entry : entries)
    if (const auto* local = std::get_if<LocalTensor>(&entry.content))
      tensors.emplace_back(entry.name, local->tensor);
  return tensors;
}

std::vector<LocalTensor> copied(const char* set, std::vector<LocalTensor> locals,
                                checkpoint::HostCopies& copies) {
  const NamedTensors tensors = copies.copy(set, tensors_of(locals));
  for (std::size_t i = 0; i < locals.size(); ++i) locals[i].tensor = tensors[i].second;
  return locals;
}

std::vector<LocalDcpEntry> copied(const char* set, std::vector<LocalDcpEntry> entries,
                                  checkpoint::HostCopies& copies) {
  const NamedTensors tensors = copies.copy(set, tensors_in(entries));
  auto next = tensors.begin();
  for (LocalDcpEntry& entry : entries)
    if (auto* local = std::get_if<LocalTensor>(&entry.content)) local->tensor = (next++)->second;
  return entries;
}

}  // namespace

std::vector<std::pair<std::string, NamedTensors>> sharded_tensors(const Session& session) {
  const auto optimizer = checkpoint::optimizer_entries(*session.optimizer, session.model->state());
  return {{kModelSet, tensors_of(policy_weights(session))}, {kOptimizerSet, tensors_in(optimizer)}};
}

void add_sharded_files(const Session& session, std::int64_t step, checkpoint::HostCopies& copies,
                       std::vector<checkpoint::FileEntry>& files) {
  const distributed::Mesh& mesh = session.world->mesh();
  const distributed::Communicator& ranks = session.world->background();
  const std::string& format = session.config.checkpoint_format;
  const fs::path model_folder = config::kPretrainedModelFolder;
  const fs::path state_folder = config::kTrainingStateFolder;
  const fs::path final_folder = session.output_dir / config::kCheckpointsFolder /
                                config::step_folder_name(step, session.config.steps);
  const auto add_folder = [&](const fs::path& folder, std::vector<LocalDcpEntry> entries) {
    files.push_back(
        checkpoint::dcp_folder(folder, std::move(entries), mesh, ranks, final_folder / folder));
  };

  auto optimizer =
      copied(kOptimizerSet,
             checkpoint::optimizer_entries(*session.optimizer, session.model->state()), copies);
  const auto model_copy = copied(kModelSet, policy_weights(session), copies);
  if (format != "dcp")
    files.push_back(checkpoint::gathered_file(model_folder / weights_file(session), model_copy,
                                              mesh, ranks, {{"format", "pt"}}));
  if (format != "safetensors")
    add_folder(model_folder / checkpoint::kShardedModelFolder,
               checkpoint::model_entries(model_copy));
  add_folder(state_folder / checkpoint::kShardedOptimizerFolder, std::move(optimizer));
}

void add_gathered_gradients(const Session& session, const std::vector<LocalTensor>& gradients,
                            const fs::path& file, checkpoint::HostCopies& copies,
                            std::vector<checkpoint::FileEntry>& files) {
  files.push_back(checkpoint::gathered_file(file, copied(kGradientSet, gradients, copies),
                                            session.world->mesh(), session.world->background()));
}

}  // namespace lerobot::train
