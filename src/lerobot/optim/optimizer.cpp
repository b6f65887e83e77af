#include "lerobot/optim/optimizer.h"

#include <charconv>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "lerobot/base/error.h"
#include "lerobot/optim/adam.h"
#include "lerobot/optim/parameter_update.h"
#include "lerobot/optim/sgd.h"

namespace lerobot::optim {
namespace {

constexpr const char* kStateFile = "optimizer_state.safetensors";

/// Both must have the same keys.
void check_keys(const Json& saved, const Json& ours, const std::string& where) {
  if (!saved.is_object()) fail("{} must be an object, found {}", where, saved.type_name());
  for (const auto& [key, value] : ours.items()) {
    if (saved.contains(key)) continue;
    if (key == "initial_lr")
      fail("{} has no \"initial_lr\": it was written without a scheduler, and this run has one",
           where);
    fail("{} has no \"{}\": was it written by another optimizer?", where, key);
  }
  for (const auto& [key, value] : saved.items()) {
    if (ours.contains(key)) continue;
    if (key == "initial_lr")
      fail("{} has an \"initial_lr\": it was written with a scheduler, and this run has none",
           where);
    fail("{} has the unknown setting \"{}\": was it written by another optimizer?", where, key);
  }
}

/// "state/<n>/<key>" as (n, key).
std::pair<std::size_t, std::string_view> parse_state_name(std::string_view name,
                                                          std::size_t parameters) {
  constexpr std::string_view kPrefix = "state/";
  if (name.starts_with(kPrefix)) {
    const std::string_view rest = name.substr(kPrefix.size());
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    const auto digits = static_cast<std::size_t>(end - rest.data());
    if (error == std::errc() && digits < rest.size() && rest[digits] == '/' && number < parameters)
      return {number, rest.substr(digits + 1)};
  }
  fail("{}: unknown key \"{}\" (expected \"state/<number>/<name>\", numbers below {})", kStateFile,
       name, parameters);
}

/// `saved` in the form that the state of `parameter` has: itself when nobody else holds it and it
/// fits, otherwise a copy.
at::Tensor owned_state(at::Tensor saved, const at::Tensor& parameter, bool is_scalar) {
  const auto options = is_scalar ? at::TensorOptions(at::kFloat).device(parameter.device())
                                 : parameter.options().requires_grad(false);
  const bool fits = saved.scalar_type() == c10::typeMetaToScalarType(options.dtype()) &&
                    saved.device() == parameter.device() &&
                    (is_scalar || saved.strides() == parameter.strides());
  if (fits && saved.use_count() == 1 && saved.storage().use_count() == 1) return saved;
  const at::Tensor copy =
      is_scalar ? at::empty({}, options) : at::empty_like(parameter.detach(), options);
  return copy.copy_(saved);
}

}  // namespace

Optimizer::Optimizer(double default_lr, std::vector<StateKey> keys, std::vector<Group> groups)
    : groups_(std::move(groups)), default_lr_(default_lr), keys_(std::move(keys)) {
  std::unordered_set<const void*> seen;
  for (Group& group : groups_) {
    if (std::isnan(group.lr)) group.lr = default_lr;
    if (!(group.lr >= 0.0))
      fail_usage("a parameter group's learning rate must not be negative, found {}", group.lr);
    for (const auto& [name, parameter] : group.parameters)
      check_internal(seen.insert(parameter.unsafeGetTensorImpl()).second,
                     "a parameter occurs twice in an optimizer");
  }
  state_.resize(seen.size());
}

void Optimizer::zero_grad() {
  for (const Group& group : groups_)
    for (const auto& [name, parameter] : group.parameters)
      if (parameter.grad().defined()) parameter.mutable_grad().reset();
}

std::size_t Optimizer::first_parameter(std::size_t group) const {
  std::size_t number = 0;
  for (std::size_t i = 0; i < group; ++i) number += groups_[i].parameters.size();
  return number;
}

serialization::NamedTensors Optimizer::state() const {
  serialization::NamedTensors named;
  for (std::size_t n = 0; n < state_.size(); ++n)
    for (std::size_t k = 0; k < state_[n].size(); ++k)
      named.emplace_back(state_name(n, keys_[k].name), state_[n][k]);
  return named;
}

std::string Optimizer::state_name(std::size_t number, std::string_view key) {
  return fmt::format("state/{}/{}", number, key);
}

std::vector<Optimizer::StateTensor> Optimizer::state_tensors() const {
  std::vector<StateTensor> tensors;
  std::size_t number = 0;
  for (const Group& group : groups_)
    for (const auto& [name, parameter] : group.parameters) {
      const ParameterState& state = state_[number];
      for (std::size_t k = 0; k < keys_.size(); ++k)
        tensors.push_back({name, number, parameter, keys_[k].name, keys_[k].is_scalar,
                           k < state.size() ? state[k] : at::Tensor()});
      ++number;
    }
  return tensors;
}

void Optimizer::load_state(serialization::NamedTensors saved) {
  std::vector<ParameterState> found(state_.size());
  for (auto& [name, tensor] : saved) {
    const auto [number, key] = parse_state_name(name, found.size());
    std::size_t k = 0;
    while (k < keys_.size() && key != keys_[k].name) ++k;
    if (k == keys_.size())
      fail("{}: unknown key \"{}\": was it written by another optimizer?", kStateFile, name);
    found[number].resize(keys_.size());
    if (found[number][k].defined()) fail("{}: key \"{}\" occurs twice", kStateFile, name);
    found[number][k] = std::move(tensor);
  }

  std::vector<ParameterState> loaded(state_.size());
  std::size_t number = 0;
  for (const Group& group : groups_) {
    for (const auto& [name, parameter] : group.parameters) {
      ParameterState& source = found[number];
      for (std::size_t k = 0; k < source.size(); ++k) {
        const std::string key = state_name(number, keys_[k].name);
        if (!source[k].defined()) fail("{}: key \"{}\" is missing", kStateFile, key);
        const at::IntArrayRef shape = keys_[k].is_scalar ? at::IntArrayRef{} : parameter.sizes();
        if (source[k].sizes() != shape)
          fail("{}: \"{}\" must have the shape {} of parameter {}, found {}", kStateFile, key,
               fmt::streamed(shape), name, fmt::streamed(source[k].sizes()));
        if (!source[k].is_floating_point())
          fail("{}: \"{}\" must be floating-point, found {}", kStateFile, key,
               at::toString(source[k].scalar_type()));
        loaded[number].push_back(owned_state(std::move(source[k]), parameter, keys_[k].is_scalar));
      }
      ++number;
    }
  }
  state_ = std::move(loaded);
}

Json Optimizer::param_groups() const {
  Json groups = Json::array();
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    Json group = Json::object();
    group["lr"] = groups_[i].lr;
    group.update(settings(i));
    if (groups_[i].initial_lr) group["initial_lr"] = *groups_[i].initial_lr;
    std::vector<std::size_t> numbers(groups_[i].parameters.size());
    std::iota(numbers.begin(), numbers.end(), first_parameter(i));
    group["params"] = numbers;
    groups.push_back(std::move(group));
  }
  return groups;
}

