#include "lerobot/nn/module.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include "lerobot/base/error.h"
#include "lerobot/nn/attention.h"
#include "lerobot/nn/layers.h"

namespace lerobot::nn {
namespace {

using testing::ElementsAre;

struct Parent : Module {
  Parent() : Module("Parent") {
    child = register_module("child", std::make_shared<Linear>(2, 3));
    auto list = std::make_shared<ModuleList<LayerNorm>>();
    list->push_back(std::make_shared<LayerNorm>(2));
    list->push_back(std::make_shared<LayerNorm>(2));
    layers = register_module("layers", std::move(list));
    own = register_parameter("own", at::ones({1}));
    table = register_buffer("table", at::ones({1}));
  }
  void register_twice() { register_module("child", std::make_shared<Linear>(1, 1)); }

  at::Tensor own;
  at::Tensor table;
  std::shared_ptr<Linear> child;
  std::shared_ptr<ModuleList<LayerNorm>> layers;
};

std::vector<std::string> names(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

TEST(Module, ListsItsTensorsInTorchsOrder) {
  const Parent parent;
  EXPECT_THAT(names(parent.named_parameters()),
              ElementsAre("own", "child.weight", "child.bias", "layers.0.weight", "layers.0.bias",
                          "layers.1.weight", "layers.1.bias"));
  EXPECT_THAT(names(parent.named_buffers()), ElementsAre("table"));
  EXPECT_THAT(names(parent.state_dict()),
              ElementsAre("own", "table", "child.weight", "child.bias", "layers.0.weight",
                          "layers.0.bias", "layers.1.weight", "layers.1.bias"));
}

TEST(Module, ListsItsModulesWithTheirPythonClasses) {
  Parent parent;
  std::vector<std::string> found;
  for (const auto& [name, module] : parent.named_modules())
    found.push_back(name + ":" + module->class_name());
  EXPECT_THAT(found, ElementsAre(":Parent", "child:Linear", "layers:ModuleList",
                                 "layers.0:LayerNorm", "layers.1:LayerNorm"));
}

TEST(Module, HandsOutHandlesNotCopies) {
  Parent parent;
  parent.named_parameters()[0].second.data().fill_(5);
  EXPECT_EQ(parent.own.item<float>(), 5.0F);
  EXPECT_TRUE(parent.own.requires_grad());
  EXPECT_FALSE(parent.table.requires_grad());
}

TEST(Module, SwitchesTrainingEverywhere) {
  Parent parent;
  parent.train(false);
  EXPECT_FALSE((*parent.layers)[1].is_training());
  parent.train();
  EXPECT_TRUE((*parent.layers)[1].is_training());
}

TEST(Module, RefusesTwoChildrenOfOneName) {
  Parent parent;
  EXPECT_THROW(parent.register_twice(), InternalError);
}

TEST(MultiheadAttention, RefusesHeadsThatDoNotDivideItsSize) {
  EXPECT_THROW(MultiheadAttention(10, 4, 0.0), Error);
}

}  // namespace
}  // namespace lerobot::nn
