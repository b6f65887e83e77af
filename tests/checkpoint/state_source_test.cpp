// Loading models and optimizers, whole and divided, from what torch and we saved whole and divided.
#include "lerobot/checkpoint/state_source.h"

#include <fstream>

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/checkpoint/layout.h"
#include "lerobot/checkpoint/state_load.h"
#include "lerobot/checkpoint/training_state.h"
#include "tests/checkpoint/divided.h"
#include "tests/checkpoint/made_dcp.h"
#include "tests/serialization/test_files.h"

namespace lerobot::checkpoint {
namespace {

using distributed::LocalTensor;
using distributed::Mesh;
using serialization::NamedTensors;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Mesh> meshes() { return {{0, 1, 1}, {0, 1, 2}, {0, 1, 3}, {0, 1, 4}, {0, 2, 2}}; }

fs::path fsdp2() { return test_data("checkpoints/state_fsdp2/000008"); }
fs::path hsdp4_model() { return test_data("checkpoints/state_hsdp4/000008/pretrained_model"); }

/// Loads `source` as every rank of every mesh and compares with `whole`.
void expect_loads(const StateSource& source, const NamedTensors& whole) {
  for (const Mesh& mesh : meshes())
    for (const Mesh& rank : ranks_of(mesh)) {
      const auto expected = part_of(whole, rank);
      const auto parts = blank(expected);
      EXPECT_THAT(load_model(parts, source), ElementsAre());
      for (std::size_t i = 0; i < parts.size(); ++i)
        EXPECT_TRUE(at::equal(parts[i].tensor, expected[i].tensor)) << parts[i].name;
    }
}

TEST(StateSourceTest, AModelThatTorchShardedLoadsAtEverySplitAsItsGatheredFile) {
  const auto whole =
      serialization::SafetensorsFile(fsdp2() / "pretrained_model/model.safetensors").all();
  expect_loads(*open_sharded_model(fsdp2() / "pretrained_model/pytorch_model_fsdp_0"), whole);
  expect_loads(*open_model(fsdp2() / "pretrained_model", kModelFile), whole);
}

TEST(StateSourceTest, AModelOfReplicasLoadsAtEverySplit) {
  const DcpReader reader(hsdp4_model() / "pytorch_model_fsdp_0");
  NamedTensors whole;
  for (const DcpEntry& entry : reader.metadata().entries())
    whole.emplace_back(entry.name.substr(6), reader.tensor(entry.name));
  const auto source = open_model(hsdp4_model(), kModelFile);
  EXPECT_EQ(source->names().size(), whole.size());
  expect_loads(*source, whole);
}

TEST(StateSourceTest, RowsOfSmallFoldersAreRead) {
  const auto tiny = open_sharded_model(test_data("dcp/dcp_tiny"));
  EXPECT_TRUE(at::equal(tiny->tensor("a.weight"), counting({3, 4})));
  EXPECT_TRUE(at::equal(tiny->rows("a.weight", 1, 2), counting({3, 4}).narrow(0, 1, 2)));
  EXPECT_TRUE(at::equal(tiny->rows("half", 3, 1), counting({4}, at::kBFloat16).narrow(0, 3, 1)));
  EXPECT_EQ(tiny->rows("step", 0, 1).item<float>(), 7);
  EXPECT_EQ(tiny->rows("one", 1, 0).size(0), 0);
  const auto foreign = open_sharded_model(test_data("dcp/dcp_foreign"));
  EXPECT_TRUE(at::equal(foreign->rows("w", 1, 1), counting({3, 4}).narrow(0, 1, 1)));
  EXPECT_TRUE(at::equal(foreign->tensor("b"), counting({5})));
}

TEST(StateSourceTest, PartsThatLeaveATensorAndAbsentTensorsAreNamed) {
  const auto tiny = open_sharded_model(test_data("dcp/dcp_tiny"));
  EXPECT_THAT(error_of([&] { tiny->rows("a.weight", 2, 2); }),
              AllOf(HasSubstr("dcp_tiny"), HasSubstr("a.weight"), HasSubstr("from row 2")));
  EXPECT_THAT(error_of([&] { tiny->rows("a.weight", 0, -1); }), HasSubstr("-1 rows"));
  EXPECT_THAT(error_of([&] { tiny->shape("other"); }), HasSubstr("holds no tensor other"));
}

class LoadTest : public TestFolder {
 protected:
  NamedTensors model_{{"uneven", counting({7, 5})},
                      {"one_row", counting({1, 32})},
                      {"backbone", counting({5, 3})},
                      {"scalar", counting({})},
                      {"buffer", counting({6})}};

