// Low-rank adapters of layers (LoRA), with peft's names, draws and arithmetic.
//
// A layer whose weight W is frozen computes with W + scaling * B A, where A is (r, in) and B is
// (out, r) and only these two are trained. peft puts a wrapper around the layer; here the layer
// itself takes the matrices in and its own parameters are renamed as the wrapper would:
//
//   linear1.weight  ->  linear1.base_layer.weight
//                       linear1.lora_A.default.weight
//                       linear1.lora_B.default.weight
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include "lerobot/nn/module.h"

namespace lerobot::nn {

/// What the first values of A and B are. All but kZero change what the layer computes at first, or
/// its weight.
enum class LoraInit {
  kZero,        ///< A as a new layer's weight, B zeros
  kGaussian,    ///< A from N(0, 1/r), B zeros
  kOrthogonal,  ///< random, with rows of B orthogonal to columns of A
  kOlora,       ///< from the QR decomposition of W, which keeps the rest
  kPissa,       ///< from the greatest singular values of W, which keeps the rest
};

struct LoraOptions {
  std::int64_t r = 8;
  double alpha = 8;
  LoraInit init = LoraInit::kZero;

  double scaling() const { return alpha / static_cast<double>(r); }
};

/// A layer that can take in an adapter.
class LoraLayer {
 public:
  virtual ~LoraLayer() = default;

  /// Draws from torch's global CPU generator as peft does. A and B are float32, on the weight's
  /// device, and require gradients; nothing else changes its requires_grad. To be called once.
  /// Throws Error, before anything has changed, for an initialisation that this kind of layer
  /// cannot have.
  virtual void add_lora(const LoraOptions& options) = 0;
  virtual bool has_lora() const = 0;
};

/// The two matrices as layers: linear ones, or convolutions of which B's has a kernel of 1.
template <class Layer>
struct LoraPair {
  std::shared_ptr<Layer> a;
  std::shared_ptr<Layer> b;
  double scaling = 1.0;

  explicit operator bool() const { return a != nullptr; }

  /// What the adapter adds to `result`, the frozen layer's answer to `x`.
  at::Tensor add_to(const at::Tensor& result, const at::Tensor& x) const {
    const at::Tensor own = x.to(a->weight.scalar_type());
    return (result + (*b)((*a)(own)) * scaling).to(result.scalar_type());
  }

  /// scaling * B A, what the adapter adds to the frozen weight. Of linear layers.
  at::Tensor weight_update(at::ScalarType type) const {
    return (b->weight.matmul(a->weight) * scaling).to(type);
  }
};

/// Gives A and B their first values; kOlora and kPissa change the frozen `weight` (out, in), too.
void init_lora(const at::Tensor& a, const at::Tensor& b, const at::Tensor& weight,
               const LoraOptions& options);
/// The same of convolutions: throws Error but for kZero and kGaussian.
void init_convolution_lora(const at::Tensor& a, const at::Tensor& b, const LoraOptions& options);

/// Throws Error when `init` needs a matrix of weights, which `layer` (a class) does not have.
void require_init_without_weight(LoraInit init, const std::string& layer);

}  // namespace lerobot::nn
