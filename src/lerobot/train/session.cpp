#include "lerobot/train/session.h"

#include <algorithm>
#include <chrono>
#include <malloc.h>
#include <map>
#include <utility>

#include <ATen/Context.h>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/base/process.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/config/run_folder.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/policy/registry.h"
#include "lerobot/train/checkpoint_files.h"
#include "lerobot/train/hub_files.h"
#include "lerobot/train/policy_weights.h"

namespace lerobot::train {
namespace {

namespace fs = std::filesystem;

/// An unavailable device is replaced, with a warning.
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

/// The policy's groups over what the model trains under the same names: the parameters themselves,
/// or this rank's rows of them.
std::vector<optim::Group> optimizer_groups(policy::Policy& policy,
                                           const distributed::TrainingModel& model,
                                           const config::TrainConfig& config, double lr) {
  const nn::NamedTensors& trained = model.parameters();
  if (!config.use_policy_training_preset)
    return {{.parameters = trained, .lr = lr, .initial_lr = {}}};
  const std::map<std::string, at::Tensor> by_name(trained.begin(), trained.end());
  std::vector<optim::Group> groups;
  std::size_t grouped = 0;
  for (const auto& group : policy.parameter_groups()) {
    optim::Group& own = groups.emplace_back(
        optim::Group{.parameters = {}, .lr = group.lr.value_or(lr), .initial_lr = {}});
    for (const auto& [name, parameter] : group.parameters) {
      const auto found = by_name.find(name);
      if (found == by_name.end()) continue;  // another name of a tied parameter
      own.parameters.emplace_back(name, found->second);
      ++grouped;
    }
  }
  check_internal(grouped == trained.size(), "parameter groups that leave parameters out");
  return groups;
}

/// Two lines; empty for a dataset that is in no repository.
std::string pin_text(const std::optional<dataset::PinnedRevision>& pinned) {
  return pinned ? fmt::format("{}\n{}", pinned->revision, pinned->commit) : "";
}

std::optional<dataset::PinnedRevision> parse_pin(const std::string& text) {
  const std::size_t line = text.find('\n');
  if (line == std::string::npos) return std::nullopt;
  return dataset::PinnedRevision{text.substr(0, line), text.substr(line + 1)};
}

/// Opens the datasets and gives the policy its features. Returns which state was opened.
std::string open_data(Session& session, const std::optional<dataset::PinnedRevision>& pinned) {
  config::TrainConfig& cfg = session.config;
  const auto place = open_place(cfg, pinned);
  auto metadata = open_metadata(cfg, *place);
  complete_policy_config(cfg, *metadata);
  session.datasets = open_datasets(cfg, *place, std::move(metadata), session.world->size());
  return pin_text(place->pinned());
}

template <class F>
double seconds_of(const F& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void load_pretrained_weights(policy::Policy& policy, const fs::path& directory) {
  const fs::path file = directory / checkpoint::kModelFile;
  if (!fs::exists(file) && fs::exists(directory / config::kAdapterConfigFile))
    fail("{} holds an adapter and no whole policy: it needs use_peft=true in its config.json",
         directory.string());
  if (!fs::exists(file) && fs::exists(directory / checkpoint::kShardedModelFolder))
    fail(
        "{} holds sharded weights only: merge them first with "
        "`lerobot-convert-dcp --checkpoint_dir='{}'`",
        directory.string(), directory.string());
  policy::load_policy_weights(policy, file);
}

/// The policy under the adapter in `folder`.
PretrainedPolicy fetch_base(const policy::AdapterConfig& adapter, const fs::path& folder) {
  try {
    PretrainedPolicy base = fetch_policy(adapter.base, adapter.base_revision);
    if (fs::exists(base.folder / config::kAdapterConfigFile))
      fail("{} is itself an adapter, expected a whole policy", base.folder.string());
    return base;
  } catch (const Error& error) {
    const std::string where =
        fs::path(adapter.base).is_absolute() || config::may_be_on_hub(adapter.base)
            ? ""
            : fmt::format(" (from {})", fs::current_path().string());
    fail(
        "the adapter in {} was trained on the policy {}{}, which can't be opened: {}. Put it back, "
        "or write where it is now into base_model_name_or_path of {}",
        folder.string(), adapter.base, where, error.what(),
        (folder / config::kAdapterConfigFile).string());
  }
}

/// Weights of the policy that a run begins with. An adapter's, and those of a resumed run, are read
/// later, every rank what it holds.
void start_from(Session& session, const fs::path& directory) {
  config::TrainConfig& cfg = session.config;
  if (session.adapter) {
    load_pretrained_weights(*session.policy, fetch_base(*session.adapter, directory).folder);
    policy::adapt(*session.policy, *session.adapter);
    return;
  }
  if (!cfg.resume) load_pretrained_weights(*session.policy, directory);
  if (!cfg.peft) return;
  session.adapter = policy::new_adapter(*cfg.peft, *session.policy);
  policy::adapt(*session.policy, *session.adapter);
  cfg.policy->use_peft = true;
}

/// The policy with its first weights, the processors beside it, and the policy as this world trains
/// it.
void build_policy(Session& session, const dataset::DatasetStats& statistics) {
  const config::TrainConfig& cfg = session.config;
  const auto& pretrained = cfg.policy->pretrained_path;
  session.policy = policy::make_policy(*cfg.policy, /*load_pretrained_backbone=*/!pretrained);
  fs::path directory;
  if (pretrained) {
    directory = fetch_policy(*pretrained, cfg.policy->pretrained_revision).folder;
    start_from(session, directory);
    session.processors = policy::load_processors(*cfg.policy, directory, cfg.rename_map,
                                                 cfg.resume ? nullptr : &statistics);
  } else {
    session.processors = policy::make_processors(*cfg.policy, statistics);
  }
  session.model =
      distributed::make_training_model(*session.policy, *session.world, cfg.accelerator);
  if (session.adapter && !session.adapter->is_new && !cfg.resume) load_weights(session, directory);
}

std::int64_t most_ranks_of_a_host(const distributed::World& world) {
  std::int64_t most = 1;
  for (const std::string& rank : world.all().all_gather_text(std::to_string(world.local_rank())))
    most = std::max<std::int64_t>(most, 1 + std::stoll(rank));
  return most;
}

/// Whether every host has memory for `copies` whole models. Asked of all ranks; those with local
/// rank 0 have a model to measure.
bool hosts_have_room_for(std::int64_t copies, const Session& session) {
  std::uint64_t bytes = 0;
  if (session.model)
    for (const auto& local : session.model->state()) bytes += local.global_bytes();
  const bool fits = bytes * static_cast<std::uint64_t>(copies) <= available_memory() / 2;
  const auto answers = session.world->all().all_gather_text(fits ? "yes" : "no");
  return std::find(answers.begin(), answers.end(), "no") == answers.end();
}

/// A rank of a sharded run begins with a whole model, of which it keeps its rows. The first rank of
/// each host goes ahead; the others follow together, or in turn where the host has no room for all.
void build_model(Session& session, const dataset::DatasetStats& statistics) {
  const distributed::World& world = *session.world;
  if (!world.mesh().is_sharded()) return build_policy(session, statistics);
  const std::int64_t ranks = most_ranks_of_a_host(world);
  if (world.local_rank() == 0) build_policy(session, statistics);
  const bool together = hosts_have_room_for(ranks - 1, session);
  if (!together) log::info("The ranks of a host build the model in turn: memory is short");
  for (std::int64_t turn = 1; turn < ranks; ++turn) {
    if (world.local_rank() == turn) build_policy(session, statistics);
    if (!together) world.all().barrier();
  }
  ::malloc_trim(0);  // what the whole models took
}

/// All ranks begin with the weights of one commit, and the configuration says which.
void pin_pretrained_policy(config::TrainConfig& config, const distributed::World& world) {
  config::PolicyConfig& policy = *config.policy;
  if (!policy.pretrained_path || !config::may_be_on_hub(*policy.pretrained_path)) return;
  const std::string commit = world.from_main([&] {
    return fetch_policy(*policy.pretrained_path, policy.pretrained_revision).commit.value_or("");
  });
  if (!commit.empty()) policy.pretrained_revision = commit;
}

/// The adapter that the run goes on with; of its base, all ranks take one commit.
policy::AdapterConfig open_adapter(const config::PolicyConfig& policy,
                                   const distributed::World& world) {
  const fs::path folder = fetch_policy(*policy.pretrained_path, policy.pretrained_revision).folder;
  policy::AdapterConfig adapter = policy::read_adapter_config(folder);
  if (!config::may_be_on_hub(adapter.base)) return adapter;
  const std::string commit =
      world.from_main([&] { return fetch_base(adapter, folder).commit.value_or(""); });
  if (!commit.empty()) adapter.base_revision = commit;
  return adapter;
}

void report_adapter(const Session& session) {
  const config::TrainConfig& cfg = session.config;
  if (!session.adapter) return;
  if (session.adapter->is_new) {
    log::info("Wrapped {} with PEFT (LoraConfig)", cfg.policy->type());
    return;
  }
  log::info("Policy's PEFT adapter loaded, on {}", session.adapter->base);
  for (const std::string& name : session.given)
    if (name.starts_with("peft."))
      log::warning("--{} has no effect: the adapter is there already", name);
}

void seed_torch(std::uint64_t seed) {
  at::manual_seed(seed);  // the CPU generator and every CUDA device
}

}  // namespace

at::Device choose_device(config::TrainConfig& config) {
  const at::Device device = resolve_device(config.policy->device);
  if (config.accelerator.mixed_precision == "fp16" && device.is_cpu())
    fail_usage(
        "--accelerator.mixed_precision=fp16: needs an accelerator; with --policy.device=cpu use "
        "bf16 or no");
  return device;
}

void complete_policy_config(config::TrainConfig& config, const dataset::DatasetMetadata& metadata) {
  config::PolicyConfig& policy = *config.policy;
  const config::FeatureMap available = renamed(metadata.policy_features(), config.rename_map);
  config::FeatureMap inputs, outputs;
  for (const auto& entry : available)
    (entry.second.type == config::FeatureType::kAction ? outputs : inputs).push_back(entry);
  policy.output_features = outputs;
  if (policy.input_features.empty())
    policy.input_features = inputs;
  else
    check_inputs_exist(policy, available);
}

Session make_session(config::TrainConfig config, std::set<std::string> given,
                     const distributed::World& world, at::Device device) {
  Session session;
  session.world = &world;
  session.device = device;
  session.config = std::move(config);
  session.given = std::move(given);
  config::TrainConfig& cfg = session.config;
  session.output_dir = *cfg.output_dir;

  session.rng = checkpoint::seeded_rng_state(cfg.seed);
  if (cfg.seed) seed_torch(static_cast<std::uint64_t>(*cfg.seed));

  log::info("Creating dataset");
  // Rank 0 goes ahead: what it puts into a cache the others find there, and the commit that it
  // reads is theirs, too. Its download may take hours.
  const std::string pin = world.from_main([&] { return open_data(session, std::nullopt); });
  if (!world.is_main()) open_data(session, parse_pin(pin));
  const auto& statistics = session.datasets.metadata->stats();

  log::info("Creating policy");
  pin_pretrained_policy(cfg, world);
  if (cfg.policy->use_peft) session.adapter = open_adapter(*cfg.policy, world);
  build_model(session, statistics);
  report_adapter(session);
  double reading_s = 0;
  if (cfg.resume) reading_s += seconds_of([&] { restore_weights(session, *cfg.checkpoint_path); });

  log::info("Creating optimizer and scheduler");
  const double lr = std::visit([](const auto& options) { return options.lr; }, *cfg.optimizer);
  session.optimizer = optim::make_optimizer(
      *cfg.optimizer, optimizer_groups(*session.policy, *session.model, cfg, lr));
  if (cfg.scheduler)
    session.scheduler =
        std::make_unique<optim::Scheduler>(*cfg.scheduler, *session.optimizer, cfg.steps);
  if (cfg.ema.enable && world.is_main())
    session.ema = std::make_unique<optim::ExponentialMovingAverage>(
        cfg.ema, session.policy->module().named_parameters());

  if (cfg.accelerator.mixed_precision == "fp16")
    session.scaler = std::make_unique<optim::LossScaler>(cfg.accelerator.grad_scaler, device);

  if (cfg.resume) {
    reading_s += seconds_of([&] { restore_training_state(session, *cfg.checkpoint_path); });
    log::info("Resuming from {} after step {} (read in {:.2f} s)", *cfg.checkpoint_path,
              session.start.step, reading_s);
  }
  return session;
}

}  // namespace lerobot::train
