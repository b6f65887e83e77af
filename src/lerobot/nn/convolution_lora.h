// Adapters of convolutions (nn/lora.h).
#pragma once

#include <memory>

#include "lerobot/nn/lora.h"

namespace lerobot::nn {

/// New matrices for a convolution, with their first values: A has its kernel, B one of 1. Throws
/// Error for an initialisation that needs a matrix of weights.
template <class Layer, class Options>
LoraPair<Layer> draw_convolution_lora(const Layer& layer, Options options,
                                      const LoraOptions& lora) {
  require_init_without_weight(lora.init, layer.class_name());
  options.bias = false;
  Options one;
  one.bias = false;
  LoraPair<Layer> pair;
  pair.scaling = lora.scaling();
  pair.a = std::make_shared<Layer>(layer.weight.size(1), lora.r, options);
  pair.b = std::make_shared<Layer>(lora.r, layer.weight.size(0), one);
  init_convolution_lora(pair.a->weight, pair.b->weight, lora);
  return pair;
}

}  // namespace lerobot::nn
