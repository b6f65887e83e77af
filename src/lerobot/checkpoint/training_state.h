// The small files of training_state/: step and topology, random states, EMA.
// Optimizer and scheduler files are Json and NamedTensors from optim/.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/base/json.h"
#include "lerobot/base/random.h"
#include "lerobot/optim/ema.h"
#include "lerobot/serialization/safetensors.h"

namespace lerobot::checkpoint {

namespace fs = std::filesystem;

// --- training_step.json -------------------------------------------------------------------------

/// What a file may lack is empty after reading; everything is written.
struct TrainingStep {
  std::int64_t step = 0;
  std::optional<std::int64_t> dp_world_size;
  std::optional<std::int64_t> batch_size;  // of one rank
  std::optional<std::int64_t> grad_accum_steps;
  std::optional<std::int64_t> dp_replicate;
  std::optional<std::int64_t> dp_shard;
  std::optional<std::int64_t> ring_degree;
  std::optional<std::int64_t> ulysses_degree;
  /// "no", "fp16" or "bf16"; written only when not "no", absent means "no".
  std::string mixed_precision = "no";
  /// Ours: one process that goes on a run of several, whose last batch of an epoch is filled.
  /// Written only when true; LeRobot does not mind it.
  bool even_batches = false;
};

/// The file's content in LeRobot's order of keys; absent values are left out.
Json to_json(const TrainingStep& step);
/// Accepts missing keys except `step`, and num_processes for dp_world_size. Throws Error naming the
/// file and the key for a wrong type or a negative number.
TrainingStep read_training_step(const fs::path& path);

// --- rng_state.safetensors ----------------------------------------------------------------------

/// State of Python's `random` or of numpy's legacy generator: MT19937 words and the position in
/// them.
struct MersenneTwisterState {
  std::array<std::uint32_t, Mt19937::kWords> words{};
  std::uint32_t position = Mt19937::kWords;
};

/// random.seed(seed).
MersenneTwisterState python_random_state(std::uint64_t seed);
/// numpy.random.seed(seed). Throws Error for a seed that numpy refuses (above 2^32 - 1).
MersenneTwisterState numpy_random_state(std::uint64_t seed);

/// The random states of one process. Python's and numpy's serve only LeRobot, when it resumes our
/// checkpoint: nothing here draws from them, so a resumed run writes back what it read.
struct RngState {
  MersenneTwisterState python;
  MersenneTwisterState numpy;
  bool numpy_has_gauss = false;
  float numpy_cached_gaussian = 0.0F;
  at::Tensor torch_cpu;                  // uint8 [5056], torch.get_rng_state()
  std::optional<at::Tensor> torch_cuda;  // uint8, torch.cuda.get_rng_state()
};

/// The states of Python and numpy after seeding with `seed` (from the system's entropy when empty),
/// torch's as capture_torch_rng() gives them.
RngState seeded_rng_state(std::optional<std::uint64_t> seed);
/// Stores the current states of torch's default generators (CPU, and CUDA when there is one).
void capture_torch_rng(RngState& state);
/// Sets torch's default generators. A CUDA state is ignored on a machine without CUDA.
void restore_torch_rng(const RngState& state);

serialization::NamedTensors to_tensors(const RngState& state);
/// Throws Error naming the file and the key for what is missing, out of range or of another shape.
RngState read_rng_state(const fs::path& path);

// --- ema_state.pt -------------------------------------------------------------------------------

/// torch.save of the dictionary that diffusers' EMAModel.state_dict() gives.
void save_ema_state(const fs::path& path, const optim::EmaState& state);
/// Throws Error naming the file and the key for what is missing or of another type.
optim::EmaState read_ema_state(const fs::path& path);

}  // namespace lerobot::checkpoint
