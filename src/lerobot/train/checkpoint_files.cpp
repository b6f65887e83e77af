#include "lerobot/train/checkpoint_files.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ops/empty_like.h>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/checkpoint/state_load.h"
#include "lerobot/config/run_folder.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/policy/registry.h"
#include "lerobot/train/policy_weights.h"
#include "lerobot/train/resume_position.h"
#include "lerobot/train/sharded_checkpoint.h"

namespace lerobot::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::FileEntry;
using serialization::NamedTensors;

/// Gradients of micro-batches that no update has used yet, of a run with accumulation. Ours:
/// LeRobot loses them at a checkpoint, and does not mind the file.
constexpr const char* kAccumulatedGradientsFile = "accumulated_gradients.safetensors";

/// torch's GradScaler.state_dict(), with fp16 only.
constexpr const char* kScalerStateFile = "scaler_state.json";

// Names of what is copied before it is written.
constexpr const char* kModelSet = "model";
constexpr const char* kOptimizerSet = "optimizer";
constexpr const char* kEmaSet = "ema";
constexpr const char* kGradientSet = "accumulated gradients";

const std::map<std::string, std::string> kModelMetadata = {{"format", "pt"}};

/// Configuration and processors: the files beside the weights.
void add_policy_files(const Session& session, const fs::path& folder,
                      std::vector<FileEntry>& files) {
  const auto& types = policy::policy_types();
  const auto policy = session.config.policy->clone();
  // Whoever loads this folder from a repository would take it for a revision of that one.
  policy->pretrained_revision.reset();
  files.push_back(
      checkpoint::json_file(folder / config::kPolicyConfigFile, config::to_json(*policy, types)));
  if (session.adapter)
    files.push_back(checkpoint::text_file(folder / config::kAdapterConfigFile,
                                          to_python_json(session.adapter->document, 2)));
  files.push_back(checkpoint::json_file(folder / config::kTrainConfigFile,
                                        config::to_json(session.config, types)));
  for (const processor::Pipeline* pipeline :
       {&session.processors->preprocessor, &session.processors->postprocessor})
    files.push_back(
        {.relative_path = folder / (pipeline->name() + ".json"),
         .bytes = 16 << 10,
         .write = [pipeline](const fs::path& path) { pipeline->save(path.parent_path()); }});
}

bool in_the_middle_of_an_update(const config::TrainConfig& config, std::int64_t step) {
  return step % config.accelerator.gradient_accumulation.steps != 0;
}

/// The shadow weights under the parameters' names, with the live buffers.
NamedTensors ema_weights(const NamedTensors& model, const NamedTensors& parameters,
                         const std::vector<at::Tensor>& shadow) {
  NamedTensors weights = model;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto found = std::find_if(weights.begin(), weights.end(), [&](const auto& entry) {
      return entry.first == parameters[i].first;
    });
    check_internal(found != weights.end(), "a parameter is missing from the state dict");
    found->second = shadow[i];
  }
  return weights;
}

void add_ema_files(Session& session, const NamedTensors& model, checkpoint::HostCopies& copies,
                   std::vector<FileEntry>& files) {
  optim::EmaState state = session.ema->state();
  const NamedTensors shadow = copies.copy(kEmaSet, session.ema->shadow());
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < shadow.size(); ++i) {
    state.shadow_params[i] = shadow[i].second;
    bytes += shadow[i].second.nbytes();
  }
  const fs::path folder = checkpoint::kPretrainedModelEmaFolder;
  files.push_back(checkpoint::tensor_file(
      folder / checkpoint::kModelFile,
      ema_weights(model, session.policy->module().named_parameters(), state.shadow_params),
      kModelMetadata));
  add_policy_files(session, folder, files);
  files.push_back(
      {.relative_path = fs::path(config::kTrainingStateFolder) / checkpoint::kEmaStateFile,
       .bytes = bytes,
       .write = [state](const fs::path& path) { checkpoint::save_ema_state(path, state); }});
}

checkpoint::TrainingStep training_step(const Session& session, std::int64_t step) {
  const config::TrainConfig& config = session.config;
  return {.step = step,
          .dp_world_size = session.world->size(),
          .batch_size = config.batch_size,
          .grad_accum_steps = config.accelerator.gradient_accumulation.steps,
          .dp_replicate = config.parallelism.dp_replicate,
          .dp_shard = config.parallelism.dp_shard,
          .ring_degree = config.parallelism.context_parallel.ring_degree,
          .ulysses_degree = config.parallelism.context_parallel.ulysses_degree,
          .mixed_precision = config.accelerator.mixed_precision,
          // Several processes fill their last batches in any case.
          .even_batches = session.start.even_batches && session.world->size() == 1};
}

