#include "lerobot/serialization/pickle_tree.h"

#include <algorithm>
#include <unordered_map>

#include "lerobot/base/error.h"

namespace lerobot::serialization {
namespace {

template <class Visit>
void for_each_child(const PickleValue& value, const Visit& visit) {
  const auto visit_all = [&](const std::vector<const PickleValue*>& items) {
    for (const PickleValue* item : items) visit(item);
  };
  if (const auto* tuple = value.get<PickleTuple>()) visit_all(tuple->items);
  if (const auto* list = value.get<PickleList>()) visit_all(list->items);
  if (const auto* dict = value.get<PickleDict>()) {
    for (const auto& [key, item] : dict->items) {
      visit(key);
      visit(item);
    }
    if (dict->state) visit(dict->state);
  }
  if (const auto* object = value.get<PickleObject>()) {
    visit_all(object->arguments);
    if (object->state) visit(object->state);
  }
  if (const auto* id = value.get<PicklePersistentId>()) visit(id->id);
}

}  // namespace

void check_pickle_tree(const PickleValue& root, std::string_view name, const PickleLimits& limits) {
  struct Extent {
    std::size_t depth = 0;   // 0 while the value is being walked
    std::size_t values = 0;  // capped
  };
  std::unordered_map<const PickleValue*, Extent> extents;
  struct Step {
    const PickleValue* value;
    bool leave;
  };
  std::vector<Step> steps{{&root, false}};
  while (!steps.empty()) {
    const auto [value, leave] = steps.back();
    steps.pop_back();
    if (leave) {
      Extent extent{1, 1};
      for_each_child(*value, [&](const PickleValue* child) {
        const Extent& below = extents.at(child);
        if (below.depth == 0) fail("{}: damaged pickle: a value contains itself", name);
        extent.depth = std::max(extent.depth, below.depth + 1);
        extent.values = std::min(extent.values + below.values, limits.max_values + 1);
      });
      if (extent.depth > limits.max_depth)
        fail("{}: pickle of more than {} levels", name, limits.max_depth);
      if (extent.values > limits.max_values)
        fail("{}: pickle of more than {} values", name, limits.max_values);
      extents[value] = extent;
    } else if (extents.emplace(value, Extent{}).second) {
      steps.push_back({value, true});
      for_each_child(*value, [&](const PickleValue* child) {
        if (!extents.contains(child)) steps.push_back({child, false});
      });
    }
  }
}

const PickleValue* PickleDict::find(std::string_view key) const {
  for (auto item = items.rbegin(); item != items.rend(); ++item)
    if (const auto* text = item->first->get<std::string>(); text && *text == key)
      return item->second;
  return nullptr;
}

std::string PickleValue::describe() const {
  struct Describe {
    std::string operator()(const PickleNone&) const { return "None"; }
    std::string operator()(bool) const { return "a bool"; }
    std::string operator()(std::int64_t) const { return "an int"; }
    std::string operator()(double) const { return "a float"; }
    std::string operator()(const std::string&) const { return "a str"; }
    std::string operator()(const PickleBytes&) const { return "bytes"; }
    std::string operator()(const PickleBigInteger&) const { return "an int of more than 64 bits"; }
    std::string operator()(const PickleTuple&) const { return "a tuple"; }
    std::string operator()(const PickleList&) const { return "a list"; }
    std::string operator()(const PickleDict&) const { return "a dict"; }
    std::string operator()(const PickleGlobal& global) const { return global.qualified(); }
    std::string operator()(const PickleObject& object) const {
      return "a call of " + object.callable->qualified();
    }
    std::string operator()(const PicklePersistentId&) const { return "a persistent id"; }
  };
  return std::visit(Describe{}, content_);
}

}  // namespace lerobot::serialization
