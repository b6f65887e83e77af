#include "lerobot/nn/resnet.h"

#include <algorithm>
#include <array>

#include <ATen/ops/max_pool2d.h>

#include "lerobot/base/error.h"
#include "lerobot/nn/frozen_batch_norm.h"
#include "lerobot/nn/init.h"

namespace lerobot::nn {
namespace {

constexpr std::array<ResNetVariant, 5> kVariants{{
    {"resnet18", false, {2, 2, 2, 2}},
    {"resnet34", false, {3, 4, 6, 3}},
    {"resnet50", true, {3, 4, 6, 3}},
    {"resnet101", true, {3, 4, 23, 3}},
    {"resnet152", true, {3, 8, 36, 3}},
}};

std::shared_ptr<Conv2d> convolution(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                    std::int64_t stride = 1, std::int64_t dilation = 1) {
  return std::make_shared<Conv2d>(in, out,
                                  Conv2dOptions{.kernel = kernel,
                                                .stride = stride,
                                                .padding = kernel / 2 * dilation,
                                                .dilation = dilation,
                                                .bias = false});
}

std::shared_ptr<ChannelNorm> make_norm(ResNetNorm kind, std::int64_t channels) {
  constexpr std::int64_t kGroupSize = 16;
  switch (kind) {
    case ResNetNorm::kFrozenBatch:
      return std::make_shared<FrozenBatchNorm2d>(channels);
    case ResNetNorm::kBatch:
      return std::make_shared<BatchNorm2d>(channels);
    case ResNetNorm::kGroup:
      return std::make_shared<GroupNorm>(channels / kGroupSize, channels);
  }
  throw InternalError("an unknown kind of normalisation");
}

/// Of the modules from the stem to the last stage, with their places among torchvision's children;
/// 2 and 3 are the activation and the pooling behind the stem.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kNames{{{"conv1", "0"},
                                                                               {"bn1", "1"},
                                                                               {"layer1", "4"},
                                                                               {"layer2", "5"},
                                                                               {"layer3", "6"},
                                                                               {"layer4", "7"}}};

std::string name_of(std::size_t module, ResNetNames names) {
  const auto& [torchvision, place] = kNames[module];
  return std::string(names == ResNetNames::kTorchvision ? torchvision : place);
}

/// oneDNN's convolutions on the CPU are faster on channels-last maps, but the weights must then be
/// reordered at every step. Measured with two threads, forward and backward, batch 8: 96x96 equal,
/// 480x640 1.81 s against 2.49 s.
bool prefers_channels_last(const at::Tensor& images) {
  constexpr std::int64_t kLeastPixels = std::int64_t{160} * 160;
  return images.device().is_cpu() && images.size(2) * images.size(3) >= kLeastPixels;
}

}  // namespace

const ResNetVariant* find_resnet(std::string_view name) {
  const auto found = std::find_if(kVariants.begin(), kVariants.end(),
                                  [&](const ResNetVariant& v) { return v.name == name; });
  return found == kVariants.end() ? nullptr : &*found;
}

// --- Blocks
// ---------------------------------------------------------------------------------------

ResidualBlock::Downsample::Downsample(std::shared_ptr<Conv2d> its_convolution,
                                      std::shared_ptr<ChannelNorm> its_norm)
    : Module("Sequential"),
      convolution(register_module("0", std::move(its_convolution))),
      norm(register_module("1", std::move(its_norm))) {}

ResidualBlock::ResidualBlock(const Shape& s)
    : Callable(s.bottleneck ? "Bottleneck" : "BasicBlock") {
  if (s.downsample())
    downsample_ = std::make_shared<Downsample>(convolution(s.in, s.out(), 1, s.stride),
                                               make_norm(s.norm, s.out()));
  if (s.bottleneck) {
    convolutions_ = {convolution(s.in, s.width, 1),
                     convolution(s.width, s.width, 3, s.stride, s.dilation),
                     convolution(s.width, s.out(), 1)};
  } else {
    convolutions_ = {convolution(s.in, s.width, 3, s.stride), convolution(s.width, s.width, 3)};
  }
  for (std::size_t i = 0; i < convolutions_.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    register_module("conv" + number, convolutions_[i]);
    norms_.push_back(
        register_module("bn" + number, make_norm(s.norm, convolutions_[i]->weight.size(0))));
  }
  if (downsample_) register_module("downsample", downsample_);
}

