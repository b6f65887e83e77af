#include "lerobot/train/training_loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <string>
#include <variant>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/checkpoint/background_saver.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/train/autocast.h"
#include "lerobot/train/checkpoint_files.h"
#include "lerobot/train/interrupt.h"
#include "lerobot/train/metrics.h"
#include "lerobot/train/progress_bar.h"
#include "lerobot/train/run_log.h"

namespace lerobot::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// torch's DataLoader draws one number from the default generator whenever it starts an epoch. On
/// the CPU the same generator makes the policy's noise, so we draw it too.
void draw_loader_seed() { at::empty({}, at::kLong).random_(); }

class TrainingLoop {
 public:
  explicit TrainingLoop(Session& session)
      : session_(session),
        config_(session.config),
        loader_(
            make_train_loader(config_, session.datasets, session.start, session.device.is_cuda())),
        tracker_(config_.batch_size, session.datasets.train->size(),
                 static_cast<std::int64_t>(session.datasets.train->episodes().size()),
                 session.first_step),
        metrics_file_(session.output_dir / "metrics.jsonl", session.first_step),
        saver_(checkpoint::CheckpointWriter(session.output_dir / checkpoint::kCheckpointsFolder,
                                            config_.steps)),
        parameters_(session.policy->module().named_parameters()),
        clip_norm_(std::visit([](const auto& options) { return options.grad_clip_norm; },
                              *config_.optimizer)),
        accumulation_(config_.accelerator.gradient_accumulation.steps),
        autocast_(autocast_dtype(config_.accelerator.mixed_precision)) {
    // LeRobot's train_config.json has no such option, so that the file itself tells a resumed run.
    const fs::path samples = session.output_dir / "samples.rank0.jsonl";
    if (config_.log_samples || (session.first_step > 0 && fs::exists(samples)))
      samples_file_.emplace(samples, session.first_step);
    if (session.datasets.held_out)
      eval_loader_ = make_eval_loader(config_, session.datasets, session.device.is_cuda());
  }

  int run() {
    InterruptGuard interrupts;
    ProgressBar progress("Training", session_.first_step, config_.steps);
    std::int64_t step = session_.first_step;
    while (step < config_.steps && InterruptGuard::received() == 0) {
      train_step(step);
      ++step;
      saver_.check();
      if (config_.save_checkpoint && !saver_is_prepared_ && step % accumulation_ == 0) {
        saver_is_prepared_ = true;
        saver_.prepare(checkpoint_tensors(session_));
      }
      progress.update(step, progress_note_);
      if (config_.log_freq > 0 && step % config_.log_freq == 0) write_log_line();
      if (eval_loader_ && config_.eval_steps > 0 && step % config_.eval_steps == 0) evaluate(step);
      if (config_.save_checkpoint && is_saving_step(step)) save(step);
    }
    if (const int signal = InterruptGuard::received(); signal != 0 && step < config_.steps)
      return stop_early(step, signal);
    saver_.wait();
    log::info("End of training");
    return 0;
  }

 private:
  bool is_saving_step(std::int64_t step) const {
    return step == config_.steps || (config_.save_freq > 0 && step % config_.save_freq == 0);
  }

  /// Micro-batch number `step` (counted from 0).
  void train_step(std::int64_t step) {
    const auto start = Clock::now();
    if (loader_->starts_epoch()) draw_loader_seed();
    dataset::Batch batch = loader_->next();
    const std::vector<std::int64_t> indices = batch.frame_index;
    const double data_s = seconds_since(start);
    session_.processors->preprocessor.apply(batch);
    const double prepared_s = seconds_since(start);

    session_.policy->module().train();
    policy::TrainOutput output;
    {
      AutocastScope autocast(session_.device, autocast_);
      output = session_.policy->compute_loss(batch);
    }
    const at::Tensor loss = output.loss.to(at::kFloat);
    (accumulation_ > 1 ? loss / static_cast<double>(accumulation_) : loss).backward();

    const double lr_used = session_.optimizer->groups().front().lr;
    at::Tensor grad_norm = at::zeros({}, loss.options());
    if ((step + 1) % accumulation_ == 0) {
      grad_norm = optim::clip_grad_norm(parameters_, clip_norm_);
      session_.optimizer->step();
      session_.optimizer->zero_grad();
      if (session_.ema) session_.ema->update();
    }
    if (session_.scheduler) session_.scheduler->step();

    tracker_.step();
    tracker_.loss.add(loss.detach());
    tracker_.grad_norm.add(grad_norm);
    tracker_.lr.add(session_.optimizer->groups().front().lr);
    for (const auto& [name, value] : output.metrics) tracker_.policy_metric(name).add(value);
    if (samples_file_)
      samples_file_->append({{"step", step + 1},
                             {"index", indices},
                             {"loss", loss.item().toDouble()},
                             {"grad_norm", grad_norm.item().toDouble()},
                             {"lr", lr_used}});
    const double step_s = seconds_since(start);
    tracker_.data_s.add(data_s);
    tracker_.prep_s.add(prepared_s - data_s);
    tracker_.update_s.add(step_s - prepared_s);
    tracker_.step_s.add(step_s);
  }

