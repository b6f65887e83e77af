#include "lerobot/checkpoint/training_state.h"

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include "lerobot/base/error.h"
#include "lerobot/serialization/torch_archive.h"

namespace lerobot::checkpoint {
namespace {

using serialization::NamedTensors;

// --- training_step.json -------------------------------------------------------------------------

std::optional<std::int64_t> read_count(const Json& object, const char* key, const fs::path& path) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  if (!found->is_number_integer() || found->get<std::int64_t>() < 0)
    fail("{}: {} is {}, expected a whole number of at least 0", path.string(), key,
         to_python_json(*found, -1));
  return found->get<std::int64_t>();
}

// --- rng_state.safetensors ----------------------------------------------------------------------

constexpr std::int64_t kPythonStateVersion = 3;
constexpr std::int64_t kTorchCpuStateBytes = 5056;

at::Tensor int64_tensor(std::initializer_list<std::int64_t> values) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())}, at::kLong);
  std::ranges::copy(values, tensor.mutable_data_ptr<std::int64_t>());
  return tensor;
}

at::Tensor int64_tensor(const MersenneTwisterState& state, bool with_position) {
  at::Tensor tensor = at::empty({Mt19937::kWords + (with_position ? 1 : 0)}, at::kLong);
  auto* values = std::ranges::copy(state.words, tensor.mutable_data_ptr<std::int64_t>()).out;
  if (with_position) *values = state.position;
  return tensor;
}

MersenneTwisterState state_of(const Mt19937& generator) {
  return {generator.words(), static_cast<std::uint32_t>(generator.position())};
}

MersenneTwisterState entropy_state() {
  std::random_device device;
  std::array<std::uint32_t, Mt19937::kWords> key{};
  std::ranges::generate(key, [&] { return static_cast<std::uint32_t>(device()); });
  return state_of(Mt19937(std::span<const std::uint32_t>(key)));
}

/// The tensors of one file with their types and sizes checked.
class RngFile {
 public:
  explicit RngFile(const fs::path& path) : path_(path.string()), file_(path) {}

  bool contains(const char* key) const { return file_.contains(key); }

  at::Tensor tensor(const char* key, at::ScalarType dtype, std::int64_t size) const {
    if (!file_.contains(key)) fail("{}: {} is missing", path_, key);
    const auto shape = file_.shape(key);
    if (file_.dtype(key) != dtype || shape.size() != 1 || (size >= 0 && shape[0] != size))
      fail("{}: {} is {} [{}], expected {} [{}]", path_, key, c10::toString(file_.dtype(key)),
           fmt::join(shape, ", "), c10::toString(dtype), size);
    return file_.tensor(key);
  }

  std::int64_t number(const char* key, std::int64_t minimum, std::int64_t maximum) const {
    return checked(key, tensor(key, at::kLong, 1).const_data_ptr<std::int64_t>()[0], minimum,
                   maximum);
  }

  /// MT19937 words, followed by the position when `with_position`.
  MersenneTwisterState twister(const char* key, bool with_position) const {
    const at::Tensor values = tensor(key, at::kLong, Mt19937::kWords + (with_position ? 1 : 0));
    const auto* value = values.const_data_ptr<std::int64_t>();
    MersenneTwisterState state;
    for (std::uint32_t& word : state.words)
      word = static_cast<std::uint32_t>(
          checked(key, *value++, 0, std::numeric_limits<std::uint32_t>::max()));
    if (with_position)
      state.position = static_cast<std::uint32_t>(checked(key, *value, 0, Mt19937::kWords));
    return state;
  }

 private:
  std::int64_t checked(const char* key, std::int64_t value, std::int64_t minimum,
                       std::int64_t maximum) const {
    if (value < minimum || value > maximum)
      fail("{}: {} holds {}, expected {} to {}", path_, key, value, minimum, maximum);
    return value;
  }

  std::string path_;
  serialization::SafetensorsFile file_;
};

void set_generator(at::Generator generator, const at::Tensor& state, const char* which) {
  const std::lock_guard lock(generator.mutex());
  try {
    generator.set_state(state);
  } catch (const c10::Error& error) {
    fail("the saved state of torch's {} generator is damaged: {}", which,
         error.what_without_backtrace());
  }
}

