#include "lerobot/train/training_loop.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/ranges.h>

#include "lerobot/base/error.h"
#include "lerobot/base/interrupt.h"
#include "lerobot/base/log.h"
#include "lerobot/base/process.h"
#include "lerobot/checkpoint/background_saver.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/config/run_folder.h"
#include "lerobot/train/autocast.h"
#include "lerobot/train/checkpoint_files.h"
#include "lerobot/train/evaluation.h"
#include "lerobot/train/metrics.h"
#include "lerobot/train/pace.h"
#include "lerobot/train/panel.h"
#include "lerobot/train/part_scope.h"
#include "lerobot/train/profile/profile.h"
#include "lerobot/train/progress_bar.h"
#include "lerobot/train/publishing.h"
#include "lerobot/train/run_log.h"
#include "lerobot/train/run_records.h"
#include "lerobot/train/stop_agreement.h"
#include "lerobot/train/torch_errors.h"
#include "lerobot/train/waits.h"

namespace lerobot::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using distributed::StepPart;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// How the user called the program: what the start file says, which hands over to this process.
std::string program_name() {
  const char* name = std::getenv("LEROBOT_TRAIN_COMMAND");
  return name != nullptr ? name : program_invocation_name;
}

/// torch's DataLoader draws one number from the default generator whenever it starts an epoch. On
/// the CPU the same generator makes the policy's noise, so we draw it too.
void draw_loader_seed() { at::empty({}, at::kLong).random_(); }

/// Memory of torch's allocator on a GPU, at the most since the start.
double peak_gibibytes(at::Device device) {
  const auto stats =
      c10::getDeviceAllocator(device.type())
          ->getDeviceStats(device.has_index() ? device.index() : c10::DeviceIndex{0});
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<double>(stats.allocated_bytes[kAll].peak) / (1 << 30);
}

class TrainingLoop {
 public:
  /// `records` is null on all ranks but the first.
  TrainingLoop(Session& session, RunRecords* records)
      : session_(session),
        config_(session.config),
        records_(records),
        loader_(make_train_loader(config_, session.datasets,
                                  {.world = session.world->size(), .rank = session.world->rank()},
                                  session.start, session.device.is_cuda())),
        tracker_(config_.batch_size * session.world->size(), session.datasets.frames(),
                 session.datasets.episodes(), session.start.step),
        agreement_(session.world->all()),
        clip_norm_(std::visit([](const auto& options) { return options.grad_clip_norm; },
                              *config_.optimizer)),
        accumulation_(config_.accelerator.gradient_accumulation.steps),
        autocast_(autocast_dtype(config_.accelerator.mixed_precision)),
        clock_(session.world->clock()) {
    const distributed::World& world = *session.world;
    if (world.is_main() && config_.save_checkpoint_to_hub) {
      uploads_.emplace(config_);
      if (config_.resume)
        uploads_->add_unpublished(session.output_dir / config::kCheckpointsFolder);
    }
    if (world.is_main() || world.mesh().is_sharded())
      saver_ = std::make_unique<checkpoint::BackgroundSaver>(
          checkpoint::CheckpointWriter(
              session.output_dir / config::kCheckpointsFolder, config_.steps,
              world.mesh().is_sharded() ? world.background() : distributed::Communicator()),
          [this](const fs::path& checkpoint) {
            if (records_ != nullptr) records_->checkpoint_saved();
            if (uploads_) uploads_->add(checkpoint);
          });
    // LeRobot's train_config.json has no such option, so that the files themselves tell a resumed
    // run; it may have other ranks.
    const auto samples = [&](std::int64_t rank) {
      return session.output_dir / fmt::format("samples.rank{}.jsonl", rank);
    };
    if (config_.log_samples || (session.start.step > 0 && fs::exists(samples(0))))
      samples_file_.emplace(samples(session.world->rank()), session.start.step);
    if (session.datasets.held_out) evaluation_.emplace(session);
    if (config_.profile.steps) profile_.emplace(session);
  }

