// Writes folders of torch.distributed.checkpoint for test_dcp_write.py to load with torch.
//   write_dcp model IN.safetensors FOLDER SHARDS REPLICAS
//   write_dcp optimizer IN.safetensors FOLDER SHARDS REPLICAS STEPS
// One process plays all ranks. model: every tensor of IN is divided by rows, but those without
// dimensions and those named buffer*. optimizer: AdamW on IN's tensors, in two groups (those named
// *backbone* have a rate of their own), after STEPS steps with the parameters as gradients;
// FOLDER.safetensors gets its whole state under optimizer.state.<parameter>.<key>.
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/checkpoint/dcp_entries.h"
#include "lerobot/checkpoint/dcp_writer.h"
#include "lerobot/optim/optimizer.h"
#include "lerobot/serialization/safetensors.h"
#include "tests/checkpoint/divided.h"

namespace {

namespace checkpoint = lerobot::checkpoint;
namespace distributed = lerobot::distributed;
namespace optim = lerobot::optim;
namespace serialization = lerobot::serialization;
using checkpoint::part_of;

std::unique_ptr<optim::Optimizer> trained(const std::vector<distributed::LocalTensor>& parts,
                                          int steps) {
  std::vector<optim::Group> groups(2);
  groups[1].lr = 1e-5;
  for (const auto& part : parts) {
    at::Tensor parameter = part.tensor;
    parameter.requires_grad_(true);
    const bool backbone = part.name.find("backbone") != std::string::npos;
    groups[backbone ? 1 : 0].parameters.emplace_back(part.name, parameter);
  }
  auto optimizer = optim::make_optimizer(lerobot::config::AdamWConfig{}, std::move(groups));
  for (int i = 0; i < steps; ++i) {
    for (const auto& part : parts) {
      at::Tensor parameter = part.tensor;
      parameter.mutable_grad() = parameter.detach().clone();
    }
    optimizer->step();
  }
  return optimizer;
}

/// `entries_of(mesh)` are a rank's entries.
template <class EntriesOf>
void write(const std::string& folder, distributed::Mesh mesh, const EntriesOf& entries_of) {
  std::filesystem::create_directories(folder);
  std::vector<std::string> reports;
  for (mesh.rank = 0; mesh.rank < mesh.world_size(); ++mesh.rank) {
    const auto entries = entries_of(mesh);
    reports.push_back(checkpoint::write_dcp_file(folder, entries,
                                                 checkpoint::plan_dcp(entries, mesh), mesh.rank));
  }
  mesh.rank = 0;
  const auto entries = entries_of(mesh);
  checkpoint::finish_dcp(folder, entries, checkpoint::plan_dcp(entries, mesh), reports, folder);
}

void write_optimizer(const serialization::NamedTensors& whole, const std::string& folder,
                     const distributed::Mesh& mesh, int steps) {
  write(folder, mesh, [&](const distributed::Mesh& rank) {
    const auto parts = part_of(whole, rank);
    return checkpoint::optimizer_entries(*trained(parts, steps), parts);
  });
  const auto parts = part_of(whole, {});
  const auto optimizer = trained(parts, steps);
  serialization::NamedTensors state;
  for (const auto& tensor : optimizer->state_tensors())
    if (tensor.value.defined())
      state.emplace_back("optimizer.state." + tensor.parameter + "." + tensor.key, tensor.value);
  serialization::save_safetensors(folder + ".safetensors", state);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool model = arguments.size() == 5 && arguments[0] == "model";
  const bool optimizer = arguments.size() == 6 && arguments[0] == "optimizer";
  if (!model && !optimizer) {
    std::cerr << "usage: write_dcp model|optimizer IN.safetensors FOLDER SHARDS REPLICAS [STEPS]\n";
    return 2;
  }
  try {
    const auto whole = serialization::SafetensorsFile(arguments[1]).all();
    const distributed::Mesh mesh{0, std::stoll(arguments[4]), std::stoll(arguments[3])};
    if (model)
      write(arguments[2], mesh, [&](const distributed::Mesh& rank) {
        return checkpoint::model_entries(part_of(whole, rank));
      });
    else
      write_optimizer(whole, arguments[2], mesh, std::stoi(arguments[5]));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
