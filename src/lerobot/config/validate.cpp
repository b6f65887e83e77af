#include "lerobot/config/validate.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "lerobot/base/error.h"
#include "lerobot/base/utf8.h"
#include "lerobot/config/command_line.h"
#include "lerobot/config/reader.h"
#include "lerobot/config/step_range.h"
#include "lerobot/config/trackio_names.h"
#include "lerobot/hub/location.h"
#include "lerobot/hub/repo.h"
#include "lerobot/hub/url.h"

namespace lerobot::config {
namespace {

class Rules {
 public:
  explicit Rules(std::vector<Problem>& problems) : problems_(problems) {}

  template <class... Args>
  void broken(std::string option, fmt::format_string<Args...> format, Args&&... args) {
    std::string message = "--" + option + fmt::format(format, std::forward<Args>(args)...);
    problems_.push_back({std::move(option), std::move(message)});
  }

 private:
  std::vector<Problem>& problems_;
};

/// Ids of the Hub: a path of this machine in their place is a common slip (Windows' back-slashes).
/// A dataset on this machine may have any other name; the Hub's own rules are checked where it is
/// asked.
void check_repository(Rules& rules, const std::string& option, const std::string& id) {
  if (id.find('\\') != id.npos)
    rules.broken(option, "={}: contains a back-slash; ids are OWNER/NAME", id);
  else if (id.find_first_of(" \t\r\n") != id.npos)
    rules.broken(option, "={}: contains a blank; ids are OWNER/NAME", id);
  else if (id.find("..") != id.npos)
    rules.broken(option, "={}: contains \"..\"; ids are OWNER/NAME", id);
  else if (id.starts_with('/') || id.ends_with('/'))
    rules.broken(option, "={}: begins or ends with a slash; ids are OWNER/NAME", id);
}

/// What is to be published needs a name that the Hub takes: known before hours of training.
void check_publishing(Rules& rules, const TrainConfig& config) {
  const PolicyConfig& policy = *config.policy;
  if (policy.repo_id) check_repository(rules, "policy.repo_id", *policy.repo_id);
  const bool published = policy.push_to_hub || config.save_checkpoint_to_hub;
  if (published && policy.repo_id &&
      (!hub::is_repo_id(hub::RepoType::kModel, *policy.repo_id) ||
       policy.repo_id->find('/') == std::string::npos))
    rules.broken("policy.repo_id", "={}: is no name of a repository; expected OWNER/NAME",
                 *policy.repo_id);
  if (policy.repo_id) return;
  constexpr std::string_view kWhere = "--policy.repo_id=OWNER/NAME, the repository to publish to";
  if (policy.push_to_hub) rules.broken("policy.push_to_hub", "=true: needs {}", kWhere);
  if (config.save_checkpoint_to_hub)
    rules.broken("save_checkpoint_to_hub", "=true: needs {}", kWhere);
}

bool is_device(std::string_view text) {
  if (text == "cpu" || text == "cuda") return true;
  constexpr std::string_view kNumbered = "cuda:";
  constexpr std::size_t kMostDigits = 2;
  if (!text.starts_with(kNumbered)) return false;
  text.remove_prefix(kNumbered.size());
  return !text.empty() && text.size() <= kMostDigits &&
         text.find_first_not_of("0123456789") == text.npos;
}

void check_episodes(Rules& rules, const DatasetConfig& dataset) {
  if (dataset.episodes) {
    const auto& episodes = *dataset.episodes;
    if (episodes.empty())
      rules.broken("dataset.episodes", "=[]: selects nothing; null selects every episode");
    std::set<std::int64_t> seen, twice;
    for (const std::int64_t episode : episodes)
      if (!seen.insert(episode).second) twice.insert(episode);
    if (!twice.empty())
      rules.broken("dataset.episodes", ": episodes given more than once: {}",
                   fmt::join(twice, ", "));
    if (!seen.empty() && *seen.begin() < 0)
      rules.broken("dataset.episodes", ": expected numbers of at least 0, found {}", *seen.begin());
  }
  if (dataset.exclude_episodes)
    for (const std::int64_t episode : *dataset.exclude_episodes)
      if (episode < 0) {
        rules.broken("dataset.exclude_episodes", ": expected numbers of at least 0, found {}",
                     episode);
        break;
      }
}

void check_root(Rules& rules, const DatasetConfig& dataset) {
  if (!dataset.root) return;
  if (dataset.root->empty()) return rules.broken("dataset.root", "=: expected a folder or null");
  // A Bucket has been taken as a name, or been refused.
  if (dataset.root->starts_with("hf://buckets/")) return;
  try {
    switch (hub::classify_location(*dataset.root).kind) {
      case hub::LocationKind::kLocal:
      case hub::LocationKind::kHfBucket:
      case hub::LocationKind::kHfDataset:
        break;
      case hub::LocationKind::kHttp:
        if (!dataset.streaming)
          rules.broken("dataset.root", "={} can only be streamed: add --dataset.streaming=true",
                       hub::printable_url(*dataset.root));
        break;
      case hub::LocationKind::kHfOther:
      case hub::LocationKind::kOther:
        rules.broken("dataset.root",
                     "={}: expected a folder, http(s)://HOST/PATH, "
                     "hf://datasets/OWNER/NAME[@REVISION] or hf://buckets/OWNER/NAME",
                     *dataset.root);
    }
  } catch (const UsageError& error) {
    rules.broken("dataset.root", ": {}", error.what());
  }
}

void check_dataset(Rules& rules, const DatasetConfig& dataset) {
  if (dataset.repo_id.empty())
    rules.broken("dataset.repo_id", " is required: the name of the dataset, OWNER/NAME");
  check_repository(rules, "dataset.repo_id", dataset.repo_id);
  check_episodes(rules, dataset);
  if (dataset.revision && dataset.revision->empty())
    rules.broken("dataset.revision", "=: expected a branch, tag or commit, or null");
  if (dataset.revision && dataset.repo_type == "bucket")
    rules.broken("dataset.revision", "={}: Buckets have no revisions", *dataset.revision);
  check_root(rules, dataset);
  if (dataset.repo_type == "bucket" && !dataset.streaming)
    rules.broken("dataset.repo_type",
                 "=bucket: Buckets can only be streamed; add "
                 "--dataset.streaming=true");
  if (dataset.streaming && dataset.eval_split != 0)
    rules.broken("dataset.eval_split",
                 "={}: needs a dataset that is not streamed; pass --dataset.eval_split=0 or "
                 "--dataset.streaming=false",
                 dataset.eval_split);
  if (dataset.image_transforms.enable && !dataset.image_transforms.tfs.empty()) {
    double total = 0;
    for (const auto& [name, transform] : dataset.image_transforms.tfs) total += transform.weight;
    if (!(total > 0))
      rules.broken("dataset.image_transforms.tfs", ": at least one weight must be above 0");
  }
}

void check_optimizer(Rules& rules, const OptimizerConfig& optimizer) {
  std::visit(
      [&](const auto& options) {
        using T = std::remove_cvref_t<decltype(options)>;
        if constexpr (std::is_same_v<T, SgdConfig>) {
          if (options.nesterov && (options.momentum <= 0 || options.dampening != 0))
            rules.broken("optimizer.nesterov",
                         "=true: needs --optimizer.momentum above 0 and --optimizer.dampening=0");
        } else if (options.betas.size() != 2) {
          rules.broken("optimizer.betas", ": expected two numbers, found {}", options.betas.size());
        }
      },
      optimizer);
}

void check_scheduler(Rules& rules, const SchedulerConfig& scheduler) {
  const auto* diffuser = std::get_if<DiffuserSchedulerConfig>(&scheduler);
  if (diffuser != nullptr && !diffuser->num_warmup_steps && diffuser->name != "constant")
    rules.broken("scheduler.num_warmup_steps", "=null: {} needs a number of steps", diffuser->name);
}

void check_accelerator(Rules& rules, const AcceleratorConfig& accelerator) {
  const FsdpConfig& fsdp = accelerator.fsdp;
  if (fsdp.wrap_modules && fsdp.min_num_params)
    rules.broken("accelerator.fsdp.wrap_modules",
                 " and --accelerator.fsdp.min_num_params exclude each other");
  const auto& precision = fsdp.mixed_precision_policy;
  const bool any =
      precision.reduce_dtype || precision.output_dtype || precision.cast_forward_inputs;
  if (any && !precision.param_dtype)
    rules.broken("accelerator.fsdp.mixed_precision_policy.param_dtype",
                 " is required as soon as one field of the policy is set");
}

/// What only a run whose model is divided, or only one whose model is not, can do. -1 may still
/// become either: what it becomes is checked again.
void check_layout(Rules& rules, const TrainConfig& config) {
  const std::int64_t dp_shard = config.parallelism.dp_shard;
  if (dp_shard == 0)
    rules.broken("parallelism.dp_shard", "=0: expected -1 or an integer at least 1");
  // What a resumed run has from its checkpoint follows the layout that it gets.
  if (dp_shard == 1 && !config.resume && config.checkpoint_format != "safetensors")
    rules.broken("checkpoint_format", "={}{}", config.checkpoint_format, kFormatNeedsShards);
  if (dp_shard > 1 && config.ema.enable)
    rules.broken("ema.enable",
                 "=true: no process of a sharded run has the whole model to average "
                 "(--parallelism.dp_shard={}); pass --ema.enable=false or --parallelism.dp_shard=1",
                 dp_shard);
}

void check_precision(Rules& rules, const TrainConfig& config) {
  if (config.accelerator.mixed_precision == "fp16" && config.policy &&
      config.policy->device == "cpu")
    rules.broken("accelerator.mixed_precision",
                 "=fp16: needs an accelerator; with --policy.device=cpu use bf16 or no");
}

void check_profile(Rules& rules, const TrainConfig& config) {
  if (!config.profile.steps) return;
  const std::string& text = *config.profile.steps;
  const auto range = parse_step_range(text);
  if (!range)
    rules.broken("profile.steps",
                 "={}: expected A:B, the first and the last step, counted from 1 (10:12)", text);
  else if (range->last > config.steps)
    rules.broken("profile.steps", "={}: the run ends with step {} (--steps={})", text, config.steps,
                 config.steps);
  if (config.data_only)
    rules.broken("profile.steps", "={}: --data_only=true has no training steps", text);
}

void check_ema(Rules& rules, const EmaConfig& ema) {
  if (ema.min_decay > ema.max_decay)
    rules.broken("ema.min_decay", "={}: is above --ema.max_decay={}", ema.min_decay, ema.max_decay);
}

/// One name that is not UTF-8 makes trackio's lists of the whole project fail.
void check_trackio(Rules& rules, const TrackioConfig& trackio) {
  if (const std::string problem = trackio_project_problem(trackio.project); !problem.empty())
    rules.broken("trackio.project", "={}: {}", to_utf8(trackio.project), problem);
  if (!trackio.name) return;
  if (trackio.name->find_first_not_of(" \t\r\n") == std::string::npos)
    rules.broken("trackio.name", "={}: expected a name, or null for the output folder's",
                 *trackio.name);
  else if (!is_utf8(*trackio.name))
    rules.broken("trackio.name", "={}: is not UTF-8", to_utf8(*trackio.name));
}

bool is_list_of_names(const Json& json) {
  return json.is_array() && std::all_of(json.begin(), json.end(), [](const Json& name) {
           return name.is_string() && !name.get_ref<const std::string&>().empty();
         });
}

void check_adapter(Rules& rules, const TrainConfig& config) {
  const PolicyConfig& policy = *config.policy;
  if (policy.use_peft && !policy.pretrained_path)
    rules.broken("policy.use_peft",
                 "=true: needs --policy.path=ADAPTER, the folder or repository of the adapter; "
                 "--peft.* puts a new one on the policy of --policy.path");
  const bool adapts = config.peft || policy.use_peft;
  if (adapts && config.ema.enable)
    rules.broken("ema.enable", "=true: is not supported with adapters; pass --ema.enable=false");
  if (!config.peft) return;
  if (config.resume && !policy.use_peft) {
    rules.broken("resume",
                 "=true: this run trains its whole policy; put adapters on it in a new run, with "
                 "--policy.path=CHECKPOINT --peft.*");
    return;
  }
  const PeftConfig& peft = *config.peft;
  if (peft.method_type != "LORA" && peft.method_type != "lora")
    rules.broken("peft.method_type", "={}: is not supported; there is LORA", peft.method_type);
  if (!policy.pretrained_path)
    rules.broken("policy.path",
                 " is required with --peft.*: adapters fine-tune a policy; training from scratch "
                 "with them is unlikely to give good results");
  if (peft.target_modules && !peft.target_modules->is_string() &&
      !is_list_of_names(*peft.target_modules))
    rules.broken("peft.target_modules",
                 "={}: expected a list of endings of names such as '[\"linear1\",\"linear2\"]', a "
                 "regular expression for whole names, or all-linear",
                 short_json(*peft.target_modules));
  else if (const Json targets = adapter_targets(peft, policy).modules; targets.empty())
    rules.broken(
        "peft.target_modules",
        ": Policy '{}' does not define default target_modules. Please pass "
        "--peft.target_modules explicitly, such as '[\"linear1\",\"linear2\"]' or all-linear",
        policy.type());
}

void check_policy(Rules& rules, std::vector<Problem>& problems, const TrainConfig& config) {
  if (!config.policy) {
    rules.broken("policy.type", " or --policy.path is required");
    return;
  }
  const PolicyConfig& policy = *config.policy;
  if (!config.rename_map.empty() && !policy.pretrained_path)
    rules.broken("rename_map",
                 ": needs a pretrained policy (--policy.path): a new one takes its names from the "
                 "dataset");
  check_publishing(rules, config);
  check_adapter(rules, config);
  if (policy.device && !is_device(*policy.device))
    rules.broken("policy.device", "={}: expected cpu, cuda, cuda:N or null", *policy.device);
  for (const std::string& message : policy.validate())
    problems.push_back({"policy", message.starts_with("--") ? message : "--" + message});
}

}  // namespace

AdapterTargets adapter_targets(const PeftConfig& options, const PolicyConfig& policy) {
  AdapterTargets targets = policy.default_adapter_targets().value_or(AdapterTargets{});
  if (options.target_modules) targets.modules = *options.target_modules;
  if (options.full_training_modules) targets.full_training_modules = *options.full_training_modules;
  return targets;
}

std::vector<Problem> broken_rules(const TrainConfig& config) {
  std::vector<Problem> problems;
  Codec<TrainConfig>::check(problems, "", config, {});
  Rules rules(problems);
  check_dataset(rules, config.dataset);
  check_policy(rules, problems, config);
  if (config.eval_steps > 0 && config.dataset.eval_split == 0.0)
    rules.broken("eval_steps", "={}: needs --dataset.eval_split above 0, which holds out episodes",
                 config.eval_steps);
  if (!config.use_policy_training_preset && !config.optimizer)
    rules.broken("optimizer.type", " is required with --use_policy_training_preset=false");
  if (!config.use_policy_training_preset && !config.scheduler)
    rules.broken("scheduler.type", " is required with --use_policy_training_preset=false");
  if (config.optimizer) check_optimizer(rules, *config.optimizer);
  if (config.scheduler) check_scheduler(rules, *config.scheduler);
  check_accelerator(rules, config.accelerator);
  check_ema(rules, config.ema);
  check_profile(rules, config);
  check_trackio(rules, config.trackio);
  check_layout(rules, config);
  check_precision(rules, config);
  if (config.eval.recording_repo_id && !config.eval.recording)
    rules.broken("eval.recording_repo_id", ": needs --eval.recording=true");
  for (const auto& [option, value] :
       {std::pair{"output_dir", &config.output_dir}, std::pair{"job_name", &config.job_name}})
    if (*value && (*value)->empty()) rules.broken(option, "=: expected text or null");
  if (config.job_name && config.job_name->find('/') != std::string::npos && !config.output_dir)
    rules.broken("job_name", "={}: contains a slash; it becomes part of a folder's name",
                 *config.job_name);
  return problems;
}

std::vector<std::string> validate(const TrainConfig& config) {
  std::vector<std::string> messages;
  for (Problem& problem : broken_rules(config)) messages.push_back(std::move(problem.message));
  return messages;
}

}  // namespace lerobot::config
