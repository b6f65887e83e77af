// What the optimizers share about one parameter and its file settings.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/base/json.h"
#include "lerobot/optim/pieces.h"

namespace lerobot::optim {

/// True when `parameter` can be updated as a flat float32 array: on the CPU, without holes.
bool is_flat_float(const at::Tensor& parameter);

/// The parameter's gradient, in the parameter's memory order when `flat`. Undefined without one.
/// Throws InternalError for sparse gradients, which no policy makes.
at::Tensor gradient_of(const at::Tensor& parameter, bool flat);

/// Calls update(u, begin, length) for pieces of every u of `updates`, which have a flat `parameter`
/// each, and tells autograd that the parameters have changed.
template <class FlatUpdate, class Update>
void update_in_pieces(const std::vector<FlatUpdate>& updates, ParallelLoop& loop,
                      const Update& update) {
  std::vector<std::int64_t> lengths;
  lengths.reserve(updates.size());
  for (const FlatUpdate& each : updates) lengths.push_back(each.parameter.numel());
  for_each_piece(lengths, loop, [&](std::size_t number, std::int64_t begin, std::int64_t length) {
    update(updates[number], begin, length);
  });
  for (const FlatUpdate& each : updates) each.parameter.unsafeGetTensorImpl()->bump_version();
}

/// The number, or the truth value, under `key`. Throws Error naming `where`, the key and the value.
double number_setting(const Json& settings, const char* key, const std::string& where);
bool bool_setting(const Json& settings, const char* key, const std::string& where);
/// Throws Error unless the truth value under `key` is `expected`.
void require_setting(const Json& settings, const char* key, bool expected,
                     const std::string& where);

}  // namespace lerobot::optim