/// Weights and optimizer state of a run whose ranks all hold the whole model.
void add_whole_model_files(Session& session, const NamedTensors& model,
                           checkpoint::HostCopies& copies, std::vector<FileEntry>& files) {
  const fs::path state_folder = config::kTrainingStateFolder;
  files.push_back(checkpoint::tensor_file(
      fs::path(config::kPretrainedModelFolder) / weights_file(session), model, kModelMetadata));
  files.push_back(checkpoint::tensor_file(state_folder / checkpoint::kOptimizerStateFile,
                                          copies.copy(kOptimizerSet, session.optimizer->state())));
  files.push_back(checkpoint::json_file(state_folder / checkpoint::kOptimizerParamGroupsFile,
                                        session.optimizer->param_groups()));
}

/// What every layout keeps alike: step, random states, schedule, scaler, place in the stream.
void add_small_state_files(Session& session, std::int64_t step, std::vector<FileEntry>& files) {
  const fs::path folder = config::kTrainingStateFolder;
  files.push_back(checkpoint::json_file(folder / checkpoint::kTrainingStepFile,
                                        checkpoint::to_json(training_step(session, step))));
  checkpoint::capture_torch_rng(session.rng);
  files.push_back(checkpoint::tensor_file(folder / checkpoint::kRngStateFile,
                                          checkpoint::to_tensors(session.rng)));
  if (session.scheduler)
    files.push_back(checkpoint::json_file(folder / checkpoint::kSchedulerStateFile,
                                          session.scheduler->state()));
  if (session.scaler)
    files.push_back(checkpoint::json_file(folder / kScalerStateFile, session.scaler->state()));
  if (session.datasets.stream)
    files.push_back(checkpoint::json_file(folder / streaming::kStreamingStateFile,
                                          streaming::to_json(session.datasets.stream->state)));
}

/// Puts --optimizer.* values of the command line in place of recorded ones. A group with a rate of
/// its own, such as a backbone's, keeps it.
void override_given_settings(const Session& session, Json& groups) {
  const Json ours = session.optimizer->param_groups();
  if (!groups.is_array() || groups.size() != ours.size()) return;  // load_param_groups() says why
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!groups[i].is_object()) continue;
    for (const auto& [key, value] : ours[i].items()) {
      if (!session.given.contains("optimizer." + key) || !groups[i].contains(key)) continue;
      groups[i][key] = value;
      if (key == "lr" && groups[i].contains("initial_lr")) groups[i]["initial_lr"] = value;
    }
  }
}

/// The schedule of a new --optimizer.lr: every recorded rate scaled as its base rate changes.
void override_given_rate(const Session& session, const std::vector<double>& new_base_rates,
                         Json& state) {
  if (!session.given.contains("optimizer.lr")) return;
  for (std::size_t i = 0; i < new_base_rates.size(); ++i) {
    if (i >= state.value("base_lrs", Json::array()).size() ||
        i >= state.value("_last_lr", Json::array()).size())
      return;  // load_state() says why
    const double old = state["base_lrs"][i].get<double>();
    if (old > 0)
      state["_last_lr"][i] = state["_last_lr"][i].get<double>() * new_base_rates[i] / old;
    state["base_lrs"][i] = new_base_rates[i];
  }
}

void load_accumulated_gradients(Session& session, const fs::path& file) {
  const auto source = checkpoint::open_tensor_file(file);
  std::map<std::string, distributed::LocalTensor> held;
  for (auto& local : session.model->state()) held.emplace(local.name, local);
  for (const auto& [name, parameter] : session.model->parameters()) {
    if (!source->contains(name)) continue;
    const distributed::LocalTensor& local = held.at(name);
    if (source->shape(name) != local.global_size)
      fail("{}: the gradient {} has another shape than the parameter", file.string(), name);
    const at::Tensor gradient = at::empty_like(parameter.detach());
    source->read(name, local.first_row, gradient);
    parameter.mutable_grad() = gradient;
  }
}

void restore_optimizer(Session& session, const fs::path& folder) {
  checkpoint::require_sharded_optimizer(folder);
  optim::Optimizer& optimizer = *session.optimizer;
  auto source = checkpoint::open_optimizer(folder, checkpoint::parameter_names(optimizer));
  override_given_settings(session, source.groups);
  checkpoint::load_optimizer(optimizer, session.model->state(), source);
}

void restore_schedule(Session& session, const fs::path& folder,
                      const std::vector<double>& new_base_rates) {
  if (!session.scheduler) return;
  Json state = read_json_file(folder / checkpoint::kSchedulerStateFile);
  override_given_rate(session, new_base_rates, state);
  session.scheduler->load_state(state);
}

