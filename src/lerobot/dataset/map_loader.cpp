#include "lerobot/dataset/map_loader.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>

#include "lerobot/base/error.h"
#include "lerobot/base/random.h"
#include "lerobot/base/trace.h"
#include "lerobot/video/decoder_cache.h"

namespace lerobot::dataset {
namespace {

/// A batch between its beginning and its delivery. A task of it is one camera of one sample;
/// without cameras one sample.
struct BatchInWork {
  std::unique_ptr<BatchBuffer> buffer;
  std::int64_t epoch = 0;
  std::vector<std::int64_t> epoch_positions;  // in the epoch's order
  std::vector<std::int64_t> rows;             // of the dataset
  std::int64_t tasks = 0;
  std::int64_t next_task = 0;      // the first one that nobody has begun
  std::int64_t running_tasks = 0;  // begun and not ended
  // The failed task with the smallest number: the same one whatever the threads.
  std::exception_ptr error;
  std::int64_t failed_task = 0;

  bool is_settled() const { return running_tasks == 0 && (next_task == tasks || error); }
};

}  // namespace

class MapLoader::State {
 public:
  State(std::shared_ptr<const MapDataset> dataset, EpochOrder order, std::int64_t samples,
        MapLoaderOptions options);
  ~State();

  Batch next();
  void stop();
  std::int64_t batches_per_epoch() const { return sharder_.batches_per_epoch(); }
  bool starts_epoch() const { return batches_of_epoch_delivered_ == 0; }
  SourceStatistics statistics() const;

 private:
  std::int64_t tasks_per_sample() const {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(dataset_->layout().cameras()));
  }
  BatchSharder sharder_from(std::int64_t first_sample) const {
    return BatchSharder(samples_, options_.batch_size, options_.world, options_.rank, first_sample,
                        options_.even_batches);
  }
  void start_threads();
  void run_thread();
  void top_up();
  /// Every batch of epoch begin_epoch_ has been begun.
  bool epoch_is_begun() const { return begin_batch_ == begin_sharder_.batches_per_epoch(); }
  void begin_batch();
  BatchInWork* batch_with_work();
  void run_task(BatchInWork& batch, std::int64_t task);
  void transform(std::size_t camera, const BatchInWork& batch, std::int64_t row);

  const std::shared_ptr<const MapDataset> dataset_;
  const EpochOrder order_;
  const std::int64_t samples_;
  const MapLoaderOptions options_;
  const BatchSharder sharder_;  // of a whole epoch
  std::int64_t batches_ahead_ = 1;
  video::DecoderCache decoders_;

  // Touched by the thread that calls next() alone.
  std::int64_t begin_epoch_;                 // of the next batch to begin
  std::int64_t begin_batch_ = 0;             // counted from where begin_sharder_ begins
  BatchSharder begin_sharder_;               // of epoch begin_epoch_
  std::vector<std::int64_t> current_order_;  // of epoch begin_epoch_; empty: not made yet
  std::int64_t batches_of_epoch_delivered_ = 0;
  std::int64_t batches_of_epoch_left_;
  std::optional<BatchBuffers> buffers_;

  mutable std::mutex mutex_;
  std::condition_variable work_;                      // threads wait for tasks
  std::condition_variable ready_;                     // next() waits for the first batch
  std::deque<std::unique_ptr<BatchInWork>> in_work_;  // in the order of delivery
  bool stopping_ = false;
  std::exception_ptr error_;
  SourceStatistics statistics_;
  std::vector<std::thread> threads_;
};