  int run() {
    const bool is_main = session_.world->is_main();
    if (session_.start.step >= config_.steps && is_main)
      log::warning("Nothing to do: the checkpoint is at step {}, and --steps={}; go on with more",
                   session_.start.step, config_.steps);
    const InterruptGuard interrupts(
        is_main
            ? "\nStopping after this step, then saving a checkpoint. Once more to stop at once.\n"
            : "");
    // Of several ranks all go to the end of the step that they have agreed on.
    std::optional<OnInterrupt> stop_loader;
    if (session_.world->size() == 1) stop_loader.emplace([this] { loader_->stop(); });
    std::optional<ProgressBar> progress;
    if (is_main) progress.emplace("Training", session_.start.step, config_.steps);
    std::int64_t step = session_.start.step;
    int signal = 0;
    clock_.take();  // what came before the first step
    while (step < config_.steps && signal == 0) {
      if (profile_) profile_->begin_step(step + 1);
      {
        RECORD_USER_SCOPE(fmt::format("step {}", step + 1));
        agreement_.begin_step();
        if (train_step(step)) after_step(++step);
        signal = agreement_.end_step();
      }
      if (profile_) profile_->end_step(step);
      if (progress && progress->is_due(step)) progress->update(step, progress_note());
    }
    progress.reset();
    if (profile_) profile_->finish();
    return signal != 0 && step < config_.steps ? stop_early(step, signal) : finish();
  }

 private:
  bool is_saving_step(std::int64_t step) const {
    return step == config_.steps || (config_.save_freq > 0 && step % config_.save_freq == 0);
  }

  void after_step(std::int64_t step) {
    if (saver_) saver_->check();
    prepare_saver(step);
    if (config_.log_freq > 0 && step % config_.log_freq == 0) write_log_line();
    if (evaluation_ && config_.eval_steps > 0 && step % config_.eval_steps == 0) evaluate(step);
    if (config_.save_checkpoint && is_saving_step(step)) save(step);
  }

  /// After the first update, when the optimizer's state is there.
  void prepare_saver(std::int64_t step) {
    if (!saver_ || !config_.save_checkpoint || saver_is_prepared_ || step % accumulation_ != 0)
      return;
    saver_is_prepared_ = true;
    saver_->prepare(checkpoint_tensors(session_));
  }

  /// The next batch; nothing when a signal came while it was waited for.
  std::optional<dataset::Batch> next_batch() {
    const PartScope part(clock_, StepPart::kData);
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
    preprocess(batch);
    const double prepared_s = seconds_since(start);

    const bool updates = (step + 1) % accumulation_ == 0;
    const policy::TrainOutput output = forward(batch, updates);
    const at::Tensor loss = output.loss.to(at::kFloat);
    backward(loss);

    const double lr_used = session_.optimizer->groups().front().lr;
    const at::Tensor grad_norm = updates ? update() : at::zeros({}, loss.options());
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
    pace_.add(data_s, step_s);
    return true;
  }

  void preprocess(dataset::Batch& batch) {
    const PartScope part(clock_, StepPart::kPreprocessing);
    session_.processors->preprocessor.apply(batch);
  }

  policy::TrainOutput forward(dataset::Batch& batch, bool updates) {
    const PartScope part(clock_, StepPart::kForward);
    session_.policy->module().train();
    const AutocastScope autocast(session_.device, autocast_);
    return session_.model->compute_loss(batch, /*synchronise=*/updates);
  }

  void backward(const at::Tensor& loss) {
    const PartScope part(clock_, StepPart::kBackward);
    const at::Tensor share = accumulation_ > 1 ? loss / static_cast<double>(accumulation_) : loss;
    session_.model->backward(session_.scaler ? session_.scaler->scale_loss(share) : share);
  }

