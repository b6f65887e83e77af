#include "lerobot/train/checkpoint_files.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/config/run_folder.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/policy/registry.h"

namespace lerobot::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::FileEntry;
using serialization::NamedTensors;

/// Gradients of micro-batches that no update has used yet, of a run with accumulation. Ours:
/// LeRobot loses them at a checkpoint, and does not mind the file.
constexpr const char* kAccumulatedGradientsFile = "accumulated_gradients.safetensors";

// Names of what is copied before it is written.
constexpr const char* kModelSet = "model";
constexpr const char* kOptimizerSet = "optimizer";
constexpr const char* kEmaSet = "ema";

const std::map<std::string, std::string> kModelMetadata = {{"format", "pt"}};

/// Configuration and processors: the files beside the weights.
void add_policy_files(const Session& session, const fs::path& folder,
                      std::vector<FileEntry>& files) {
  const auto& types = policy::policy_types();
  files.push_back(checkpoint::json_file(folder / config::kPolicyConfigFile,
                                        config::to_json(session.policy->config(), types)));
  files.push_back(checkpoint::json_file(folder / config::kTrainConfigFile,
                                        config::to_json(session.config, types)));
  for (const processor::Pipeline* pipeline :
       {&session.processors->preprocessor, &session.processors->postprocessor})
    files.push_back(
        {.relative_path = folder / (pipeline->name() + ".json"),
         .bytes = 16 << 10,
         .write = [pipeline](const fs::path& path) { pipeline->save(path.parent_path()); }});
}

