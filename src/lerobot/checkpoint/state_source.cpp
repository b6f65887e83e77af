#include "lerobot/checkpoint/state_source.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include "lerobot/base/error.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/checkpoint/training_state.h"
#include "lerobot/optim/optimizer.h"
#include "lerobot/serialization/safetensors.h"

namespace lerobot::checkpoint {
namespace {

using serialization::SafetensorsFile;
using serialization::TorchValue;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// Names as the reader of a checkpoint uses them, and the stored tensors' own names.
class NameTable {
 public:
  /// `where` is the file or folder.
  explicit NameTable(const fs::path& where) : where_(where.string()) {}

  void add(std::string name, const std::string& stored) {
    const auto [known, added] = stored_.emplace(name, stored);
    if (!added) fail("{}: {} and {} are both {}", where_, known->second, stored, name);
    names_.push_back(std::move(name));
  }
  const std::string& where() const { return where_; }
  const std::vector<std::string>& names() const { return names_; }
  /// Null when there is none.
  const std::string* find(std::string_view name) const {
    const auto found = stored_.find(std::string(name));
    return found == stored_.end() ? nullptr : &found->second;
  }

 private:
  std::string where_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::string> stored_;
};

class NamedSource : public StateSource {
 public:
  const std::string& where() const override { return table_.where(); }
  const std::vector<std::string>& names() const override { return table_.names(); }
  bool contains(std::string_view name) const override { return table_.find(name) != nullptr; }

 protected:
  explicit NamedSource(NameTable table) : table_(std::move(table)) {}

  const std::string& stored(std::string_view name) const {
    const std::string* found = table_.find(name);
    if (!found) fail("{}: holds no tensor {}", where(), name);
    return *found;
  }
  void check_rows(std::string_view name, std::int64_t first_row, const at::Tensor& target) const {
    const std::vector<std::int64_t> size = shape(name);
    const bool fits =
        size.size() == static_cast<std::size_t>(target.dim()) &&
        (size.empty() ? first_row == 0
                      : first_row >= 0 && target.size(0) <= size[0] - first_row &&
                            std::equal(size.begin() + 1, size.end(), target.sizes().begin() + 1));
    if (!fits)
      fail("{}: a part of size {} from row {} on does not lie within {} of size {}", where(),
           target.sizes().vec(), first_row, name, size);
  }

 private:
  NameTable table_;
};

class FileSource final : public NamedSource {
 public:
  FileSource(SafetensorsFile file, NameTable table)
      : NamedSource(std::move(table)), file_(std::move(file)) {}

  std::vector<std::int64_t> shape(std::string_view name) const override {
    return file_.shape(stored(name));
  }
  at::ScalarType dtype(std::string_view name) const override { return file_.dtype(stored(name)); }
  void read(std::string_view name, std::int64_t first_row,
            const at::Tensor& target) const override {
    check_rows(name, first_row, target);
    if (target.numel() == 0) return;
    const at::Tensor whole = file_.view(stored(name));
    target.copy_(whole.dim() == 0 ? whole : whole.narrow(0, first_row, target.size(0)));
  }

 private:
  SafetensorsFile file_;
};

class ShardedSource final : public NamedSource {
 public:
  ShardedSource(std::shared_ptr<const DcpReader> reader, NameTable table)
      : NamedSource(std::move(table)), reader_(std::move(reader)) {}

  std::vector<std::int64_t> shape(std::string_view name) const override {
    return described(name).size;
  }
  at::ScalarType dtype(std::string_view name) const override { return described(name).dtype; }
  void read(std::string_view name, std::int64_t first_row,
            const at::Tensor& target) const override {
    check_rows(name, first_row, target);
    if (target.numel() == 0) return;
    DcpBlock block{std::vector<std::int64_t>(target.sizes().size(), 0), target.sizes().vec()};
    if (!block.offsets.empty()) block.offsets[0] = first_row;
    reader_->read(stored(name), block, target);
  }

 private:
  const DcpTensor& described(std::string_view name) const {
    return std::get<DcpTensor>(reader_->metadata().find(stored(name))->content);
  }