at::Tensor generator_state(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

at::Generator cuda_generator() {
  return at::globalContext().defaultGenerator(at::Device(at::kCUDA, -1));
}

}  // namespace

Json to_json(const TrainingStep& step) {
  Json json = Json::object();
  const auto put = [](Json& object, const char* key, const std::optional<std::int64_t>& value) {
    if (value) object[key] = *value;
  };
  json["step"] = step.step;
  put(json, "dp_world_size", step.dp_world_size);
  put(json, "batch_size", step.batch_size);
  put(json, "grad_accum_steps", step.grad_accum_steps);
  Json parallelism = Json::object();
  put(parallelism, "dp_replicate", step.dp_replicate);
  put(parallelism, "dp_shard", step.dp_shard);
  put(parallelism, "ring_degree", step.ring_degree);
  put(parallelism, "ulysses_degree", step.ulysses_degree);
  if (!parallelism.empty()) json["parallelism"] = std::move(parallelism);
  if (step.mixed_precision != "no") json["mixed_precision"] = step.mixed_precision;
  if (step.even_batches) json["even_batches"] = true;
  return json;
}

TrainingStep read_training_step(const fs::path& path) {
  const Json json = read_json_file(path);
  if (!json.is_object()) fail("{}: expected a JSON object", path.string());
  TrainingStep result;
  const auto step = read_count(json, "step", path);
  if (!step) fail("{}: step is missing", path.string());
  result.step = *step;
  result.dp_world_size = read_count(json, "dp_world_size", path);
  if (!result.dp_world_size) result.dp_world_size = read_count(json, "num_processes", path);
  result.batch_size = read_count(json, "batch_size", path);
  result.grad_accum_steps = read_count(json, "grad_accum_steps", path);
  if (const auto parallelism = json.find("parallelism");
      parallelism != json.end() && !parallelism->is_null()) {
    if (!parallelism->is_object()) fail("{}: parallelism is no JSON object", path.string());
    result.dp_replicate = read_count(*parallelism, "dp_replicate", path);
    result.dp_shard = read_count(*parallelism, "dp_shard", path);
    result.ring_degree = read_count(*parallelism, "ring_degree", path);
    result.ulysses_degree = read_count(*parallelism, "ulysses_degree", path);
  }
  if (const auto precision = json.find("mixed_precision");
      precision != json.end() && !precision->is_null()) {
    if (!precision->is_string()) fail("{}: mixed_precision is no text", path.string());
    result.mixed_precision = precision->get<std::string>();
  }
  if (const auto even = json.find("even_batches"); even != json.end()) {
    if (!even->is_boolean()) fail("{}: even_batches is neither true nor false", path.string());
    result.even_batches = even->get<bool>();
  }
  return result;
}

MersenneTwisterState python_random_state(std::uint64_t seed) {
  const std::uint32_t key[] = {static_cast<std::uint32_t>(seed),
                               static_cast<std::uint32_t>(seed >> 32)};
  return state_of(Mt19937(std::span<const std::uint32_t>(key, key[1] != 0 ? 2 : 1)));
}

MersenneTwisterState numpy_random_state(std::uint64_t seed) {
  if (seed > std::numeric_limits<std::uint32_t>::max())
    fail("seed {} is too large: numpy accepts 0 to {}", seed,
         std::numeric_limits<std::uint32_t>::max());
  return state_of(Mt19937(static_cast<std::uint32_t>(seed)));
}

RngState seeded_rng_state(std::optional<std::uint64_t> seed) {
  RngState state;
  state.python = seed ? python_random_state(*seed) : entropy_state();
  state.numpy = seed ? numpy_random_state(*seed) : entropy_state();
  capture_torch_rng(state);
  return state;
}

void capture_torch_rng(RngState& state) {
  state.torch_cpu = generator_state(at::detail::getDefaultCPUGenerator());
  state.torch_cuda.reset();
  if (at::globalContext().hasCUDA()) state.torch_cuda = generator_state(cuda_generator());
}

void restore_torch_rng(const RngState& state) {
  set_generator(at::detail::getDefaultCPUGenerator(), state.torch_cpu, "CPU");
  if (state.torch_cuda && at::globalContext().hasCUDA())
    set_generator(cuda_generator(), *state.torch_cuda, "CUDA");
}