void restore_scaler(Session& session, const fs::path& folder) {
  if (!session.scaler) return;
  const fs::path file = folder / kScalerStateFile;
  if (!fs::exists(file)) {
    log::warning("{} is not there: the loss scale starts at {}", file.string(),
                 session.scaler->scale());
    return;
  }
  try {
    session.scaler->load_state(read_json_file(file));
  } catch (const Error& error) {
    fail("{}: {}", file.string(), error.what());
  }
}

void restore_average(Session& session, const fs::path& folder) {
  if (!session.ema) return;
  const fs::path file = folder / checkpoint::kEmaStateFile;
  if (fs::exists(file))
    session.ema->load_state(checkpoint::read_ema_state(file));
  else
    log::warning("{} has no {}: the average starts from the resumed weights.", folder.string(),
                 checkpoint::kEmaStateFile);
}

void warn_about_changes(const Session& session, const checkpoint::TrainingStep& recorded) {
  const checkpoint::TrainingStep now = training_step(session, 0);
  const auto compare = [](const char* name, const std::optional<std::int64_t>& before,
                          const std::optional<std::int64_t>& after, const char* consequence) {
    if (before && after && *before != *after)
      log::warning("Resuming with {}={}, the checkpoint was written with {}. {}", name, *after,
                   *before, consequence);
  };
  compare("gradient_accumulation.steps", recorded.grad_accum_steps, now.grad_accum_steps,
          "Updates fall on other steps than before.");
  if (recorded.mixed_precision != now.mixed_precision)
    log::warning("Resuming with mixed_precision={}, the checkpoint was written with {}.",
                 now.mixed_precision, recorded.mixed_precision);
}

}  // namespace

std::vector<std::pair<std::string, NamedTensors>> checkpoint_tensors(Session& session) {
  if (session.world->mesh().is_sharded()) return sharded_tensors(session);
  std::vector<std::pair<std::string, NamedTensors>> sets = {
      {kModelSet, tensors_of(policy_weights(session))},
      {kOptimizerSet, session.optimizer->state()}};
  if (session.ema) sets.emplace_back(kEmaSet, session.ema->shadow());
  return sets;
}

std::vector<distributed::LocalTensor> accumulated_gradients(Session& session, std::int64_t step) {
  if (!in_the_middle_of_an_update(session.config, step)) return {};
  return session.model->accumulated_gradients();
}

std::vector<FileEntry> checkpoint_files(
    Session& session, std::int64_t step,
    const std::vector<distributed::LocalTensor>& accumulated_gradients,
    checkpoint::HostCopies& copies) {
  const fs::path gradient_file = fs::path(config::kTrainingStateFolder) / kAccumulatedGradientsFile;
  std::vector<FileEntry> files;
  if (session.world->mesh().is_sharded()) {
    add_sharded_files(session, step, copies, files);
    if (!accumulated_gradients.empty())
      add_gathered_gradients(session, accumulated_gradients, gradient_file, copies, files);
    if (!session.world->is_main()) return files;
  } else {
    const NamedTensors model = copies.copy(kModelSet, tensors_of(policy_weights(session)));
    add_whole_model_files(session, model, copies, files);
    if (session.ema) add_ema_files(session, model, copies, files);
    if (!accumulated_gradients.empty())
      files.push_back(checkpoint::tensor_file(
          gradient_file, copies.copy(kGradientSet, tensors_of(accumulated_gradients))));
  }
  add_policy_files(session, config::kPretrainedModelFolder, files);
  add_small_state_files(session, step, files);
  return files;
}

void restore_weights(Session& session, const fs::path& checkpoint) {
  checkpoint::require_complete(checkpoint);
  load_weights(session, checkpoint / config::kPretrainedModelFolder);
}

void restore_training_state(Session& session, const fs::path& checkpoint) {
  const fs::path folder = checkpoint / config::kTrainingStateFolder;
  const config::TrainConfig& config = session.config;

  const auto recorded = checkpoint::read_training_step(folder / checkpoint::kTrainingStepFile);
  warn_about_changes(session, recorded);
  session.rng = checkpoint::read_rng_state(folder / checkpoint::kRngStateFile);
  std::vector<double> base_rates;
  for (const auto& group : session.optimizer->groups())
    base_rates.push_back(group.initial_lr.value_or(group.lr));
  restore_optimizer(session, folder);
  restore_schedule(session, folder, base_rates);
  restore_scaler(session, folder);
  restore_average(session, folder);
  if (in_the_middle_of_an_update(config, recorded.step) &&
      fs::exists(folder / kAccumulatedGradientsFile))
    load_accumulated_gradients(session, folder / kAccumulatedGradientsFile);

  restore_position(session, folder, recorded);
  checkpoint::restore_torch_rng(session.rng);
}

}  // namespace lerobot::train