  void write_log_line() {
    log::info("{}", tracker_.line());
    const double loss = tracker_.loss.average();
    if (!std::isfinite(loss) && !warned_about_loss_) {
      warned_about_loss_ = true;
      log::warning(
          "The loss is {} at step {}: lower the learning rate, or look for extreme values in "
          "the dataset's statistics. Training goes on as LeRobot's does.",
          loss, tracker_.steps());
    }
    metrics_file_.append(tracker_.to_json());
    progress_note_ =
        fmt::format("loss {:.3f} {:.0f} smp/s data {:.0f}%", loss, tracker_.samples_per_second(),
                    100 * tracker_.data_s.average() / std::max(tracker_.step_s.average(), 1e-9));
    tracker_.reset();
  }

  void evaluate(std::int64_t step) {
    draw_loader_seed();
    session_.policy->module().train(false);
    double sum = 0;
    const std::int64_t batches = eval_loader_->batches_per_epoch();
    {
      at::NoGradGuard no_grad;
      for (std::int64_t i = 0; i < batches; ++i) {
        dataset::Batch batch = eval_loader_->next();
        session_.processors->preprocessor.apply(batch);
        AutocastScope autocast(session_.device, autocast_);
        sum += session_.policy->compute_loss(batch).loss.item().toDouble();
      }
    }
    const double loss = sum / static_cast<double>(std::max<std::int64_t>(batches, 1));
    session_.policy->module().train();
    log::info("step {}: eval_loss={:.4f}", step, loss);
    metrics_file_.append({{"step", step}, {"eval_loss", loss}});
  }

  void save(std::int64_t step) {
    log::info("Checkpoint policy after step {}", step);
    const auto start = Clock::now();
    saver_.save(step, [&](checkpoint::HostCopies& copies) {
      return checkpoint_files(session_, step, copies);
    });
    metrics_file_.append({{"step", step}, {"checkpoint_stall_s", seconds_since(start)}});
    saved_step_ = step;
  }

  int stop_early(std::int64_t step, int signal) {
    log::info("Stopped by {} after step {} of {}", signal == SIGINT ? "SIGINT" : "SIGTERM", step,
              config_.steps);
    if (!config_.save_checkpoint) {
      log::warning("No checkpoint was written: --save_checkpoint=false");
    } else {
      if (saved_step_ != step && step > session_.first_step) save(step);
      if (const auto path = saver_.wait())
        log::info(
            "Go on with: lerobot-train --resume=true --config_path='{}'",
            (*path / checkpoint::kPretrainedModelFolder / checkpoint::kTrainConfigFile).string());
    }
    return 128 + signal;
  }

  Session& session_;
  const config::TrainConfig& config_;
  std::unique_ptr<dataset::MapLoader> loader_;
  std::unique_ptr<dataset::MapLoader> eval_loader_;
  MetricsTracker tracker_;
  JsonLines metrics_file_;
  std::optional<JsonLines> samples_file_;
  checkpoint::BackgroundSaver saver_;
  nn::NamedTensors parameters_;
  double clip_norm_;
  std::int64_t accumulation_;
  std::optional<at::ScalarType> autocast_;
  std::string progress_note_;
  std::int64_t saved_step_ = -1;
  bool saver_is_prepared_ = false;
  bool warned_about_loss_ = false;
};

void write_panel(const Session& session) {
  const config::TrainConfig& config = session.config;
  const auto big = [](std::int64_t number) {
    return format_big_number(static_cast<double>(number));
  };
  std::int64_t learnable = 0, total = 0;
  for (const auto& [name, parameter] : session.policy->module().named_parameters()) {
    total += parameter.numel();
    if (parameter.requires_grad()) learnable += parameter.numel();
  }
  const std::int64_t accumulation = config.accelerator.gradient_accumulation.steps;
  const std::int64_t effective = config.batch_size * accumulation;
  log::info("Output dir: {}", session.output_dir.string());
  log::info("cfg.steps={} ({})", config.steps, big(config.steps));
  log::info("dataset.num_frames={} ({})", session.datasets.train->size(),
            big(session.datasets.train->size()));
  log::info("dataset.num_episodes={}", session.datasets.train->episodes().size());
  log::info(
      "Effective batch size: {} x 1 dp workers x {} grad accum = {} (topology: dp_replicate={}, "
      "dp_shard={})",
      config.batch_size, accumulation, effective, config.parallelism.dp_replicate,
      config.parallelism.dp_shard);
  log::info("num_learnable_params={} ({})", learnable, big(learnable));
  log::info("num_total_params={} ({})", total, big(total));
  log::info("Start offline training on a fixed dataset, with effective batch size: {}", effective);
}

}  // namespace

int run_training(Session& session) {
  std::error_code error;
  fs::create_directories(session.output_dir, error);
  if (error) fail("{}: cannot be created: {}", session.output_dir.string(), error.message());
  TrainingLoop loop(session);
  write_panel(session);
  return loop.run();
}

}  // namespace lerobot::train