  std::shared_ptr<const DcpReader> reader_;
};

/// The name of a tensor in the dictionary `model` that LeRobot saves; nothing for another entry.
std::optional<std::string> weight_name(const DcpEntry& entry) {
  constexpr std::string_view kPrefix = "model.";
  if (!entry.path)
    return entry.name.starts_with(kPrefix) ? std::optional(entry.name.substr(kPrefix.size()))
                                           : std::nullopt;
  const DcpPath& path = *entry.path;
  const auto* outer = std::get_if<std::string>(&path.front());
  const auto* name = std::get_if<std::string>(&path.back());
  if (path.size() != 2 || !outer || *outer != "model" || !name) return std::nullopt;
  return *name;
}

// --- optimizers: one file, numbered parameters --------------------------------------------------

/// "<parameter>.<key>" for "state/<n>/<key>", or nothing for another form.
std::optional<std::string> name_of_numbered(std::string_view stored,
                                            std::span<const std::string> parameters) {
  constexpr std::string_view kPrefix = "state/";
  if (!stored.starts_with(kPrefix)) return std::nullopt;
  const std::string_view rest = stored.substr(kPrefix.size());
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  const auto digits = static_cast<std::size_t>(end - rest.data());
  if (error != std::errc() || digits + 1 >= rest.size() || rest[digits] != '/' ||
      number >= parameters.size())
    return std::nullopt;
  return fmt::format("{}.{}", parameters[number], rest.substr(digits + 1));
}

OptimizerSource open_optimizer_files(const fs::path& state_file, const fs::path& groups_file,
                                     std::span<const std::string> parameters) {
  SafetensorsFile file(state_file);
  NameTable table(state_file);
  for (const std::string& stored : file.names()) {
    auto name = name_of_numbered(stored, parameters);
    if (!name)
      fail(
          "{}: unknown key \"{}\" (expected \"state/<number>/<name>\", numbers below {}): was it "
          "written by another policy?",
          state_file.string(), stored, parameters.size());
    table.add(*std::move(name), stored);
  }
  return {std::make_unique<FileSource>(std::move(file), std::move(table)),
          read_json_file(groups_file), groups_file.string()};
}

// --- optimizers: shards, named parameters -------------------------------------------------------

constexpr std::string_view kStatePrefix = "optimizer.state.";
constexpr std::string_view kGroupsPrefix = "optimizer.param_groups.";

/// Where an entry stands in optimizer.param_groups: group and key; nothing for other entries.
std::optional<std::pair<std::size_t, std::string>> group_setting(const std::string& name) {
  if (!name.starts_with(kGroupsPrefix)) return std::nullopt;
  const std::string_view rest = std::string_view(name).substr(kGroupsPrefix.size());
  std::size_t group = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), group);
  const auto digits = static_cast<std::size_t>(end - rest.data());
  if (error != std::errc() || digits + 1 >= rest.size() || rest[digits] != '.') return std::nullopt;
  return std::pair(group, std::string(rest.substr(digits + 1)));
}

Json setting_json(const TorchValue& value, const std::string& what) {
  const auto all = [&](const std::vector<TorchValue>& items) {
    Json list = Json::array();
    for (const TorchValue& item : items) list.push_back(setting_json(item, what));
    return list;
  };
  struct Visitor {
    const decltype(all)& list;
    const std::string& what;
    Json operator()(std::monostate) const { return nullptr; }
    Json operator()(bool plain) const { return plain; }
    Json operator()(std::int64_t plain) const { return plain; }
    Json operator()(double plain) const { return plain; }
    Json operator()(const std::string& plain) const { return plain; }
    Json operator()(const serialization::TorchList& items) const { return list(items.items); }
    Json operator()(const serialization::TorchTuple& items) const { return list(items.items); }
    Json operator()(const at::Tensor& tensor) const {
      if (tensor.dim() != 0 || !tensor.is_floating_point())
        fail("{}: is a tensor, expected a number", what);
      return tensor.item<double>();
    }
    Json operator()(const serialization::TorchDict&) const {
      fail("{}: is a dictionary, expected a number, text or a list", what);
    }
  };
  return std::visit(Visitor{all, what}, value.content);
}

/// The numbers of a group's parameters in place of their names.
Json numbered(const Json& names, const std::vector<std::string>& expected, std::size_t first,
              const std::string& where) {
  std::vector<std::string> saved;
  for (const Json& name : names.is_array() ? names : Json::array({nullptr})) {
    if (!name.is_string()) fail("{}: \"params\" is no list of names", where);
    saved.push_back(name.get<std::string>());
  }
  const auto require_all = [&](std::vector<std::string> wanted, std::vector<std::string> there,
                               const char* problem) {
    std::ranges::sort(there);
    for (const std::string& name : wanted)
      if (!std::ranges::binary_search(there, name))
        fail("{} {} {}: was it written by another policy?", where, problem, name);
  };
  require_all(expected, saved, "lacks the parameter");
  require_all(saved, expected, "holds a parameter that this run's group has not:");
  if (saved.size() != expected.size())
    fail("{} must have {} parameters, found {}", where, expected.size(), saved.size());
  Json numbers = Json::array();
  for (std::size_t i = 0; i < expected.size(); ++i) numbers.push_back(first + i);
  return numbers;
}

