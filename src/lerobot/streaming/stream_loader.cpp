#include "lerobot/streaming/stream_loader.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <pthread.h>
#include <thread>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/base/random.h"
#include "lerobot/base/trace.h"
#include "lerobot/video/decoder_cache.h"

namespace lerobot::streaming {
namespace {

using Clock = std::chrono::steady_clock;

/// Who waits longer than this for a batch is told what for, and told again after as long.
constexpr std::chrono::seconds kPatience{15};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A sample on its way into a batch.
struct Row : StreamPlanner::Sample {
  std::int64_t next_task = 0;
  std::int64_t ended_tasks = 0;
};

/// A batch between its first planned row and its delivery. A task of it is one camera of one
/// sample; without cameras one sample.
struct BatchInWork {
  std::unique_ptr<dataset::BatchBuffer> buffer;
  std::vector<Row> rows;  // planned so far
  std::int64_t running_tasks = 0;
  std::int64_t ended_rows = 0;
  std::size_t first_open_row = 0;  // every task of the rows before it has begun
  // Of the failed row with the smallest number: the same one whatever the threads.
  std::exception_ptr error;
  std::size_t failed_row = 0;

  void fail_row(std::size_t row, std::exception_ptr reason) {
    if (error && failed_row <= row) return;
    error = std::move(reason);
    failed_row = row;
  }
};

struct Task {
  BatchInWork* batch = nullptr;
  std::size_t row = 0;
  std::int64_t number = 0;
};

/// A fetch under way.
struct Fetch {
  Lane* lane;
  std::int64_t episode;
  Clock::time_point began;
};

}  // namespace

class StreamLoader::State {
 public:
  State(StreamSource source, StreamLoaderOptions options);
  ~State();

  dataset::Batch next();
  void stop();
  bool starts_epoch() const { return options_.plan.step == 0 && batches_delivered_ == 0; }
  std::int64_t batches_per_epoch() const { return planner_.steps_per_epoch(); }
  dataset::SourceStatistics statistics() const;

 private:
  // ---- Set-up
  void start_threads();

  // ---- Planning; under the lock
  void plan();
  bool plan_row();
  bool begin_batch();
  void fail_next_row(std::exception_ptr error);
  bool is_full(const BatchInWork& batch) const;
  std::int64_t rows_in_work() const;

  // ---- Threads
  void run_decode_thread();
  void run_fetch_thread();
  std::optional<Task> next_task();
  StreamPlanner::Wanted next_fetch();
  void run_task(const Task& task, const Anchor& anchor, const FetchedEpisode& episode);
  void end_task(const Task& task, std::exception_ptr error);
  void fail_rows(Lane& lane, EpisodeCache::Entry& entry, std::exception_ptr error);

  // ---- Delivery
  bool is_settled(const BatchInWork& batch) const;
  void await_front(std::unique_lock<std::mutex>& lock);
  void warn_about_wait(double waited_s) const;
  void transform(std::size_t camera, std::int64_t row, dataset::BatchBuffer& buffer,
                 at::Generator generator) const;
  void transform_batch(BatchInWork& batch) const;
  at::Generator generator_of(const Lane& lane, const Anchor& anchor, std::size_t camera) const;

  const StreamSource source_;
  const StreamLoaderOptions options_;
  const std::int64_t batch_size_;  // of this process
  const std::int64_t tasks_per_row_;
  video::DecoderCache decoders_;
  std::int64_t batches_delivered_ = 0;  // touched by the consumer alone