MapLoader::State::State(std::shared_ptr<const MapDataset> dataset, EpochOrder order,
                        std::int64_t samples, MapLoaderOptions options)
    : dataset_(std::move(dataset)),
      order_(std::move(order)),
      samples_(samples),
      options_(std::move(options)),
      sharder_(sharder_from(0)),
      decoders_(static_cast<std::size_t>(std::max<std::int64_t>(1, options_.decoder_cache_size))),
      begin_epoch_(options_.start.epoch + (options_.start.sample == samples ? 1 : 0)),
      begin_sharder_(sharder_from(options_.start.sample == samples ? 0 : options_.start.sample)),
      // A run that goes on within an epoch does not start it.
      batches_of_epoch_delivered_(options_.start.sample == samples ? 0 : options_.start.sample),
      batches_of_epoch_left_(begin_sharder_.batches_per_epoch()) {
  if (options_.num_workers < 0)
    fail("num_workers: must be at least 0, found {}", options_.num_workers);
  if (begin_epoch_ < 0) fail("the loader cannot begin in epoch {}", begin_epoch_);
  // Every thread has a task as long as this many batches are in work.
  const std::int64_t tasks_per_batch = options_.batch_size * tasks_per_sample();
  const std::int64_t for_all_threads =
      (options_.num_workers + tasks_per_batch - 1) / tasks_per_batch;
  if (options_.num_workers > 0)
    batches_ahead_ = std::max({std::int64_t{1}, options_.prefetch_factor, for_all_threads});
  // With one process a small dataset never fills a batch.
  const bool may_be_short = options_.world == 1 && !options_.even_batches;
  const std::int64_t rows =
      may_be_short ? std::min(options_.batch_size, samples_) : options_.batch_size;
  buffers_.emplace(dataset_->layout(), rows, options_.pin_memory,
                   static_cast<std::size_t>(batches_ahead_ + 1));
}

MapLoader::State::~State() {
  stop();
  for (std::thread& thread : threads_) thread.join();
}

void MapLoader::State::start_threads() {
  for (std::int64_t i = 0; i < options_.num_workers; ++i)
    threads_.emplace_back([this] { run_thread(); });
}

void MapLoader::State::run_thread() {
  ::pthread_setname_np(::pthread_self(), "decode");
  std::unique_lock lock(mutex_);
  while (true) {
    BatchInWork* batch = nullptr;
    work_.wait(lock, [&] { return stopping_ || (batch = batch_with_work()) != nullptr; });
    if (stopping_) return;
    const std::int64_t task = batch->next_task++;
    ++batch->running_tasks;
    lock.unlock();
    std::exception_ptr error;
    try {
      run_task(*batch, task);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    --batch->running_tasks;
    if (error && (!batch->error || task < batch->failed_task)) {
      batch->error = error;
      batch->failed_task = task;
    }
    if (batch->is_settled()) ready_.notify_one();
  }
}

/// The first batch that has a task to begin. None is begun behind a batch that failed: it will
/// never be asked for.
BatchInWork* MapLoader::State::batch_with_work() {
  for (const auto& batch : in_work_) {
    if (batch->error) return nullptr;
    if (batch->next_task < batch->tasks) return batch.get();
  }
  return nullptr;
}

void MapLoader::State::run_task(BatchInWork& batch, std::int64_t task) {
  const trace::Span span("decode");
  const std::int64_t row = task / tasks_per_sample();
  const auto camera = static_cast<std::size_t>(task % tasks_per_sample());
  const std::int64_t position = batch.rows[static_cast<std::size_t>(row)];
  if (camera == 0) dataset_->fill_values(position, row, *batch.buffer);
  if (camera >= dataset_->layout().cameras()) return;
  dataset_->fill_camera(camera, position, row, *batch.buffer, decoders_);
  if (options_.transform && dataset_->layout().camera_is_rgb(camera)) transform(camera, batch, row);
}

void MapLoader::State::transform(std::size_t camera, const BatchInWork& batch, std::int64_t row) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  if (options_.num_workers > 0) {
    const std::array<std::uint64_t, 4> entropy = {
        options_.transform_seed, static_cast<std::uint64_t>(batch.epoch),
        static_cast<std::uint64_t>(batch.epoch_positions[static_cast<std::size_t>(row)]), camera};
    generator = at::detail::createCPUGenerator(SeedSequence(entropy).generate_uint64());
  }
  at::Tensor pixels = dataset_->layout().camera_row(camera, row, *batch.buffer);
  options_.transform(pixels, generator);
}