void Optimizer::load_param_groups(const Json& saved, const std::string& source) {
  const Json ours = param_groups();
  if (!saved.is_array()) fail("{} must be a list, found {}", source, saved.type_name());
  if (saved.size() != ours.size())
    fail("{} must have {} groups, found {}", source, ours.size(), saved.size());
  for (const bool apply : {false, true}) {
    for (std::size_t i = 0; i < saved.size(); ++i) {
      const std::string where = fmt::format("{}: group {}", source, i);
      check_keys(saved[i], ours[i], where);
      const Json& numbers = saved[i]["params"];
      if (!numbers.is_array() || numbers.size() != ours[i]["params"].size())
        fail("{} must have {} parameters, found {}", where, ours[i]["params"].size(),
             numbers.size());
      if (numbers != ours[i]["params"])
        fail("{}: \"params\" must be the numbers from {} on, found {}", where, first_parameter(i),
             numbers.dump());
      const double lr = number_setting(saved[i], "lr", where);
      load_settings(i, saved[i], where, apply);
      if (groups_[i].initial_lr) {
        const double initial_lr = number_setting(saved[i], "initial_lr", where);
        if (apply) groups_[i].initial_lr = initial_lr;
      }
      if (apply) groups_[i].lr = lr;
    }
  }
}

namespace {

void require_option(bool condition, const char* option, const char* expected, double found) {
  if (!condition) fail_usage("optimizer.{} must be {}, found {}", option, expected, found);
}

Adam::Settings adam_settings(const std::vector<double>& betas, double eps, double weight_decay) {
  if (betas.size() != 2)
    fail_usage("optimizer.betas must be two numbers, found {} of them", betas.size());
  for (double beta : betas)
    require_option(beta >= 0.0 && beta < 1.0, "betas", "from 0 to below 1", beta);
  require_option(eps >= 0.0, "eps", "at least 0", eps);
  require_option(weight_decay >= 0.0, "weight_decay", "at least 0", weight_decay);
  return {betas[0], betas[1], eps, weight_decay};
}

struct Maker {
  std::vector<Group> groups;

  std::unique_ptr<Optimizer> operator()(const config::AdamConfig& c) {
    require_option(c.lr >= 0.0, "lr", "at least 0", c.lr);
    return std::make_unique<Adam>(c.lr, adam_settings(c.betas, c.eps, c.weight_decay), false,
                                  std::move(groups));
  }
  std::unique_ptr<Optimizer> operator()(const config::AdamWConfig& c) {
    require_option(c.lr >= 0.0, "lr", "at least 0", c.lr);
    return std::make_unique<Adam>(c.lr, adam_settings(c.betas, c.eps, c.weight_decay), true,
                                  std::move(groups));
  }
  std::unique_ptr<Optimizer> operator()(const config::SgdConfig& c) {
    require_option(c.lr >= 0.0, "lr", "at least 0", c.lr);
    require_option(c.momentum >= 0.0, "momentum", "at least 0", c.momentum);
    require_option(c.weight_decay >= 0.0, "weight_decay", "at least 0", c.weight_decay);
    if (c.nesterov && (c.momentum <= 0.0 || c.dampening != 0.0))
      fail_usage(
          "optimizer.nesterov needs a positive momentum and no dampening, found momentum {} and "
          "dampening {}",
          c.momentum, c.dampening);
    const Sgd::Settings settings{c.momentum, c.dampening, c.weight_decay, c.nesterov};
    return std::make_unique<Sgd>(c.lr, settings, std::move(groups));
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const config::OptimizerConfig& config,
                                          std::vector<Group> groups) {
  return std::visit(Maker{std::move(groups)}, config);
}

}  // namespace lerobot::optim