  /// The optimizer's update. Returns the gradient's norm before clipping.
  at::Tensor update() {
    const PartScope part(clock_, StepPart::kOptimizer);
    optim::LossScaler* const scaler = session_.scaler.get();
    if (scaler != nullptr) {
      scaler->unscale(session_.model->parameters());
      // Ranks of a sharded model see their own rows of the gradients only.
      if (session_.world->mesh().is_sharded())
        session_.world->all()
            .all_reduce(scaler->found_overflow(), distributed::Reduction::kMax)
            .wait();
    }
    at::Tensor grad_norm = session_.model->clip_grad_norm(clip_norm_);
    if (scaler == nullptr || !scaler->skips_update()) {
      session_.optimizer->step();
      if (session_.ema) session_.ema->update();
    }
    if (scaler != nullptr) scaler->update();
    session_.optimizer->zero_grad();
    return grad_norm;
  }

  void write_log_line() {
    if (session_.device.is_cuda()) tracker_.memory.set_average(peak_gibibytes(session_.device));
    const ResidentMemory memory = resident_memory();
    tracker_.process_memory.set_average(static_cast<double>(memory.now));
    tracker_.process_memory_peak.set_average(static_cast<double>(memory.peak));
    tracker_.set_times(clock_.take());
    tracker_.combine(session_.world->all());
    if (session_.scaler) tracker_.scale.set_average(session_.scaler->scale());
    if (session_.world->is_main()) report();
    waits_.clear();
    tracker_.reset();
  }

  void report() {
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
    records_->training_line(metrics);
    last_loss_ = loss;
  }

  /// What the progress line says behind steps and time: the loss, and the pace of the last steps.
  std::string progress_note() {
    // A GPU's losses are read with the log lines only.
    if (!session_.device.is_cuda() && !tracker_.loss.empty()) last_loss_ = tracker_.loss.average();
    const double samples = static_cast<double>(config_.batch_size * session_.world->size());
    std::string note;
    if (last_loss_) note = fmt::format("loss {:.3f} ", *last_loss_);
    return note + fmt::format("{:.0f} smp/s data {:.0f}%", samples * pace_.steps_per_second(),
                              100 * pace_.data_share());
  }