Json read_groups(const DcpReader& reader, std::span<const std::vector<std::string>> parameters) {
  const std::string folder = reader.folder().string();
  std::vector<Json> groups;
  for (const DcpEntry& entry : reader.metadata().entries()) {
    const auto setting = group_setting(entry.name);
    if (!setting) continue;
    const auto& [group, key] = *setting;
    // One more than this run has is enough to say that their number differs.
    if (group > parameters.size())
      fail("{}: must have {} parameter groups, found {}", folder, parameters.size(), entry.name);
    if (group >= groups.size()) groups.resize(group + 1, Json::object());
    groups[group][key] =
        std::holds_alternative<DcpTensor>(entry.content)
            ? setting_json(reader.tensor(entry.name), fmt::format("{}: {}", folder, entry.name))
            : setting_json(reader.value(entry.name), fmt::format("{}: {}", folder, entry.name));
  }
  if (groups.size() != parameters.size())
    fail("{}: must have {} parameter groups, found {}", folder, parameters.size(), groups.size());
  std::size_t first = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string where = fmt::format("{}: group {}", folder, i);
    if (!groups[i].contains("params")) fail("{} has no \"params\"", where);
    groups[i]["params"] = numbered(groups[i]["params"], parameters[i], first, where);
    first += parameters[i].size();
  }
  return groups;
}

OptimizerSource open_optimizer_shards(const fs::path& folder,
                                      std::span<const std::vector<std::string>> parameters) {
  auto reader = std::make_shared<const DcpReader>(folder);
  NameTable table(folder);
  for (const DcpEntry& entry : reader->metadata().entries()) {
    if (group_setting(entry.name)) continue;
    if (!entry.name.starts_with(kStatePrefix) || !std::holds_alternative<DcpTensor>(entry.content))
      fail("{}: {} is neither state of a parameter nor a setting of a group", folder.string(),
           entry.name);
    table.add(entry.name.substr(kStatePrefix.size()), entry.name);
  }
  Json groups = read_groups(*reader, parameters);
  return {std::make_unique<ShardedSource>(reader, std::move(table)), std::move(groups),
          folder.string()};
}

}  // namespace

at::Tensor StateSource::rows(std::string_view name, std::int64_t first_row,
                             std::int64_t count) const {
  std::vector<std::int64_t> size = shape(name);
  if (size.empty()) return tensor(name);
  if (count < 0) fail("{}: {} rows of {} are wanted", where(), count, name);
  size[0] = count;
  const at::Tensor result = at::empty(size, at::TensorOptions(dtype(name)));
  read(name, first_row, result);
  return result;
}

at::Tensor StateSource::tensor(std::string_view name) const {
  const at::Tensor result = at::empty(shape(name), at::TensorOptions(dtype(name)));
  read(name, 0, result);
  return result;
}

std::unique_ptr<StateSource> open_tensor_file(const fs::path& file) {
  SafetensorsFile opened(file);
  NameTable table(file);
  for (const std::string& name : opened.names()) table.add(name, name);
  return std::make_unique<FileSource>(std::move(opened), std::move(table));
}

std::unique_ptr<StateSource> open_sharded_model(const fs::path& folder) {
  auto reader = std::make_shared<const DcpReader>(folder);
  NameTable table(folder);
  for (const DcpEntry& entry : reader->metadata().entries())
    if (std::holds_alternative<DcpTensor>(entry.content))
      table.add(weight_name(entry).value_or(entry.name), entry.name);
  return std::make_unique<ShardedSource>(reader, std::move(table));
}

std::unique_ptr<StateSource> open_model(const fs::path& pretrained_model, const char* file) {
  if (is_there(pretrained_model / file)) return open_tensor_file(pretrained_model / file);
  if (is_there(pretrained_model / kShardedModelFolder))
    return open_sharded_model(pretrained_model / kShardedModelFolder);
  fail("{}: holds neither {} nor {}", pretrained_model.string(), file, kShardedModelFolder);
}

OptimizerSource open_optimizer(const fs::path& training_state,
                               std::span<const std::vector<std::string>> parameters) {
  if (is_there(training_state / kShardedOptimizerFolder))
    return open_optimizer_shards(training_state / kShardedOptimizerFolder, parameters);
  require_sharded_optimizer(training_state);
  const fs::path state = training_state / kOptimizerStateFile;
  const fs::path groups = training_state / kOptimizerParamGroupsFile;
  for (const fs::path& file : {state, groups})
    if (!is_there(file))
      fail("{}: holds neither {} nor {}", training_state.string(), kShardedOptimizerFolder,
           file.filename().string());
  std::vector<std::string> in_order;
  for (const auto& group : parameters) in_order.insert(in_order.end(), group.begin(), group.end());
  return open_optimizer_files(state, groups, in_order);
}

void require_sharded_optimizer(const fs::path& training_state) {
  const fs::path step_file = training_state / kTrainingStepFile;
  if (is_there(training_state / kShardedOptimizerFolder) ||
      !is_there(training_state / kOptimizerStateFile) || !is_there(step_file))
    return;
  const TrainingStep step = read_training_step(step_file);
  if (step.dp_shard.value_or(1) == 1) return;
  fail(
      "{}: a run with dp_shard={} saved its optimizer state as one {}, as LeRobot 0.6 and earlier "
      "did; such a checkpoint can't be resumed. Start a new run from its weights with "
      "--policy.path={}",
      training_state.string(), *step.dp_shard, kOptimizerStateFile,
      (training_state.parent_path() / "pretrained_model").string());
}

}  // namespace lerobot::checkpoint