  std::unique_ptr<StateSource> file(const NamedTensors& tensors) {
    const fs::path path = folder_ / fmt::format("{}.safetensors", files_++);
    serialization::save_safetensors(path, tensors);
    return open_tensor_file(path);
  }

  /// Saves an optimizer of model_ as `mesh` does, after `steps` steps.
  fs::path save_optimizer(const Mesh& mesh, int steps, std::string_view skipped = "") {
    const fs::path folder = folder_ / fmt::format("state{}", files_++);
    fs::create_directories(folder);
    if (!mesh.is_sharded()) {
      const auto optimizer = optimizer_of(part_of(model_, mesh));
      step(*optimizer, steps, skipped);
      serialization::save_safetensors(folder / kOptimizerStateFile, optimizer->state());
      std::ofstream(folder / kOptimizerParamGroupsFile) << optimizer->param_groups().dump();
      return folder;
    }
    write_folder(folder / kShardedOptimizerFolder, mesh, [&](const Mesh& rank) {
      const auto parts = part_of(model_, rank);
      const auto optimizer = optimizer_of(parts);
      step(*optimizer, steps, skipped);
      return optimizer_entries(*optimizer, parts);
    });
    return folder;
  }

  /// Loads it as every rank of `mesh`; the state must be that of one process that never stopped.
  void expect_resumes(const fs::path& folder, const Mesh& mesh, int steps,
                      std::string_view skipped = "") {
    for (const Mesh& rank : ranks_of(mesh)) {
      const auto whole = optimizer_of(part_of(model_, {}));
      step(*whole, steps, skipped);
      const auto parts = part_of(model_, rank);
      const auto optimizer = optimizer_of(parts);
      optimizer->groups()[0].lr = 0.25;
      load_optimizer(*optimizer, parts, open_optimizer(folder, parameter_names(*optimizer)));
      EXPECT_EQ(optimizer->param_groups(), whole->param_groups());
      const auto expected = whole->state_tensors(), found = optimizer->state_tensors();
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        const auto part = std::ranges::find(parts, found[i].parameter, &LocalTensor::name);
        at::Tensor value = expected[i].value;
        if (value.defined() && !expected[i].is_scalar && value.dim() > 0)
          value = value.narrow(0, part->first_row, part->tensor.size(0));
        // A parameter without gradients has zeros in shards.
        if (!value.defined()) {
          EXPECT_TRUE(!found[i].value.defined() || !found[i].value.any().item<bool>());
          continue;
        }
        ASSERT_TRUE(found[i].value.defined()) << found[i].parameter;
        EXPECT_TRUE(at::equal(found[i].value, value)) << found[i].parameter << found[i].key;
      }
    }
  }

  std::string load_error(const fs::path& folder) {
    const auto parts = part_of(model_, {});
    const auto optimizer = optimizer_of(parts);
    step(*optimizer, 1);
    std::vector<at::Tensor> before;
    for (const auto& [name, tensor] : optimizer->state()) before.push_back(tensor.clone());
    const Json groups = optimizer->param_groups();
    const std::string error = error_of([&] {
      load_optimizer(*optimizer, parts, open_optimizer(folder, parameter_names(*optimizer)));
    });
    // Nothing has changed.
    EXPECT_EQ(optimizer->param_groups(), groups);
    const auto after = optimizer->state();
    EXPECT_EQ(after.size(), before.size());
    for (std::size_t i = 0; i < after.size(); ++i)
      EXPECT_TRUE(at::equal(after[i].second, before[i]));
    return error;
  }

  /// A folder of shards with `change` made to its entries.
  template <class Change>
  fs::path changed_shards(const Change& change) {
    const fs::path folder = folder_ / fmt::format("state{}", files_++);
    write_folder(folder / kShardedOptimizerFolder, {0, 1, 1}, [&](const Mesh& rank) {
      const auto parts = part_of(model_, rank);
      const auto optimizer = optimizer_of(parts);
      step(*optimizer, 1);
      auto entries = optimizer_entries(*optimizer, parts);
      change(entries);
      return entries;
    });
    return folder;
  }