NamedTensors to_tensors(const RngState& state) {
  at::Tensor gaussian = at::empty({1}, at::kFloat);
  *gaussian.mutable_data_ptr<float>() = state.numpy_cached_gaussian;
  NamedTensors tensors = {
      {"py_rng_version", int64_tensor({kPythonStateVersion})},
      {"py_rng_state", int64_tensor(state.python, true)},
      {"np_rng_state_values", int64_tensor(state.numpy, false)},
      {"np_rng_state_index", int64_tensor({state.numpy.position})},
      {"np_rng_has_gauss", int64_tensor({state.numpy_has_gauss ? 1 : 0})},
      {"np_rng_cached_gaussian", gaussian},
      {"torch_rng_state", state.torch_cpu},
  };
  if (state.torch_cuda) tensors.emplace_back("torch_cuda_rng_state", *state.torch_cuda);
  return tensors;
}

RngState read_rng_state(const fs::path& path) {
  const RngFile file(path);
  file.number("py_rng_version", kPythonStateVersion, kPythonStateVersion);
  RngState state;
  state.python = file.twister("py_rng_state", true);
  state.numpy = file.twister("np_rng_state_values", false);
  state.numpy.position =
      static_cast<std::uint32_t>(file.number("np_rng_state_index", 0, Mt19937::kWords));
  state.numpy_has_gauss = file.number("np_rng_has_gauss", 0, 1) == 1;
  state.numpy_cached_gaussian =
      file.tensor("np_rng_cached_gaussian", at::kFloat, 1).const_data_ptr<float>()[0];
  state.torch_cpu = file.tensor("torch_rng_state", at::kByte, kTorchCpuStateBytes);
  if (file.contains("torch_cuda_rng_state"))
    state.torch_cuda = file.tensor("torch_cuda_rng_state", at::kByte, -1);
  return state;
}

void save_ema_state(const fs::path& path, const optim::EmaState& state) {
  serialization::TorchList shadow;
  for (const at::Tensor& tensor : state.shadow_params) shadow.items.emplace_back(tensor);
  serialization::TorchDict dict;
  dict.items = {{"decay", state.decay},
                {"min_decay", state.min_decay},
                {"optimization_step", state.optimization_step},
                {"update_after_step", state.update_after_step},
                {"use_ema_warmup", state.use_ema_warmup},
                {"inv_gamma", state.inv_gamma},
                {"power", state.power},
                {"shadow_params", std::move(shadow)}};
  serialization::save_torch_archive(path, std::move(dict));
}

optim::EmaState read_ema_state(const fs::path& path) {
  const serialization::TorchArchive archive(path);
  const auto* dict = archive.root().get<serialization::PickleDict>();
  if (!dict) fail("{}: holds {}, expected a dict", path.string(), archive.root().describe());
  const auto value = [&](const char* key) -> const serialization::PickleValue& {
    const auto* found = dict->find(key);
    if (!found) fail("{}: {} is missing", path.string(), key);
    return *found;
  };
  const auto wrong = [&](const char* key, const char* expected) {
    fail("{}: {} is {}, expected {}", path.string(), key, value(key).describe(), expected);
  };
  const auto floating = [&](const char* key) {
    if (const auto* number = value(key).get<double>()) return *number;
    const auto* whole = value(key).get<std::int64_t>();
    if (!whole) wrong(key, "a float");
    return static_cast<double>(*whole);
  };
  const auto integer = [&](const char* key) {
    const auto* number = value(key).get<std::int64_t>();
    if (!number || *number < 0) wrong(key, "an int of at least 0");
    return *number;
  };
  optim::EmaState state;
  state.decay = floating("decay");
  state.min_decay = floating("min_decay");
  state.optimization_step = integer("optimization_step");
  state.update_after_step = integer("update_after_step");
  const auto* warmup = value("use_ema_warmup").get<bool>();
  if (!warmup) wrong("use_ema_warmup", "a bool");
  state.use_ema_warmup = *warmup;
  state.inv_gamma = floating("inv_gamma");
  state.power = floating("power");
  const auto* shadow = value("shadow_params").get<serialization::PickleList>();
  if (!shadow) wrong("shadow_params", "a list");
  for (const auto* item : shadow->items) state.shadow_params.push_back(archive.tensor(*item));
  return state;
}

}  // namespace lerobot::checkpoint
