#include "lerobot/dataset/windows.h"

#include "lerobot/base/error.h"

namespace lerobot::dataset {
namespace {

const std::vector<std::int64_t>* deltas_of(const std::string& key,
                                           const config::DeltaIndices& deltas) {
  if (key == "next.reward") return &deltas.reward;
  if (key == "action") return &deltas.action;
  if (key.starts_with("observation.image")) return &deltas.image;
  if (key.starts_with("observation.")) return &deltas.observation;
  return nullptr;
}

}  // namespace

std::vector<Window> resolve_windows(const DatasetInfo& info, const config::DeltaIndices& deltas) {
  std::vector<Window> windows;
  for (const Feature& feature : info.features) {
    const auto* of_feature = deltas_of(feature.name, deltas);
    if (!of_feature || of_feature->empty()) continue;
    if (feature.type == ValueType::kString)
      fail("feature \"{}\" is text, of which the policy wants a window of {} frames: not possible",
           feature.name, of_feature->size());
    windows.push_back({feature.name, *of_feature});
  }
  return windows;
}

}  // namespace lerobot::dataset