at::Tensor ResidualBlock::forward(const at::Tensor& x) {
  at::Tensor y = x;
  for (std::size_t i = 0; i + 1 < convolutions_.size(); ++i)
    y = (*norms_[i])((*convolutions_[i])(y), at::Tensor(), Activation::kRelu);
  y = (*convolutions_.back())(y);
  const at::Tensor shortcut = downsample_ ? (*downsample_->norm)((*downsample_->convolution)(x),
                                                                 at::Tensor(), Activation::kNone)
                                          : x;
  return (*norms_.back())(y, shortcut, Activation::kRelu);
}

std::vector<Conv2d*> ResidualBlock::convolutions() const {
  std::vector<Conv2d*> all;
  for (const auto& each : convolutions_) all.push_back(each.get());
  if (downsample_) all.push_back(downsample_->convolution.get());
  return all;
}

// --- The network
// ----------------------------------------------------------------------------------

ResNet::ResNet(const ResNetVariant& variant, const ResNetOptions& options)
    : Callable(options.names == ResNetNames::kTorchvision ? "IntermediateLayerGetter"
                                                          : "Sequential") {
  if (options.dilate_last_stage && !variant.bottleneck)
    fail(
        "{} cannot replace its final stride with dilation: its blocks have none; use resnet50 or "
        "larger",
        variant.name);
  constexpr std::int64_t kStem = 64;
  constexpr std::int64_t kClasses = 1000;
  conv1_ = register_module(
      name_of(0, options.names),
      std::make_shared<Conv2d>(
          3, kStem, Conv2dOptions{.kernel = 7, .stride = 2, .padding = 3, .bias = false}));
  bn1_ = register_module(name_of(1, options.names), make_norm(options.norm, kStem));
  std::vector<Conv2d*> all{conv1_.get()};
  std::int64_t in = kStem;
  for (int stage = 0; stage < 4; ++stage) {
    auto blocks = std::make_shared<ModuleList<ResidualBlock>>("Sequential");
    const bool dilate = options.dilate_last_stage && stage == 3;
    for (std::int64_t i = 0; i < variant.blocks[stage]; ++i) {
      ResidualBlock::Shape shape;
      shape.in = in;
      shape.width = kStem << stage;
      shape.stride = i == 0 && stage > 0 && !dilate ? 2 : 1;
      shape.dilation = i > 0 && dilate ? 2 : 1;
      shape.bottleneck = variant.bottleneck;
      shape.norm = options.norm;
      blocks->push_back(std::make_shared<ResidualBlock>(shape));
      for (Conv2d* each : (*blocks)[i].convolutions()) all.push_back(each);
      in = shape.out();
    }
    stages_.push_back(register_module(name_of(2 + static_cast<std::size_t>(stage), options.names),
                                      std::move(blocks)));
  }
  Linear discarded_classifier(variant.features(), kClasses);
  for (Conv2d* each : all) init::kaiming_normal_fan_out_relu(each->weight);
}

NamedTensors ResNet::torchvision_state() const {
  NamedTensors state;
  const auto append = [&](std::size_t number, const Module& module) {
    for (const auto& [name, tensor] : module.state_dict())
      state.emplace_back(name_of(number, ResNetNames::kTorchvision) + "." + name, tensor);
  };
  append(0, *conv1_);
  append(1, *bn1_);
  for (std::size_t i = 0; i < stages_.size(); ++i) append(2 + i, *stages_[i]);
  return state;
}

at::Tensor ResNet::forward(const at::Tensor& images) {
  const at::Tensor x =
      prefers_channels_last(images) ? images.contiguous(at::MemoryFormat::ChannelsLast) : images;
  at::Tensor y = (*bn1_)((*conv1_)(x), at::Tensor(), Activation::kRelu);
  y = at::max_pool2d(y, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
  for (const auto& stage : stages_) {
    for (const auto& block : *stage) y = (*block)(y);
  }
  return y;
}

}  // namespace lerobot::nn