  int files_ = 0;
};

TEST_F(LoadTest, AModelLoadsFromEverySplitToEverySplit) {
  for (const Mesh& mesh : meshes()) {
    const fs::path folder = folder_ / fmt::format("m{}{}", mesh.dp_replicate, mesh.dp_shard);
    write_model(folder, mesh, model_);
    expect_loads(*open_sharded_model(folder), model_);
  }
  expect_loads(*file(model_), model_);
}

TEST_F(LoadTest, FloatingPointNumbersAreConverted) {
  NamedTensors halves = model_;
  for (auto& [name, tensor] : halves) tensor = tensor.to(at::kBFloat16);
  expect_loads(*file(halves), model_);
}

TEST_F(LoadTest, AMissingTensorAnotherShapeAndOtherNumbersAreNamedAndNothingChanges) {
  const auto refusal = [&](const NamedTensors& saved) {
    const auto parts = blank(part_of(model_, {0, 1, 2}));
    const auto source = file(saved);
    const std::string error = error_of([&] { load_model(parts, *source); });
    for (const LocalTensor& part : parts) EXPECT_TRUE(part.tensor.eq(77).all().item<bool>());
    return error;
  };
  NamedTensors saved = model_;
  saved.erase(saved.begin() + 2);
  EXPECT_THAT(refusal(saved), AllOf(HasSubstr(".safetensors"), HasSubstr("lacks backbone")));
  saved = model_;
  saved[2].second = counting({3, 5});
  EXPECT_THAT(refusal(saved),
              AllOf(HasSubstr("backbone"), HasSubstr("[3, 5]"), HasSubstr("[5, 3]")));
  saved = model_;
  saved[2].second = counting({5, 3}, at::kLong);
  EXPECT_THAT(refusal(saved), AllOf(HasSubstr("backbone"), HasSubstr("Long"), HasSubstr("Float")));
}

TEST_F(LoadTest, UnexpectedTensorsAreReported) {
  NamedTensors saved = model_;
  saved.emplace_back("other", counting({2}));
  EXPECT_THAT(load_model(part_of(model_, {}), *file(saved)), ElementsAre("other"));
  std::vector<std::string> many;
  for (int i = 0; i < 9; ++i) many.push_back(fmt::format("n{}", i));
  ::testing::internal::CaptureStderr();
  warn_about_unexpected(many, "a file");
  warn_about_unexpected({}, "another file");
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log,
              AllOf(HasSubstr("a file holds 9 tensors"), HasSubstr("n0, n1, n2, n3, n4, ...")));
  EXPECT_THAT(log, ::testing::Not(HasSubstr("another file")));
}

TEST_F(LoadTest, AFolderWithoutWeightsIsNamed) {
  EXPECT_THAT(error_of([&] { open_model(folder_, kModelFile); }),
              AllOf(HasSubstr(folder_.string()), HasSubstr("model.safetensors")));
}

TEST_F(LoadTest, AnOptimizerResumesFromEverySplitAtEverySplit) {
  for (const Mesh& from : meshes()) {
    const fs::path folder = save_optimizer(from, 3);
    for (const Mesh& to : meshes()) expect_resumes(folder, to, 3);
  }
}

TEST_F(LoadTest, AnOptimizerThatNeverSteppedResumes) {
  for (const Mesh& from : {Mesh{0, 1, 1}, Mesh{0, 1, 2}, Mesh{0, 2, 2}})
    expect_resumes(save_optimizer(from, 0), {0, 1, 3}, 0);
}

TEST_F(LoadTest, AParameterThatNeverHadAGradientResumes) {
  for (const Mesh& from : {Mesh{0, 1, 1}, Mesh{0, 1, 2}}) {
    const fs::path folder = save_optimizer(from, 3, "uneven");
    expect_resumes(folder, {0, 1, 1}, 3, "uneven");
    expect_resumes(folder, {0, 1, 4}, 3, "uneven");
  }
  // As another writer leaves it out altogether.
  const fs::path folder = changed_shards([](auto& entries) {
    std::erase_if(entries, [](const LocalDcpEntry& entry) {
      return entry.name.starts_with("optimizer.state.uneven.");
    });
  });
  expect_resumes(folder, {0, 1, 2}, 1, "uneven");
}