NamedTensors accumulated_gradients(const Session& session) {
  NamedTensors gradients;
  for (const auto& [name, parameter] : session.policy->module().named_parameters())
    if (parameter.grad().defined()) gradients.emplace_back(name, parameter.grad());
  return gradients;
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

checkpoint::TrainingStep training_step(const config::TrainConfig& config, std::int64_t step,
                                       bool even_batches) {
  return {.step = step,
          .dp_world_size = 1,
          .batch_size = config.batch_size,
          .grad_accum_steps = config.accelerator.gradient_accumulation.steps,
          .dp_replicate = config.parallelism.dp_replicate,
          .dp_shard = config.parallelism.dp_shard,
          .ring_degree = config.parallelism.context_parallel.ring_degree,
          .ulysses_degree = config.parallelism.context_parallel.ulysses_degree,
          .mixed_precision = config.accelerator.mixed_precision,
          .even_batches = even_batches};
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
  const serialization::SafetensorsFile gradients(file);
  for (const auto& [name, parameter] : session.policy->module().named_parameters()) {
    if (!gradients.contains(name)) continue;
    at::Tensor gradient = gradients.tensor(name);
    if (gradient.sizes() != parameter.sizes())
      fail("{}: the gradient {} has another shape than the parameter", file.string(), name);
    parameter.mutable_grad() = gradient.to(parameter.device());
  }
}

void warn_about_changes(const config::TrainConfig& config,
                        const checkpoint::TrainingStep& recorded) {
  const checkpoint::TrainingStep now = training_step(config, 0, /*even_batches=*/false);
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

/// The place in a stream after the recorded steps.
void restore_stream_position(Session& session, const fs::path& state_folder,
                             const checkpoint::TrainingStep& recorded) {
  const fs::path file = state_folder / streaming::kStreamingStateFile;
  std::optional<streaming::StreamingState> state;
  if (fs::exists(file)) state = streaming::read_streaming_state(file);
  resume_stream(*session.datasets.stream, session.config, state ? &*state : nullptr, recorded.step,
                recorded.dp_world_size.value_or(1),
                recorded.batch_size.value_or(session.config.batch_size));
  log::info("Resuming data order after {} batches", recorded.step);
}

/// The place in the order of a dataset in memory. A step of the loop covers the same samples as in
/// the recorded run as long as all processes together take as many.
void restore_map_position(Session& session, const fs::path& state_folder,
                          const checkpoint::TrainingStep& recorded) {
  if (fs::exists(state_folder / streaming::kStreamingStateFile))
    log::warning(
        "The checkpoint's run was streamed, this one is not: the data order goes on at the right "
        "epoch "
        "and offset, but with other samples. --dataset.streaming=true goes on exactly.");
  const std::int64_t world = recorded.dp_world_size.value_or(1);
  const std::int64_t batch_size = recorded.batch_size.value_or(session.config.batch_size);
  const std::int64_t now = session.config.batch_size;
  dataset::EpochPosition& position = session.start.samples;
  position = dataset::position_after(
      recorded.step, make_sampler(session.config, session.datasets).size(), batch_size, world);
  log::info("Resuming data order at epoch {}, sample {}", position.epoch, position.sample);
  if (batch_size * world == now) {
    session.start.even_batches = world > 1 || recorded.even_batches;
    if (world != 1)
      log::info(
          "The checkpoint was written by {} processes with batch_size={}: every step goes on with "
          "the samples that they would have had together",
          world, batch_size);
    return;
  }
  log::warning(
      "Resuming with {} samples a step (batch_size={} on 1 process), the checkpoint was written "
      "with "
      "{} (batch_size={} on {}). The data order goes on at the right epoch and offset, but steps "
      "cover other samples than before.",
      now, now, batch_size * world, batch_size, world);
}

}  // namespace

std::vector<std::pair<std::string, NamedTensors>> checkpoint_tensors(Session& session) {
  std::vector<std::pair<std::string, NamedTensors>> sets = {
      {kModelSet, session.policy->module().state_dict()},
      {kOptimizerSet, session.optimizer->state()}};
  if (session.ema) sets.emplace_back(kEmaSet, session.ema->shadow());
  return sets;
}

std::vector<FileEntry> checkpoint_files(Session& session, std::int64_t step,
                                        checkpoint::HostCopies& copies) {
  const fs::path model_folder = config::kPretrainedModelFolder;
  const fs::path state_folder = config::kTrainingStateFolder;
  std::vector<FileEntry> files;

  const NamedTensors model = copies.copy(kModelSet, session.policy->module().state_dict());
  files.push_back(
      checkpoint::tensor_file(model_folder / checkpoint::kModelFile, model, kModelMetadata));
  add_policy_files(session, model_folder, files);

  files.push_back(checkpoint::json_file(
      state_folder / checkpoint::kTrainingStepFile,
      checkpoint::to_json(training_step(session.config, step, session.start.even_batches))));
  checkpoint::capture_torch_rng(session.rng);
  files.push_back(checkpoint::tensor_file(state_folder / checkpoint::kRngStateFile,
                                          checkpoint::to_tensors(session.rng)));
  files.push_back(checkpoint::tensor_file(state_folder / checkpoint::kOptimizerStateFile,
                                          copies.copy(kOptimizerSet, session.optimizer->state())));
  files.push_back(checkpoint::json_file(state_folder / checkpoint::kOptimizerParamGroupsFile,
                                        session.optimizer->param_groups()));
  if (session.scheduler)
    files.push_back(checkpoint::json_file(state_folder / checkpoint::kSchedulerStateFile,
                                          session.scheduler->state()));
  if (session.datasets.stream)
    files.push_back(checkpoint::json_file(state_folder / streaming::kStreamingStateFile,
                                          streaming::to_json(session.datasets.stream->state)));
  if (session.ema) add_ema_files(session, model, copies, files);
  if (in_the_middle_of_an_update(session.config, step))
    files.push_back(
        checkpoint::tensor_file(state_folder / kAccumulatedGradientsFile,
                                copies.copy("gradients", accumulated_gradients(session))));
  return files;
}

void restore_training_state(Session& session, const fs::path& checkpoint) {
  const fs::path folder = checkpoint / config::kTrainingStateFolder;
  const config::TrainConfig& config = session.config;

  checkpoint::require_complete(checkpoint);
  const auto recorded = checkpoint::read_training_step(folder / checkpoint::kTrainingStepFile);
  warn_about_changes(config, recorded);
  session.rng = checkpoint::read_rng_state(folder / checkpoint::kRngStateFile);
  std::vector<double> base_rates;
  for (const auto& group : session.optimizer->groups())
    base_rates.push_back(group.initial_lr.value_or(group.lr));
  Json groups = read_json_file(folder / checkpoint::kOptimizerParamGroupsFile);
  override_given_settings(session, groups);
  session.optimizer->load_param_groups(groups);
  session.optimizer->load_state(
      serialization::SafetensorsFile(folder / checkpoint::kOptimizerStateFile).all());
  if (session.scheduler) {
    Json state = read_json_file(folder / checkpoint::kSchedulerStateFile);
    override_given_rate(session, base_rates, state);
    session.scheduler->load_state(state);
  }
  if (session.ema && fs::exists(folder / checkpoint::kEmaStateFile))
    session.ema->load_state(checkpoint::read_ema_state(folder / checkpoint::kEmaStateFile));
  else if (session.ema)
    log::warning("{} has no {}: the average starts from the resumed weights.", folder.string(),
                 checkpoint::kEmaStateFile);
  if (in_the_middle_of_an_update(config, recorded.step) &&
      fs::exists(folder / kAccumulatedGradientsFile))
    load_accumulated_gradients(session, folder / kAccumulatedGradientsFile);

  session.start.step = recorded.step;
  if (session.datasets.stream)
    restore_stream_position(session, folder, recorded);
  else
    restore_map_position(session, folder, recorded);
  checkpoint::restore_torch_rng(session.rng);
}

}  // namespace lerobot::train
