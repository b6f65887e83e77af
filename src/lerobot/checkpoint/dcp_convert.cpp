#include "lerobot/checkpoint/dcp_convert.h"

#include <optional>
#include <span>
#include <unistd.h>
#include <utility>
#include <variant>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/base/file_lock.h"
#include "lerobot/base/files.h"
#include "lerobot/base/json.h"
#include "lerobot/checkpoint/dcp_reader.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/config/run_folder.h"
#include "lerobot/serialization/safetensors.h"

namespace lerobot::checkpoint {
namespace {

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

using NamedWeights = std::vector<std::pair<std::string, const DcpEntry*>>;

const DcpTensor& tensor_of(const DcpEntry& entry) { return std::get<DcpTensor>(entry.content); }

/// The dictionary around all entries; nothing when there is none.
std::optional<std::string> outer_key(const DcpMetadata& metadata) {
  std::optional<std::string> outer;
  for (const DcpEntry& entry : metadata.entries()) {
    // A writer that recorded no paths was LeRobot's or one like it: {"model": weights}.
    std::string first = "model";
    if (entry.path) {
      const auto* name = std::get_if<std::string>(&entry.path->front());
      if (!name || entry.path->size() < 2) return std::nullopt;
      first = *name;
    } else if (!entry.name.starts_with("model.")) {
      return std::nullopt;
    }
    if (outer && *outer != first) return std::nullopt;
    outer = first;
  }
  return outer;
}

/// The name of an entry without the outer dictionary.
std::string inner_name(const DcpEntry& entry, const std::optional<std::string>& outer,
                       const std::string& folder) {
  if (!entry.path) return outer ? entry.name.substr(outer->size() + 1) : entry.name;
  const std::size_t skipped = outer ? 1 : 0;
  const auto* name =
      entry.path->size() == skipped + 1 ? std::get_if<std::string>(&entry.path->back()) : nullptr;
  if (!name || name->empty())
    fail("{}: {} lies in nested dictionaries or lists, expected one dictionary of tensors", folder,
         entry.name);
  return *name;
}

/// An older accelerate saved only rank 0's rows of an adapter. Its rank r tells.
void check_adapter(const NamedWeights& weights, const fs::path& config_file,
                   const std::string& folder) {
  const Json config = read_json_file(config_file);
  const auto r = config.find("r");
  const auto pattern = config.find("rank_pattern");
  const bool uniform = pattern == config.end() || pattern->is_null() || pattern->empty();
  if (!uniform || r == config.end() || !r->is_number_integer()) return;
  const auto rank = r->get<std::int64_t>();
  for (const auto& [name, entry] : weights) {
    const std::vector<std::int64_t>& size = tensor_of(*entry).size;
    if (name.ends_with(".lora_A.weight") && !size.empty() && size.front() != rank)
      fail(
          "{}: {} has {} rows, but {} says r={}: only a part of the adapter was saved, as older "
          "versions of accelerate did; these shards cannot be converted",
          folder, name, size.front(), config_file.string(), rank);
  }
}

/// A conversion's file until it is complete. Other conversions leave it alone while it is in use.
class Unfinished {
 public:
  explicit Unfinished(const fs::path& file)
      : prefix_(fmt::format(".{}.tmp-", file.filename().string())),
        path_(file.parent_path() / fmt::format("{}{}", prefix_, ::getpid())) {
    remove_abandoned(file.parent_path());
    FileWriter(path_).commit();
    lock_.emplace(path_);
  }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished() { ::unlink(path_.c_str()); }

  const fs::path& path() const { return path_; }

 private:
  /// Those of conversions that were killed.
  void remove_abandoned(const fs::path& folder) const {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error))
      if (entry->path().filename().string().starts_with(prefix_))
        UseLock::remove_unused(entry->path());
  }

  std::string prefix_;
  fs::path path_;
  std::optional<UseLock> lock_;
};

/// The file holds what was announced.
void verify(const fs::path& file, std::span<const serialization::LazyTensor> tensors) {
  const serialization::SafetensorsFile written(file);
  bool same = written.names().size() == tensors.size();
  for (const serialization::LazyTensor& tensor : tensors)
    same = same && written.contains(tensor.name) && written.dtype(tensor.name) == tensor.dtype &&
           written.shape(tensor.name) == tensor.shape;
  if (!same) fail("{}: does not hold what was written: is the disk in order?", file.string());
}

