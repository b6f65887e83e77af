#include "lerobot/train/training_loop.h"

#include <algorithm>
#include <cerrno>
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
#include "lerobot/base/interrupt.h"
#include "lerobot/base/log.h"
#include "lerobot/checkpoint/background_saver.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/config/run_folder.h"
#include "lerobot/train/autocast.h"
#include "lerobot/train/checkpoint_files.h"
#include "lerobot/train/metrics.h"
#include "lerobot/train/progress_bar.h"
#include "lerobot/train/run_log.h"
#include "lerobot/train/waits.h"

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
        tracker_(config_.batch_size, session.datasets.frames(), session.datasets.episodes(),
                 session.start.step),
        metrics_file_(session.output_dir / "metrics.jsonl", session.start.step),
        saver_(checkpoint::CheckpointWriter(session.output_dir / config::kCheckpointsFolder,
                                            config_.steps)),
        parameters_(session.policy->module().named_parameters()),
        clip_norm_(std::visit([](const auto& options) { return options.grad_clip_norm; },
                              *config_.optimizer)),
        accumulation_(config_.accelerator.gradient_accumulation.steps),
        autocast_(autocast_dtype(config_.accelerator.mixed_precision)) {
    // LeRobot's train_config.json has no such option, so that the file itself tells a resumed run.
    const fs::path samples = session.output_dir / "samples.rank0.jsonl";
    if (config_.log_samples || (session.start.step > 0 && fs::exists(samples)))
      samples_file_.emplace(samples, session.start.step);
    if (session.datasets.held_out)
      eval_loader_ = make_eval_loader(config_, session.datasets, session.device.is_cuda());
  }

  int run() {
    if (session_.start.step >= config_.steps)
      log::warning("Nothing to do: the checkpoint is at step {}, and --steps={}; go on with more",
                   session_.start.step, config_.steps);
    const InterruptGuard interrupts(
        "\nStopping after this step, then saving a checkpoint. Once more to stop at once.\n");
    const OnInterrupt stop_loader([this] { loader_->stop(); });
    ProgressBar progress("Training", session_.start.step, config_.steps);
    std::int64_t step = session_.start.step;
    while (step < config_.steps && InterruptGuard::received() == 0) {
      if (!train_step(step)) break;
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

  /// The next batch; nothing when a signal came while it was waited for.
  std::optional<dataset::Batch> next_batch() {
    if (loader_->starts_epoch()) draw_loader_seed();
    try {
      return loader_->next();
    } catch (const dataset::LoaderStopped&) {
      if (InterruptGuard::received() == 0) throw;
      return std::nullopt;
    }
  }

  /// Micro-batch number `step` (counted from 0). False when it was not begun.
  bool train_step(std::int64_t step) {
    const auto start = Clock::now();
    std::optional<dataset::Batch> next = next_batch();
    if (!next) return false;
    dataset::Batch& batch = *next;
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
    waits_.add(data_s);
    return true;
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
    Json metrics = tracker_.to_json();
    if (session_.datasets.stream) write_stream_line(metrics);
    metrics_file_.append(metrics);
    waits_.clear();
    progress_note_ =
        fmt::format("loss {:.3f} {:.0f} smp/s data {:.0f}%", loss, tracker_.samples_per_second(),
                    100 * tracker_.data_s.average() / std::max(tracker_.step_s.average(), 1e-9));
    tracker_.reset();
  }

  /// Waits and bytes since the last line.
  void write_stream_line(Json& metrics) {
    const dataset::SourceStatistics now = loader_->statistics();
    const double seconds = seconds_since(last_line_);
    const double rate =
        static_cast<double>(now.bytes_read - bytes_at_last_line_) / std::max(seconds, 1e-9);
    last_line_ = Clock::now();
    bytes_at_last_line_ = now.bytes_read;
    const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    log::info(
        "data: wait p50:{:.4f} p95:{:.4f} p99:{:.4f} s, read {:.2f} MB/s, reserved_bytes:{:.1f} "
        "MiB "
        "resident_bytes:{:.1f} MiB",
        waits_.percentile(0.5), waits_.percentile(0.95), waits_.percentile(0.99), rate / 1e6,
        mib(now.reserved_bytes), mib(now.resident_bytes));
    metrics["wait_p50_s"] = waits_.percentile(0.5);
    metrics["wait_p95_s"] = waits_.percentile(0.95);
    metrics["wait_p99_s"] = waits_.percentile(0.99);
    metrics["bytes_read"] = now.bytes_read;
    metrics["bytes_per_s"] = rate;
    metrics["reserved_bytes"] = now.reserved_bytes;
    metrics["resident_bytes"] = now.resident_bytes;
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
      if (saved_step_ != step && step > session_.start.step) save(step);
      if (const auto path = saver_.wait())
        log::info("Go on with: {} --resume=true --config_path='{}'", program_invocation_name,
                  (*path / config::kPretrainedModelFolder / config::kTrainConfigFile).string());
    }
    return 128 + signal;
  }

  Session& session_;
  const config::TrainConfig& config_;
  std::unique_ptr<dataset::BatchSource> loader_;
  std::unique_ptr<dataset::MapLoader> eval_loader_;
  MetricsTracker tracker_;
  JsonLines metrics_file_;
  std::optional<JsonLines> samples_file_;
  checkpoint::BackgroundSaver saver_;
  nn::NamedTensors parameters_;
  double clip_norm_;
  std::int64_t accumulation_;
  std::optional<at::ScalarType> autocast_;
  Waits waits_;  // since the last log line
  Clock::time_point last_line_ = Clock::now();
  std::uint64_t bytes_at_last_line_ = 0;
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
  log::info("dataset.num_frames={} ({})", session.datasets.frames(),
            big(session.datasets.frames()));
  log::info("dataset.num_episodes={}", session.datasets.episodes());
  log::info(
      "Effective batch size: {} x 1 dp workers x {} grad accum = {} (topology: dp_replicate={}, "
      "dp_shard={})",
      config.batch_size, accumulation, effective, config.parallelism.dp_replicate,
      config.parallelism.dp_shard);
  if (session.datasets.stream) log_stream_panel(config, *session.datasets.stream);
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