  mutable std::mutex mutex_;
  std::condition_variable decode_work_;
  std::condition_variable fetch_work_;
  std::condition_variable ready_;
  StreamPlanner planner_;
  std::deque<std::unique_ptr<BatchInWork>> in_work_;  // in the order of delivery
  dataset::BatchBuffers buffers_;
  std::list<Fetch> fetches_;
  bool is_waiting_ = false;  // the consumer, for the first batch in work
  bool planning_failed_ = false;
  bool stopping_ = false;
  std::exception_ptr error_;
  dataset::SourceStatistics statistics_;
  std::vector<std::thread> threads_;
};

// ---- Set-up -------------------------------------------------------------------------------------

StreamLoader::State::State(StreamSource source, StreamLoaderOptions options)
    : source_(std::move(source)),
      options_(std::move(options)),
      batch_size_(options_.plan.batch_size()),
      tasks_per_row_(
          std::max<std::int64_t>(1, static_cast<std::int64_t>(source_.layout->cameras()))),
      decoders_(static_cast<std::size_t>(std::max<std::int64_t>(1, options_.decoder_cache_size)),
                video::DecoderCache::Idle::kKeepsNothing),
      planner_(source_, options_.plan),
      buffers_(*source_.layout, batch_size_, options_.pin_memory,
               static_cast<std::size_t>(options_.batches_ahead + 1)) {
  for (const auto& [option, value] : {std::pair{"batch size", batch_size_},
                                      {"decode threads", options_.decode_threads},
                                      {"fetch threads", options_.fetch_threads},
                                      {"batches ahead", options_.batches_ahead},
                                      {"samples ahead", options_.samples_ahead}})
    if (value < 1) fail("{}: must be at least 1, found {}", option, value);
}

StreamLoader::State::~State() {
  stop();
  for (std::thread& thread : threads_) thread.join();
}

void StreamLoader::State::start_threads() {
  for (std::int64_t i = 0; i < options_.decode_threads; ++i)
    threads_.emplace_back([this] { run_decode_thread(); });
  for (std::int64_t i = 0; i < options_.fetch_threads; ++i)
    threads_.emplace_back([this] { run_fetch_thread(); });
}

// ---- Planning -----------------------------------------------------------------------------------

/// Plans rows until enough are in work or a lane waits for room. Called whenever one of both may
/// have changed; which thread calls it has no influence on what is planned.
void StreamLoader::State::plan() {
  bool planned = false;
  try {
    while (!planning_failed_ && plan_row()) planned = true;
  } catch (...) {
    planning_failed_ = true;
    fail_next_row(std::current_exception());
  }
  if (planned) decode_work_.notify_all();
  if (planner_.take_news()) fetch_work_.notify_all();
}

/// An error in the place of the sample that could not be planned.
void StreamLoader::State::fail_next_row(std::exception_ptr error) {
  if (in_work_.empty() || is_full(*in_work_.back()))
    in_work_.push_back(std::make_unique<BatchInWork>());
  in_work_.back()->fail_row(in_work_.back()->rows.size(), std::move(error));
  ready_.notify_one();
}

bool StreamLoader::State::is_full(const BatchInWork& batch) const {
  return static_cast<std::int64_t>(batch.rows.size()) == batch_size_;
}

std::int64_t StreamLoader::State::rows_in_work() const {
  std::int64_t rows = 0;
  for (const auto& batch : in_work_) rows += static_cast<std::int64_t>(batch->rows.size());
  return rows;
}

bool StreamLoader::State::begin_batch() {
  if (static_cast<std::int64_t>(in_work_.size()) >= options_.batches_ahead) return false;
  auto batch = std::make_unique<BatchInWork>();
  batch->buffer = buffers_.take();
  batch->rows.reserve(static_cast<std::size_t>(batch_size_));
  in_work_.push_back(std::move(batch));
  return true;
}

/// Puts the next sample into the last batch. False when nothing can be planned now.
bool StreamLoader::State::plan_row() {
  const std::int64_t limit = options_.samples_ahead + (is_waiting_ ? batch_size_ : 0);
  if (rows_in_work() >= limit) return false;
  if ((in_work_.empty() || is_full(*in_work_.back())) && !begin_batch()) return false;
  const auto sample = planner_.next();
  if (!sample) return false;
  BatchInWork& batch = *in_work_.back();
  if (sample->entry->error) batch.fail_row(batch.rows.size(), sample->entry->error);
  batch.rows.push_back({*sample});
  return true;
}

// ---- Threads ------------------------------------------------------------------------------------

void StreamLoader::State::run_decode_thread() {
  ::pthread_setname_np(::pthread_self(), "decode");
  std::unique_lock lock(mutex_);
  while (true) {
    std::optional<Task> task;
    decode_work_.wait(lock, [&] { return stopping_ || (task = next_task()).has_value(); });
    if (stopping_) return;
    // A lease keeps the entry where it is.
    const Row& row = task->batch->rows[task->row];
    const Anchor anchor = row.anchor;
    auto episode = row.entry->fetched;
    const Lane& lane = *row.lane;
    lock.unlock();
    std::exception_ptr error;
    try {
      run_task(*task, anchor, *episode);
      const auto camera = static_cast<std::size_t>(task->number);
      if (options_.transform && !options_.transform_in_order &&
          camera < source_.layout->cameras() && source_.layout->camera_is_rgb(camera))
        transform(camera, static_cast<std::int64_t>(task->row), *task->batch->buffer,
                  generator_of(lane, anchor, camera));
    } catch (...) {
      error = std::current_exception();
    }
    episode.reset();  // before the lease ends: then its bytes count as free
    lock.lock();
    end_task(*task, std::move(error));
  }
}

/// The first task whose episode is there, of the earliest batch that has one. None is begun behind
/// a batch that failed: it will never be asked for.
std::optional<Task> StreamLoader::State::next_task() {
  for (const auto& batch : in_work_) {
    if (batch->error) return std::nullopt;
    for (std::size_t i = batch->first_open_row; i < batch->rows.size(); ++i) {
      Row& row = batch->rows[i];
      if (row.next_task == tasks_per_row_) {
        if (i == batch->first_open_row) ++batch->first_open_row;
        continue;
      }
      if (row.entry->state != EpisodeCache::State::kReady) continue;
      ++batch->running_tasks;
      return Task{batch.get(), i, row.next_task++};
    }
  }
  return std::nullopt;
}

void StreamLoader::State::run_task(const Task& task, const Anchor& anchor,
                                   const FetchedEpisode& episode) {
  const trace::Span span("decode");
  const dataset::BatchLayout& layout = *source_.layout;
  dataset::BatchBuffer& buffer = *task.batch->buffer;
  const auto row = static_cast<std::int64_t>(task.row);
  const auto camera = static_cast<std::size_t>(task.number);
  const auto& run = episode.run();
  const std::int64_t frame = run.from + anchor.frame;
  if (camera == 0) layout.fill_values(episode.table, run, frame, row, buffer);
  if (camera >= layout.cameras()) return;
  const auto video = layout.video_of_camera(camera);
  layout.fill_camera(camera, episode.table, run, frame, video ? episode.videos[*video] : nullptr,
                     row, buffer, decoders_);
}

void StreamLoader::State::end_task(const Task& task, std::exception_ptr error) {
  BatchInWork& batch = *task.batch;
  --batch.running_tasks;
  if (error) batch.fail_row(task.row, std::move(error));
  Row& row = batch.rows[task.row];
  if (++row.ended_tasks == tasks_per_row_) {
    ++batch.ended_rows;
    row.lane->cache.end_lease(*row.entry);
    row.entry = nullptr;
    plan();
  }
  if (is_settled(batch)) ready_.notify_one();
}

void StreamLoader::State::run_fetch_thread() {
  ::pthread_setname_np(::pthread_self(), "fetch");
  std::unique_lock lock(mutex_);
  while (true) {
    StreamPlanner::Wanted next;
    fetch_work_.wait(lock, [&] { return stopping_ || (next = next_fetch()).entry; });
    if (stopping_) return;
    const auto [lane, entry] = next;
    entry->state = EpisodeCache::State::kFetching;  // from now on the entry stays where it is
    const auto fetch = fetches_.insert(fetches_.end(), {lane, entry->episode, Clock::now()});
    lock.unlock();
    std::shared_ptr<const FetchedEpisode> episode;
    std::exception_ptr error;
    try {
      const trace::Span span("fetch episode");
      episode = source_.reader->fetch(fetch->episode);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    fetches_.erase(fetch);
    if (stopping_) return;
    if (episode)
      lane->cache.fetched(*entry, std::move(episode));
    else
      fail_rows(*lane, *entry, error);
    plan();
    decode_work_.notify_all();
    ready_.notify_one();
  }
}

/// The rows that wait for an episode which can't be had.
void StreamLoader::State::fail_rows(Lane& lane, EpisodeCache::Entry& entry,
                                    std::exception_ptr error) {
  for (const auto& batch : in_work_)
    for (std::size_t i = 0; i < batch->rows.size(); ++i)
      if (batch->rows[i].entry == &entry) batch->fail_row(i, error);
  lane.cache.failed(entry, std::move(error));
}

/// What the earliest planned sample waits for, else what comes next in some lane.
StreamPlanner::Wanted StreamLoader::State::next_fetch() {
  for (const auto& batch : in_work_)
    for (const Row& row : batch->rows)
      if (row.entry && row.entry->state == EpisodeCache::State::kQueued)
        return {row.lane, row.entry};
  return planner_.next_to_fetch();
}

// ---- Delivery -----------------------------------------------------------------------------------

bool StreamLoader::State::is_settled(const BatchInWork& batch) const {
  if (batch.running_tasks > 0) return false;
  return batch.error || batch.ended_rows == batch_size_;
}

dataset::Batch StreamLoader::State::next() {
  const auto began = Clock::now();
  std::unique_lock lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  if (stopping_) throw dataset::LoaderStopped();
  if (threads_.empty()) start_threads();
  is_waiting_ = true;
  plan();
  await_front(lock);
  is_waiting_ = false;
  if (in_work_.front()->error) {
    error_ = in_work_.front()->error;
    std::rethrow_exception(error_);
  }
  std::unique_ptr<BatchInWork> batch = std::move(in_work_.front());
  in_work_.pop_front();
  ++statistics_.batches;
  statistics_.samples += batch_size_;
  plan();
  if (options_.transform_in_order && options_.transform) {
    lock.unlock();
    transform_batch(*batch);
    lock.lock();
  }
  ++batches_delivered_;
  statistics_.waited_s += seconds_since(began);
  return buffers_.deliver(std::move(batch->buffer), batch_size_);
}

void StreamLoader::State::await_front(std::unique_lock<std::mutex>& lock) {
  const auto began = Clock::now();
  const auto is_over = [&] { return stopping_ || is_settled(*in_work_.front()); };
  while (!ready_.wait_for(lock, kPatience, is_over)) warn_about_wait(seconds_since(began));
  if (stopping_) throw dataset::LoaderStopped();
}

void StreamLoader::State::warn_about_wait(double waited_s) const {
  std::string reason = "decoding";
  const auto longest =
      std::min_element(fetches_.begin(), fetches_.end(),
                       [](const Fetch& a, const Fetch& b) { return a.began < b.began; });
  if (longest != fetches_.end())
    reason = fmt::format("{} episodes are being fetched, episode {} for {:.0f} s", fetches_.size(),
                         longest->episode, seconds_since(longest->began));
  log::warning("Waiting for data since {:.0f} s: {}. {:.1f} MB were read so far.", waited_s, reason,
               static_cast<double>(source_.payload->bytes_read()) / 1e6);
}

at::Generator StreamLoader::State::generator_of(const Lane& lane, const Anchor& anchor,
                                                std::size_t camera) const {
  const std::array<std::uint64_t, 6> entropy = {options_.transform_seed,
                                                static_cast<std::uint64_t>(lane.rank),
                                                static_cast<std::uint64_t>(lane.number),
                                                static_cast<std::uint64_t>(anchor.epoch),
                                                static_cast<std::uint64_t>(anchor.position),
                                                camera};
  return at::detail::createCPUGenerator(SeedSequence(entropy).generate_uint64());
}

void StreamLoader::State::transform(std::size_t camera, std::int64_t row,
                                    dataset::BatchBuffer& buffer, at::Generator generator) const {
  at::Tensor pixels = source_.layout->camera_row(camera, row, buffer);
  options_.transform(pixels, generator);
}

void StreamLoader::State::transform_batch(BatchInWork& batch) const {
  for (std::int64_t row = 0; row < batch_size_; ++row)
    for (std::size_t camera = 0; camera < source_.layout->cameras(); ++camera)
      if (source_.layout->camera_is_rgb(camera))
        transform(camera, row, *batch.buffer, at::detail::getDefaultCPUGenerator());
}

void StreamLoader::State::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  source_.payload->cancel();
  decode_work_.notify_all();
  fetch_work_.notify_all();
  ready_.notify_all();
}

dataset::SourceStatistics StreamLoader::State::statistics() const {
  const std::lock_guard lock(mutex_);
  dataset::SourceStatistics statistics = statistics_;
  statistics.bytes_read = source_.payload->bytes_read();
  statistics.reserved_bytes = planner_.reserved_bytes();
  statistics.resident_bytes = planner_.resident_bytes();
  return statistics;
}

StreamLoader::StreamLoader(StreamSource source, StreamLoaderOptions options)
    : state_(std::make_unique<State>(std::move(source), std::move(options))) {}
StreamLoader::~StreamLoader() = default;
dataset::Batch StreamLoader::next() { return state_->next(); }
void StreamLoader::stop() { state_->stop(); }
bool StreamLoader::starts_epoch() const { return state_->starts_epoch(); }
std::int64_t StreamLoader::batches_per_epoch() const { return state_->batches_per_epoch(); }
dataset::SourceStatistics StreamLoader::statistics() const { return state_->statistics(); }

}  // namespace lerobot::streaming
