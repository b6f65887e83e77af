#include "lerobot/train/data_only.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/base/interrupt.h"
#include "lerobot/base/log.h"
#include "lerobot/base/process.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/train/datasets.h"
#include "lerobot/train/progress_bar.h"
#include "lerobot/train/run_log.h"
#include "lerobot/train/session.h"
#include "lerobot/train/waits.h"

namespace lerobot::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double mebibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

int run_data_only(config::TrainConfig config, DataShare share, bool output_dir_given) {
  const auto place = open_place(config);
  const auto metadata = open_metadata(config, *place);
  complete_policy_config(config, *metadata);
  const Datasets datasets = open_datasets(config, *place, metadata, share.world);
  const auto loader = make_train_loader(config, datasets, share, {}, /*pin_memory=*/false);
  if (datasets.stream)
    for (const std::string& line : stream_panel(config, *datasets.stream, share))
      log::info("{}", line);

  std::optional<JsonLines> metrics_file;
  if (output_dir_given && share.rank == 0) {
    fs::create_directories(*config.output_dir);
    metrics_file.emplace(fs::path(*config.output_dir) / "metrics.jsonl", 0);
  }
  log::info("Reading {} batches of {} samples ({} frames, {} episodes, {} decode threads)",
            config.steps, config.batch_size, datasets.frames(), datasets.episodes(),
            config.num_workers);

  const InterruptGuard interrupts("\nStopping after this batch. Once more to stop at once.\n");
  const OnInterrupt stop_loader([&loader] { loader->stop(); });
  ProgressBar progress("Reading", 0, config.steps);
  Waits waits;
  double first_batch_s = 0;
  std::int64_t samples = 0, samples_after_first = 0, step = 0;
  auto after_first = Clock::now();
  const double cpu_at_start = process_cpu_seconds();
  const auto report = [&] {
    const double seconds = std::chrono::duration<double>(Clock::now() - after_first).count();
    const auto memory = process_memory();
    const double rate =
        samples_after_first > 0 ? static_cast<double>(samples_after_first) / seconds : 0;
    log::info(
        "step:{} smp/s:{:.1f} first batch after {:.2f} s from start, wait p50:{:.4f} p95:{:.4f} "
        "p99:{:.4f} s, cpu {:.2f} s, pss {:.0f} MiB (peak rss {:.0f} MiB)",
        step, rate, first_batch_s, waits.percentile(0.5), waits.percentile(0.95),
        waits.percentile(0.99), process_cpu_seconds() - cpu_at_start,
        mebibytes(memory.proportional), mebibytes(memory.peak_resident));
    const dataset::SourceStatistics source = loader->statistics();
    if (datasets.stream)
      log::info("read {:.1f} MiB, reserved_bytes:{:.1f} MiB resident_bytes:{:.1f} MiB",
                mebibytes(source.bytes_read), mebibytes(source.reserved_bytes),
                mebibytes(source.resident_bytes));
    if (metrics_file)
      metrics_file->append({{"step", step},
                            {"samples", samples},
                            {"samples_per_s", rate},
                            {"first_batch_s", first_batch_s},
                            {"wait_p50_s", waits.percentile(0.5)},
                            {"wait_p95_s", waits.percentile(0.95)},
                            {"wait_p99_s", waits.percentile(0.99)},
                            {"bytes_read", source.bytes_read},
                            {"reserved_bytes", source.reserved_bytes},
                            {"resident_bytes", source.resident_bytes},
                            {"cpu_s", process_cpu_seconds() - cpu_at_start},
                            {"pss_bytes", memory.proportional},
                            {"peak_rss_bytes", memory.peak_resident}});
  };

  while (step < config.steps && InterruptGuard::received() == 0) {
    const auto asked = Clock::now();
    std::optional<dataset::Batch> batch;
    try {
      batch = loader->next();
    } catch (const dataset::LoaderStopped&) {
      break;
    }
    waits.add(std::chrono::duration<double>(Clock::now() - asked).count());
    ++step;
    samples += batch->size();
    if (step == 1) {
      first_batch_s = process_age_seconds();
      after_first = Clock::now();
      waits.clear();
    } else {
      samples_after_first += batch->size();
    }
    progress.update(step, "");
    if (config.log_freq > 0 && step % config.log_freq == 0 && step < config.steps) report();
  }
  report();
  const int signal = InterruptGuard::received();
  return signal != 0 && step < config.steps ? 128 + signal : 0;
}

}  // namespace lerobot::train
