#include "lerobot/train/session.h"

#include <algorithm>
#include <utility>

#include <ATen/Context.h>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/config/run_folder.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/policy/registry.h"
#include "lerobot/train/checkpoint_files.h"

namespace lerobot::train {
namespace {

namespace fs = std::filesystem;

/// The device that --policy.device means here: an unavailable one is replaced, with a warning.
at::Device resolve_device(std::optional<std::string>& option) {
  const bool has_cuda = at::hasCUDA();
  if (!option) option = has_cuda ? "cuda" : "cpu";
  at::Device device(*option);
  if (device.is_cuda() && !has_cuda) {
    log::warning("Device '{}' is not available, using 'cpu'.", *option);
    option = "cpu";
    device = at::Device(at::kCPU);
  }
  return device;
}

/// Names as --rename_map shows them to the policy.
config::FeatureMap renamed(config::FeatureMap features,
                           const std::map<std::string, std::string>& rename_map) {
  for (auto& [name, feature] : features)
    if (const auto found = rename_map.find(name); found != rename_map.end()) name = found->second;
  return features;
}

void check_inputs_exist(const config::PolicyConfig& policy, const config::FeatureMap& available) {
  std::string missing, present;
  for (const auto& [name, feature] : policy.input_features) {
    const auto found = std::find_if(available.begin(), available.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    if (found == available.end())
      missing += (missing.empty() ? "" : ", ") + name;
    else if (feature.type != config::FeatureType::kVisual && found->second.shape != feature.shape)
      fail("policy input {} has shape [{}], the dataset's has [{}]", name,
           fmt::join(feature.shape, ", "), fmt::join(found->second.shape, ", "));
  }
  for (const auto& [name, feature] : available) present += (present.empty() ? "" : ", ") + name;
  if (!missing.empty())
    fail(
        "the policy's inputs {} are not in the dataset, which has {}; name what differs with "
        "--rename_map='{{\"dataset name\": \"policy name\"}}'",
        missing, present);
}

std::vector<optim::Group> optimizer_groups(policy::Policy& policy,
                                           const config::TrainConfig& config, double lr) {
  if (!config.use_policy_training_preset)
    return {{.parameters = policy.module().named_parameters(), .lr = lr, .initial_lr = {}}};
  std::vector<optim::Group> groups;
  for (auto& group : policy.parameter_groups())
    groups.push_back(
        {.parameters = std::move(group.parameters), .lr = group.lr.value_or(lr), .initial_lr = {}});
  return groups;
}

void seed_torch(std::uint64_t seed) {
  at::manual_seed(seed);  // the CPU generator and every CUDA device
}

}  // namespace

at::Device complete_policy_config(config::TrainConfig& config,
                                  const dataset::DatasetMetadata& metadata) {
  config::PolicyConfig& policy = *config.policy;
  const at::Device device = resolve_device(policy.device);
  if (config.accelerator.mixed_precision == "fp16" && device.is_cpu())
    fail_usage(
        "--accelerator.mixed_precision=fp16 needs an accelerator; with --policy.device=cpu use "
        "bf16 or no");
  const config::FeatureMap available = renamed(metadata.policy_features(), config.rename_map);
  config::FeatureMap inputs, outputs;
  for (const auto& entry : available)
    (entry.second.type == config::FeatureType::kAction ? outputs : inputs).push_back(entry);
  policy.output_features = outputs;
  if (policy.input_features.empty())
    policy.input_features = inputs;
  else
    check_inputs_exist(policy, available);
  return device;
}

Session make_session(config::TrainConfig config, std::set<std::string> given) {
  Session session;
  session.config = std::move(config);
  session.given = std::move(given);
  config::TrainConfig& cfg = session.config;
  session.output_dir = *cfg.output_dir;

  session.rng = checkpoint::seeded_rng_state(cfg.seed);
  if (cfg.seed) seed_torch(static_cast<std::uint64_t>(*cfg.seed));

  log::info("Creating dataset");
  auto metadata = open_metadata(cfg);
  session.device = complete_policy_config(cfg, *metadata);
  session.datasets = open_datasets(cfg, std::move(metadata));
  const auto& statistics = session.datasets.metadata->stats();

  log::info("Creating policy");
  const auto& pretrained = cfg.policy->pretrained_path;
  session.policy = policy::make_policy(*cfg.policy, /*load_pretrained_backbone=*/!pretrained);
  if (pretrained) {
    const fs::path directory = config::find_pretrained(*pretrained);
    policy::load_policy_weights(*session.policy, directory / checkpoint::kModelFile);
    session.processors = policy::load_processors(*cfg.policy, directory, cfg.rename_map,
                                                 cfg.resume ? nullptr : &statistics);
  } else {
    session.processors = policy::make_processors(*cfg.policy, statistics);
  }

  log::info("Creating optimizer and scheduler");
  const double lr = std::visit([](const auto& options) { return options.lr; }, *cfg.optimizer);
  session.optimizer =
      optim::make_optimizer(*cfg.optimizer, optimizer_groups(*session.policy, cfg, lr));
  if (cfg.scheduler)
    session.scheduler =
        std::make_unique<optim::Scheduler>(*cfg.scheduler, *session.optimizer, cfg.steps);
  if (cfg.ema.enable)
    session.ema = std::make_unique<optim::ExponentialMovingAverage>(
        cfg.ema, session.policy->module().named_parameters());

  if (cfg.resume) restore_training_state(session, *cfg.checkpoint_path);
  return session;
}

}  // namespace lerobot::train
