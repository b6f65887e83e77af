// A policy as one or many processes train it: the one interface between the training loop and
// DDP, FSDP, HSDP or a single process.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/config/train_config.h"
#include "lerobot/dataset/batch.h"
#include "lerobot/distributed/shard.h"
#include "lerobot/distributed/world.h"
#include "lerobot/nn/module.h"
#include "lerobot/policy/policy.h"

namespace lerobot::distributed {

/// Used by the training thread. Every rank makes the same calls in the same order.
class TrainingModel {
 public:
  virtual ~TrainingModel() = default;

  /// What the optimizer updates, under the module's parameter names and in its order: whole
  /// trainable parameters, or this rank's rows of them. Their gradients are there after a
  /// backward() that synchronised.
  virtual const nn::NamedTensors& parameters() const = 0;
  /// What this rank holds of every tensor of the module's state_dict(), in its order.
  virtual std::vector<LocalTensor> state() const = 0;

  /// Forward of one micro-batch. With gradients enabled, `synchronise` says whether the backward
  /// that follows averages the gradients over all ranks (the last micro-batch of an update) or
  /// keeps them to itself. With gradients disabled (held-out loss) it is ignored.
  virtual policy::TrainOutput compute_loss(dataset::Batch& batch, bool synchronise) = 0;
  /// Backward of what compute_loss() returned, or of a scaled loss made of it.
  virtual void backward(const at::Tensor& loss) = 0;
  /// The gradients of micro-batches that no update has used yet, averaged over all ranks, as this
  /// rank holds them: what a checkpoint in the middle of an update keeps. Every rank gets the same
  /// names. A run that starts with them on each rank, as the gradients of parameters(), goes on as
  /// this one does.
  virtual std::vector<LocalTensor> accumulated_gradients() = 0;
  /// optim::clip_grad_norm() over the whole model, the same number on every rank.
  virtual at::Tensor clip_grad_norm(double max_norm) = 0;
};

/// The model for the world's mesh. A single process: the policy as it is. FSDP and HSDP: divides
/// the policy's parameters in place, unit by unit; afterwards only parameters() has values between
/// steps. Throws Error when the options name no wrap unit, an unknown class, tied weights in two
/// units, and so on.
std::unique_ptr<TrainingModel> make_training_model(policy::Policy& policy, const World& world,
                                                   const config::AcceleratorConfig& options);

}  // namespace lerobot::distributed