void MapLoader::State::begin_batch() {
  if (epoch_is_begun()) {
    ++begin_epoch_;
    begin_batch_ = 0;
    begin_sharder_ = sharder_;
    current_order_.clear();
  }
  if (current_order_.empty()) {
    current_order_ = order_(static_cast<std::uint64_t>(begin_epoch_));
    check_internal(static_cast<std::int64_t>(current_order_.size()) == samples_,
                   "an epoch's order has another length than the loader was told");
  }
  auto batch = std::make_unique<BatchInWork>();
  batch->epoch = begin_epoch_;
  batch->epoch_positions = begin_sharder_.positions(begin_batch_++);
  for (std::int64_t position : batch->epoch_positions)
    batch->rows.push_back(current_order_[static_cast<std::size_t>(position)]);
  batch->tasks = static_cast<std::int64_t>(batch->rows.size()) * tasks_per_sample();
  batch->buffer = buffers_->take();
  std::lock_guard lock(mutex_);
  in_work_.push_back(std::move(batch));
}

/// Begins batches until `batches_ahead_` are in work. Only the consumer adds and removes batches,
/// so the length of the queue is its own.
void MapLoader::State::top_up() {
  bool added = false;
  while (static_cast<std::int64_t>(in_work_.size()) < batches_ahead_) {
    if (epoch_is_begun() && !options_.prefetch_across_epochs && !in_work_.empty()) break;
    begin_batch();
    added = true;
  }
  if (added) work_.notify_all();
}

Batch MapLoader::State::next() {
  const auto began = std::chrono::steady_clock::now();
  {
    std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    if (stopping_) throw LoaderStopped();
  }
  if (threads_.empty() && options_.num_workers > 0) start_threads();
  top_up();

  std::unique_ptr<BatchInWork> batch;
  if (options_.num_workers == 0) {
    BatchInWork& front = *in_work_.front();
    try {
      while (front.next_task < front.tasks) {
        {
          std::lock_guard lock(mutex_);
          if (stopping_) throw LoaderStopped();
        }
        run_task(front, front.next_task++);
      }
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!stopping_) error_ = std::current_exception();
      throw;
    }
  }
  {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return stopping_ || in_work_.front()->is_settled(); });
    if (stopping_) throw LoaderStopped();
    if (in_work_.front()->error) {
      error_ = in_work_.front()->error;
      std::rethrow_exception(error_);
    }
    batch = std::move(in_work_.front());
    in_work_.pop_front();
    ++statistics_.batches;
    statistics_.samples += static_cast<std::int64_t>(batch->rows.size());
  }
  ++batches_of_epoch_delivered_;
  if (--batches_of_epoch_left_ == 0) {
    batches_of_epoch_delivered_ = 0;
    batches_of_epoch_left_ = sharder_.batches_per_epoch();
  }
  const auto rows = static_cast<std::int64_t>(batch->rows.size());
  Batch result = buffers_->deliver(std::move(batch->buffer), rows);
  const bool epoch_ends_here = in_work_.empty() && epoch_is_begun();
  if (options_.num_workers > 0 && (options_.prefetch_across_epochs || !epoch_ends_here)) top_up();

  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - began;
  std::lock_guard lock(mutex_);
  statistics_.waited_s += waited.count();
  return result;
}

void MapLoader::State::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  ready_.notify_all();
}

SourceStatistics MapLoader::State::statistics() const {
  std::lock_guard lock(mutex_);
  return statistics_;
}

MapLoader::MapLoader(std::shared_ptr<const MapDataset> dataset, EpochOrder order,
                     std::int64_t samples, MapLoaderOptions options)
    : state_(std::make_unique<State>(std::move(dataset), std::move(order), samples,
                                     std::move(options))) {}
MapLoader::~MapLoader() = default;
Batch MapLoader::next() { return state_->next(); }
void MapLoader::stop() { state_->stop(); }
std::int64_t MapLoader::batches_per_epoch() const { return state_->batches_per_epoch(); }
bool MapLoader::starts_epoch() const { return state_->starts_epoch(); }
SourceStatistics MapLoader::statistics() const { return state_->statistics(); }

}  // namespace lerobot::dataset
