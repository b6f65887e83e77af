#include "lerobot/train/panel.h"

#include <utility>

#include <fmt/format.h>

#include "lerobot/train/metrics.h"

namespace lerobot::train {

ParameterCounts count_parameters(const Session& session) {
  ParameterCounts counts;
  for (const auto& [name, parameter] : session.policy->module().named_parameters()) {
    counts.total += parameter.numel();
    if (parameter.requires_grad()) counts.learnable += parameter.numel();
  }
  return counts;
}

std::vector<std::string> panel_lines(const Session& session) {
  const config::TrainConfig& config = session.config;
  std::vector<std::string> lines;
  const auto add = [&lines]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    lines.push_back(fmt::format(format, std::forward<Args>(args)...));
  };
  const auto big = [](std::int64_t number) {
    return format_big_number(static_cast<double>(number));
  };
  const ParameterCounts parameters = count_parameters(session);
  const std::int64_t accumulation = config.accelerator.gradient_accumulation.steps;
  const std::int64_t world = session.world->size();
  const std::int64_t effective = config.batch_size * world * accumulation;
  add("Output dir: {}", session.output_dir.string());
  add("cfg.steps={} ({})", config.steps, big(config.steps));
  add("dataset.num_frames={} ({})", session.datasets.frames(), big(session.datasets.frames()));
  add("dataset.num_episodes={}", session.datasets.episodes());
  add("Effective batch size: {} x {} dp workers x {} grad accum = {} (topology: dp_replicate={}, "
      "dp_shard={})",
      config.batch_size, world, accumulation, effective, config.parallelism.dp_replicate,
      config.parallelism.dp_shard);
  if (session.datasets.stream) {
    auto stream = stream_panel(config, *session.datasets.stream,
                               {.world = world, .rank = session.world->rank()});
    lines.insert(lines.end(), std::make_move_iterator(stream.begin()),
                 std::make_move_iterator(stream.end()));
  }
  add("num_learnable_params={} ({})", parameters.learnable, big(parameters.learnable));
  add("num_total_params={} ({})", parameters.total, big(parameters.total));
  add("Start offline training on a fixed dataset, with effective batch size: {}", effective);
  return lines;
}

}  // namespace lerobot::train