TEST_F(LoadTest, AStateThatLacksAPartHasAnotherShapeOrMoreIsNamedAndNothingChanges) {
  const auto is = [](std::string name) {
    return [name](const LocalDcpEntry& entry) { return entry.name == name; };
  };
  EXPECT_THAT(load_error(changed_shards([&](auto& entries) {
                std::erase_if(entries, is("optimizer.state.uneven.exp_avg"));
              })),
              AllOf(HasSubstr("optimizer_0"), HasSubstr("lacks uneven.exp_avg")));
  EXPECT_THAT(load_error(changed_shards([&](auto& entries) {
                auto& tensor = std::get<LocalTensor>(
                    std::ranges::find_if(entries, is("optimizer.state.uneven.exp_avg"))->content);
                tensor.tensor = counting({7, 4});
                tensor.global_size = {7, 4};
              })),
              AllOf(HasSubstr("uneven.exp_avg"), HasSubstr("[7, 4]"), HasSubstr("[7, 5]")));
  EXPECT_THAT(load_error(changed_shards([&](auto& entries) {
                auto& tensor = std::get<LocalTensor>(
                    std::ranges::find_if(entries, is("optimizer.state.uneven.exp_avg"))->content);
                tensor.tensor = counting({7, 5}, at::kLong);
              })),
              AllOf(HasSubstr("uneven.exp_avg"), HasSubstr("floating-point"), HasSubstr("Long")));
  EXPECT_THAT(load_error(changed_shards([&](auto& entries) {
                auto extra = *std::ranges::find_if(entries, is("optimizer.state.uneven.exp_avg"));
                extra.name = "optimizer.state.uneven.max_exp_avg_sq";
                extra.path.back() = "max_exp_avg_sq";
                entries.push_back(extra);
              })),
              HasSubstr("uneven.max_exp_avg_sq"));
  EXPECT_THAT(load_error(changed_shards([&](auto& entries) {
                entries.push_back({"elsewhere", {"elsewhere"}, serialization::TorchValue(1.0)});
              })),
              HasSubstr("elsewhere is neither"));
}

TEST_F(LoadTest, GroupsOfAnotherRunAreRefusedByName) {
  const auto find = [](auto& entries, const std::string& name) -> serialization::TorchValue& {
    const auto found = std::ranges::find(entries, name, &LocalDcpEntry::name);
    return std::get<serialization::TorchValue>(found->content);
  };
  const auto params = [&](auto& entries) -> auto& {
    return std::get<serialization::TorchList>(
               find(entries, "optimizer.param_groups.0.params").content)
        .items;
  };
  EXPECT_THAT(load_error(changed_shards([&](auto& entries) { params(entries).pop_back(); })),
              AllOf(HasSubstr("group 0"), HasSubstr("lacks the parameter scalar")));
  EXPECT_THAT(
      load_error(changed_shards([&](auto& entries) { params(entries).emplace_back("more"); })),
      AllOf(HasSubstr("group 0"), HasSubstr("more")));
  EXPECT_THAT(
      load_error(changed_shards([&](auto& entries) { params(entries).emplace_back("scalar"); })),
      HasSubstr("must have 3 parameters, found 4"));
  EXPECT_THAT(load_error(changed_shards([&](auto& entries) {
                find(entries, "optimizer.param_groups.0.params") = "scalar";
              })),
              HasSubstr("no list of names"));
  EXPECT_THAT(load_error(changed_shards([&](auto& entries) {
                find(entries, "optimizer.param_groups.1.amsgrad") = true;
              })),
              AllOf(HasSubstr("optimizer_0"), HasSubstr("amsgrad")));
  EXPECT_THAT(load_error(changed_shards([&](auto& entries) {
                std::erase_if(entries, [](const LocalDcpEntry& entry) {
                  return entry.name == "optimizer.param_groups.1.eps";
                });
              })),
              AllOf(HasSubstr("optimizer_0"), HasSubstr("eps")));
  EXPECT_THAT(load_error(changed_shards([&](auto& entries) {
                std::erase_if(entries, [](const LocalDcpEntry& entry) {
                  return entry.name.starts_with("optimizer.param_groups.1.");
                });
              })),
              HasSubstr("must have 2 parameter groups, found 1"));
  EXPECT_THAT(load_error(changed_shards([&](auto& entries) {
                entries.push_back({"optimizer.param_groups.900.lr",
                                   {"optimizer", "param_groups", std::int64_t{900}, "lr"},
                                   serialization::TorchValue(1.0)});
              })),
              AllOf(HasSubstr("must have 2 parameter groups"), HasSubstr("900")));
  EXPECT_THAT(load_error(changed_shards([&](auto& entries) {
                std::erase_if(entries, [](const LocalDcpEntry& entry) {
                  return entry.name == "optimizer.param_groups.1.params";
                });
              })),
              HasSubstr("has no \"params\""));
  EXPECT_THAT(load_error(changed_shards([&](auto& entries) {
                find(entries, "optimizer.param_groups.1.lr") =
                    serialization::TorchDict{{{"a", serialization::TorchValue(1.0)}}};
              })),
              AllOf(HasSubstr("param_groups.1.lr"), HasSubstr("dictionary")));
  EXPECT_THAT(load_error(changed_shards([&](auto& entries) {
                find(entries, "optimizer.param_groups.1.lr") = counting({2});
              })),
              AllOf(HasSubstr("param_groups.1.lr"), HasSubstr("tensor")));
}

