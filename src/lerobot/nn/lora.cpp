#include "lerobot/nn/lora.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>

#include "lerobot/base/error.h"
#include "lerobot/nn/init.h"

namespace lerobot::nn {
namespace {

void init_orthogonal(const at::Tensor& a, const at::Tensor& b, std::int64_t r) {
  if (r % 2 != 0) fail("init_type=orthogonal needs an even rank, found r={}", r);
  const at::Tensor q = std::get<0>(at::linalg_qr(at::randn({r, r})));
  const auto rows_from = [&](std::int64_t first) { return q.slice(0, first, r, 2); };
  const std::int64_t in = a.size(1);
  const std::int64_t out = b.size(0);
  a.copy_(at::randn({in, r / 2}).mm(rows_from(0)).t() / 10.0);
  b.copy_(at::randn({r / 2, out}).t().mm(rows_from(1)) / 10.0);
}

void init_olora(const at::Tensor& a, const at::Tensor& b, const at::Tensor& weight,
                const LoraOptions& options) {
  const at::Tensor whole = weight.to(at::kFloat);
  const auto [q, r] = at::linalg_qr(whole);
  a.copy_(r.narrow(0, 0, options.r));
  b.copy_(q.narrow(1, 0, options.r));
  weight.copy_(whole - (options.scaling() * b).matmul(a));
}

void init_pissa(const at::Tensor& a, const at::Tensor& b, const at::Tensor& weight,
                const LoraOptions& options) {
  const at::Tensor whole = weight.to(at::kFloat);
  const auto [left, values, right] = at::linalg_svd(whole, /*full_matrices=*/false);
  const at::Tensor root = (values.narrow(0, 0, options.r) / options.scaling()).sqrt().diag();
  a.copy_(root.matmul(right.narrow(0, 0, options.r)));
  b.copy_(left.narrow(1, 0, options.r).matmul(root));
  weight.copy_(whole - (options.scaling() * b).matmul(a));
}

void init_with_zero_b(const at::Tensor& a, const at::Tensor& b, const LoraOptions& options) {
  if (options.init == LoraInit::kGaussian)
    init::normal(a, 0.0, 1.0 / static_cast<double>(options.r));
  else
    init::default_weight(a);
  init::constant(b, 0.0);
}

}  // namespace

void init_lora(const at::Tensor& a, const at::Tensor& b, const at::Tensor& weight,
               const LoraOptions& options) {
  const c10::NoGradGuard no_grad;
  switch (options.init) {
    case LoraInit::kZero:
    case LoraInit::kGaussian:
      return init_with_zero_b(a, b, options);
    case LoraInit::kOrthogonal:
      return init_orthogonal(a, b, options.r);
    case LoraInit::kOlora:
      return init_olora(a, b, weight.detach(), options);
    case LoraInit::kPissa:
      return init_pissa(a, b, weight.detach(), options);
  }
}

void init_convolution_lora(const at::Tensor& a, const at::Tensor& b, const LoraOptions& options) {
  const c10::NoGradGuard no_grad;
  init_with_zero_b(a, b, options);
}

void require_init_without_weight(LoraInit init, const std::string& layer) {
  if (init == LoraInit::kZero || init == LoraInit::kGaussian) return;
  fail(
      "this init_type is for linear layers, and {} is another kind: leave --peft.init_type out, or "
      "pass gaussian",
      layer);
}

}  // namespace lerobot::nn