  /// Waits and bytes of this rank since the last line.
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
    const PartScope part(clock_, StepPart::kEvaluation);
    const auto start = Clock::now();
    draw_loader_seed();
    const double loss = evaluation_->loss();
    log::info("step {}: eval_loss={:.4f}", step, loss);
    if (records_ != nullptr) records_->held_out_loss(step, loss, seconds_since(start));
  }

  void save(std::int64_t step) {
    const PartScope part(clock_, StepPart::kCheckpoint);
    log::info("Checkpoint policy after step {}", step);
    const auto start = Clock::now();
    const auto gradients = accumulated_gradients(session_, step);
    if (saver_) {
      saver_->save(step, [&](checkpoint::HostCopies& copies) {
        return checkpoint_files(session_, step, gradients, copies);
      });
    }
    if (records_ != nullptr) records_->checkpoint_stall(step, seconds_since(start));
    saved_step_ = step;
  }

  /// Returns when the last checkpoint is complete, on every rank: a launcher ends all processes as
  /// soon as one of them has failed. The checkpoint, on rank 0.
  std::optional<fs::path> wait_for_checkpoint() {
    std::optional<fs::path> path;
    if (saver_) path = saver_->wait();
    session_.world->all().barrier();
    return path;
  }

  int finish() {
    // What is to be published must be on the disk first, also under --save_checkpoint=false.
    const bool publishes = config_.policy->push_to_hub;
    if (publishes && saved_step_ != config_.steps && session_.start.step < config_.steps)
      save(config_.steps);
    const std::optional<fs::path> saved = wait_for_checkpoint();
    log::info("End of training");
    if (records_ != nullptr) records_->finished(std::max(session_.start.step, config_.steps));
    if (publishes || config_.save_checkpoint_to_hub)
      session_.world->from_main([&] {
        publish(saved ? *saved : fs::path(config_.checkpoint_path.value_or("")));
        return std::string();
      });
    return 0;
  }

  /// On rank 0, however long it takes. What fails doesn't keep the rest from being published.
  void publish(const fs::path& checkpoint) {
    const InterruptGuard interrupts("\nStopping the upload. Once more to stop at once.\n");
    std::vector<std::string> failures;
    const auto attempt = [&failures](const auto& work) {
      try {
        work();
      } catch (const Interrupted&) {
        throw;
      } catch (const Error& error) {
        failures.emplace_back(error.what());
      }
    };
    if (uploads_) {
      log::info("Waiting until all checkpoints are published");
      attempt([this] { uploads_->finish(program_name()); });
    }
    if (config_.policy->push_to_hub)
      attempt([&] {
        log::info("Model pushed to {}",
                  publish_policy(config_, *session_.datasets.metadata, checkpoint, program_name()));
      });
    if (!failures.empty()) fail("{}", fmt::join(failures, "\n"));
  }

  int stop_early(std::int64_t step, int signal) {
    log::info("Stopped by {} after step {} of {}", signal == SIGINT ? "SIGINT" : "SIGTERM", step,
              config_.steps);
    const bool is_main = session_.world->is_main();
    if (!config_.save_checkpoint) {
      if (is_main) log::warning("No checkpoint was written: --save_checkpoint=false");
    } else if (saved_step_ != step && step > session_.start.step) {
      save(step);
    }
    const auto path = wait_for_checkpoint();
    if (records_ != nullptr) records_->stopped(step, signal);
    if (const std::size_t left = uploads_ ? uploads_->unpublished() : 0; left > 0)
      log::warning("{} checkpoint(s) are not published yet; a resume publishes them", left);
    if (path && config_.save_checkpoint)
      log::info(
          "Go on with: {} --resume=true --config_path='{}'{}", program_name(),
          (*path / config::kPretrainedModelFolder / config::kTrainConfigFile).string(),
          session_.world->size() > 1 ? " (under your launcher, with any number of processes)" : "");
    return 128 + signal;
  }

  Session& session_;
  const config::TrainConfig& config_;
  RunRecords* records_;
  std::unique_ptr<dataset::BatchSource> loader_;
  std::optional<Evaluation> evaluation_;
  MetricsTracker tracker_;
  StopAgreement agreement_;
  std::optional<CheckpointUploads> uploads_;            // rank 0 alone; before saver_
  std::unique_ptr<checkpoint::BackgroundSaver> saver_;  // rank 0, and all ranks of a sharded run
  std::optional<JsonLines> samples_file_;
  double clip_norm_;
  std::int64_t accumulation_;
  std::optional<at::ScalarType> autocast_;
  distributed::StepClock& clock_;
  std::optional<Profile> profile_;
  Waits waits_;  // since the last log line
  Clock::time_point last_line_ = Clock::now();
  std::uint64_t bytes_at_last_line_ = 0;
  Pace pace_;
  std::optional<double> last_loss_;
  std::int64_t saved_step_ = -1;
  bool saver_is_prepared_ = false;
  bool warned_about_loss_ = false;
};

}  // namespace

int run_training(Session& session) {
  std::error_code error;
  fs::create_directories(session.output_dir, error);
  if (error) fail("{}: cannot be created: {}", session.output_dir.string(), error.message());
  std::optional<RunRecords> records;
  const std::vector<std::string> panel = panel_lines(session);
  if (session.world->is_main()) records.emplace(session, panel);
  try {
    TrainingLoop loop(session, records ? &*records : nullptr);
    for (const std::string& line : panel) log::info("{}", line);
    return loop.run();
  } catch (const std::exception& error) {
    if (records) records->failed(message_of(error));
    throw;
  }
}

}  // namespace lerobot::train