TEST_F(LoadTest, NumberedStateOfAnotherFormIsRefused) {
  const fs::path folder = save_optimizer({0, 1, 1}, 1);
  auto state = serialization::SafetensorsFile(folder / kOptimizerStateFile).all();
  for (const char* name : {"state/9/step", "state/x/step", "other", "state/1/"}) {
    state.back().first = name;
    fs::remove(folder / kOptimizerStateFile);
    serialization::save_safetensors(folder / kOptimizerStateFile, state);
    EXPECT_THAT(load_error(folder), AllOf(HasSubstr("unknown key"), HasSubstr(name)));
  }
  state.back().first = fmt::format("state/0{}", state.front().first.substr(6));
  serialization::save_safetensors(folder / kOptimizerStateFile, state);
  EXPECT_THAT(load_error(folder), HasSubstr("are both"));
  fs::remove(folder / kOptimizerParamGroupsFile);
  EXPECT_THAT(load_error(folder), HasSubstr("neither optimizer_0 nor optimizer_param_groups.json"));
}

TEST_F(LoadTest, TheOptimizerThatTorchShardedLoadsAtEverySplit) {
  const fs::path folder = fsdp2() / "training_state";
  const DcpReader reader(folder / kShardedOptimizerFolder);
  NamedTensors whole;
  const auto saved = reader.value("optimizer.param_groups.0.params");
  for (const auto& item : std::get<serialization::TorchList>(saved.content).items) {
    const auto& name = std::get<std::string>(item.content);
    const auto& entry = *reader.metadata().find("optimizer.state." + name + ".exp_avg");
    whole.emplace_back(name, counting(std::get<DcpTensor>(entry.content).size));
  }
  for (const Mesh& mesh : meshes())
    for (const Mesh& rank : ranks_of(mesh)) {
      const auto parts = part_of(whole, rank);
      const auto optimizer = optimizer_of(parts);
      load_optimizer(*optimizer, parts, open_optimizer(folder, parameter_names(*optimizer)));
      EXPECT_EQ(optimizer->groups()[0].lr, 1e-5);
      for (const auto& state : optimizer->state_tensors()) {
        const auto part = std::ranges::find(parts, state.parameter, &LocalTensor::name);
        at::Tensor expected =
            reader.tensor(fmt::format("optimizer.state.{}.{}", state.parameter, state.key));
        if (!state.is_scalar) expected = expected.narrow(0, part->first_row, part->tensor.size(0));
        ASSERT_TRUE(state.value.defined());
        EXPECT_TRUE(at::equal(state.value, expected)) << state.parameter << state.key;
      }
    }
}

TEST_F(LoadTest, AShardedRunWithOneFileOfOptimizerStateIsRefusedWithAnExplanation) {
  const fs::path folder = save_optimizer({0, 1, 1}, 1);
  const auto record = [&](std::int64_t dp_shard) {
    TrainingStep step;
    step.step = 4;
    step.dp_shard = dp_shard;
    std::ofstream(folder / kTrainingStepFile) << to_json(step).dump();
  };
  record(1);
  require_sharded_optimizer(folder);
  record(2);
  EXPECT_THAT(load_error(folder), AllOf(HasSubstr("dp_shard=2"), HasSubstr("can't be resumed"),
                                        HasSubstr("--policy.path=")));
}

}  // namespace
}  // namespace lerobot::checkpoint