/// The folder disappears as a unit; a kill in the middle leaves only a hidden rest.
void remove_shards(const fs::path& shards) {
  const fs::path doomed =
      shards.parent_path() / fmt::format(".{}.deleted", shards.filename().string());
  std::error_code error;
  fs::remove_all(doomed, error);
  fs::rename(shards, doomed, error);
  if (error)
    fail_system(error.value(),
                "{}: the file of weights is complete, but these shards can't be removed",
                shards.string());
  sync_directory(shards.parent_path());
  fs::remove_all(doomed, error);
  if (error) fail_system(error.value(), "{}: cannot be removed", doomed.string());
}

/// The tensors as they are to be written, read from the shards one at a time.
std::vector<serialization::LazyTensor> lazy_tensors(const DcpReader& reader,
                                                    const NamedWeights& weights,
                                                    ConvertProgress& progress,
                                                    const ConvertOptions& options) {
  std::vector<serialization::LazyTensor> tensors;
  for (const auto& [name, entry] : weights) {
    const DcpTensor& tensor = tensor_of(*entry);
    const std::uint64_t bytes = dcp_block_bytes(tensor.size, tensor.dtype, name);
    progress.all_bytes += bytes;
    ++progress.all_tensors;
    const auto make = [&reader, &progress, &options, entry = entry, bytes] {
      if (options.progress) options.progress(progress);
      at::Tensor value = reader.tensor(entry->name);
      progress.bytes += bytes;
      ++progress.tensors;
      return value;
    };
    tensors.push_back({name, tensor.dtype, tensor.size, make});
  }
  return tensors;
}

}  // namespace

NamedWeights named_weights(const DcpMetadata& metadata, const std::string& folder) {
  const auto outer = outer_key(metadata);
  NamedWeights result;
  for (const DcpEntry& entry : metadata.entries()) {
    if (!std::holds_alternative<DcpTensor>(entry.content))
      fail("{}: {} is a plain value; a file of weights holds nothing but tensors", folder,
           entry.name);
    result.emplace_back(inner_name(entry, outer, folder), &entry);
  }
  if (result.empty()) fail("{}: holds no tensors", folder);
  return result;
}

fs::path find_sharded_model(const fs::path& path) {
  // "folder/" has an empty last component.
  const fs::path given = path.has_filename() ? path : path.parent_path();
  if (given.filename() == kShardedModelFolder)
    return given.has_parent_path() ? given.parent_path() : fs::path(".");
  fs::path model = config::find_pretrained(given);
  if (is_there(model / kShardedModelFolder)) return model;
  for (const char* file : {kModelFile, kAdapterModelFile})
    if (is_there(model / file))
      fail("{}: holds no shards ({}), and {} is there: nothing to convert", model.string(),
           kShardedModelFolder, file);
  fail("{}: holds no shards ({}): is it a checkpoint of a sharded run?", model.string(),
       kShardedModelFolder);
}

Converted convert_dcp(const fs::path& pretrained_model, const ConvertOptions& options) {
  const fs::path shards = pretrained_model / kShardedModelFolder;
  const DcpReader reader(shards);
  const NamedWeights weights = named_weights(reader.metadata(), shards.string());
  const fs::path adapter_config = pretrained_model / config::kAdapterConfigFile;
  const bool adapter = is_there(adapter_config);
  if (adapter) check_adapter(weights, adapter_config, shards.string());

  Converted result;
  result.file = pretrained_model / (adapter ? kAdapterModelFile : kModelFile);
  ConvertProgress& progress = result.total;
  const auto tensors = lazy_tensors(reader, weights, progress, options);
  const Unfinished unfinished(result.file);
  serialization::save_safetensors(unfinished.path(), tensors, {{"format", "pt"}});
  if (options.progress) options.progress(progress);
  verify(unfinished.path(), tensors);
  std::error_code error;
  fs::rename(unfinished.path(), result.file, error);
  if (error) fail_system(error.value(), "{}: cannot be replaced", result.file.string());
  sync_directory(pretrained_model);
  if (options.delete_dcp) remove_shards(shards);
  return result;
}

}  // namespace lerobot::checkpoint
