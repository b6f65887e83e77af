#include "lerobot/train/report/usage.h"

#include <algorithm>

#include <fmt/format.h>

#include "lerobot/base/error.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/config/run_folder.h"

namespace lerobot::train {
namespace {

namespace fs = std::filesystem;

/// A word of a shell's command line.
std::string shell_word(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// Python and JSON agree on texts in double quotes.
std::string python_text(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// The newest one that is complete, `last` first.
const Checkpoint* chosen_checkpoint(const RunData& data) {
  const Checkpoint* chosen = nullptr;
  for (const Checkpoint& checkpoint : data.checkpoints)
    if (checkpoint.missing.empty() && (chosen == nullptr || !chosen->is_last)) chosen = &checkpoint;
  return chosen;
}

/// Of an adapter: the policy below it.
std::string base_of_adapter(const fs::path& pretrained) {
  try {
    return text_at(read_json_file(pretrained / "adapter_config.json"), "/base_model_name_or_path");
  } catch (const Error&) {
    return "";
  }
}

Usage python_usage(const std::string& type, const fs::path& pretrained) {
  const bool is_adapter = fs::exists(pretrained / checkpoint::kAdapterModelFile);
  std::string code;
  if (is_adapter) code += "from peft import PeftModel\n";
  code += fmt::format(
      "from lerobot.policies.factory import get_policy_class, make_pre_post_processors\n\n"
      "path = {}\n",
      python_text(pretrained.string()));
  if (is_adapter) {
    const std::string base = base_of_adapter(pretrained);
    code += fmt::format(
        "policy = get_policy_class({0}).from_pretrained({1})\n"
        "policy = PeftModel.from_pretrained(policy, path)\n"
        "preprocess, postprocess = make_pre_post_processors(\n"
        "    policy.get_base_model().config, pretrained_path=path)\n",
        python_text(type), python_text(base.empty() ? "the policy below the adapter" : base));
  } else {
    code += fmt::format(
        "policy = get_policy_class({0}).from_pretrained(path)\n"
        "preprocess, postprocess = make_pre_post_processors(policy.config, pretrained_path=path)\n",
        python_text(type));
  }
  return {
      "In Python",
      is_adapter ? "The checkpoint is an adapter: it goes onto the policy it was trained on." : "",
      code};
}

}  // namespace

std::vector<Usage> usages(const RunData& data) {
  const Checkpoint* checkpoint = chosen_checkpoint(data);
  if (checkpoint == nullptr) return {};
  const fs::path pretrained = checkpoint->folder / config::kPretrainedModelFolder;
  const std::string path = shell_word(pretrained.string());
  std::string type = text_at(data.configuration, "/policy/type");
  if (type.empty()) type = "act";

  std::vector<Usage> list;
  const bool has_weights = fs::exists(pretrained / checkpoint::kModelFile) ||
                           fs::exists(pretrained / checkpoint::kAdapterModelFile);
  if (!has_weights)
    list.push_back({"First: merge the shards",
                    "The weights of this checkpoint lie in shards; LeRobot loads whole ones.",
                    fmt::format("lerobot-convert-dcp --checkpoint_dir={}",
                                shell_word(checkpoint->folder.string()))});
  list.push_back(python_usage(type, pretrained));
  list.push_back({"On a robot", "With your robot's type, port and cameras.",
                  fmt::format("lerobot-rollout --strategy.type=base --policy.path={} \\\n"
                              "    --robot.type=so101_follower --robot.port=/dev/ttyACM0 "
                              "--task=\"what to do\"",
                              path)});
  list.push_back({"In a simulator", "With your environment's type.",
                  fmt::format("lerobot-eval --policy.path={} --env.type=pusht "
                              "--eval.n_episodes=10 --eval.batch_size=10",
                              path)});
  list.push_back({"Go on training", "With more --steps, when all are done.",
                  fmt::format("lerobot-train --resume=true --config_path={}",
                              shell_word((pretrained / config::kTrainConfigFile).string()))});
  if (fs::exists(checkpoint->folder / checkpoint::kPretrainedModelEmaFolder))
    list.push_back({"The averaged weights", "A policy of its own: load it as the one above.",
                    (checkpoint->folder / checkpoint::kPretrainedModelEmaFolder).string()});
  return list;
}

}  // namespace lerobot::train
