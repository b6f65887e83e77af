#include "lerobot/hub/upload_progress.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "lerobot/hub/transfer_log.h"

namespace lerobot::hub {
namespace {

constexpr std::chrono::milliseconds kReportEvery{200};

class MeteredBody final : public BodySource {
 public:
  MeteredBody(std::unique_ptr<BodySource> body, UploadMeter& meter)
      : body_(std::move(body)), meter_(meter) {}

  std::uint64_t size() const override { return body_->size(); }

  void rewind() override {
    meter_.add_bytes(-sent_);
    sent_ = 0;
    body_->rewind();
  }

  std::size_t read(std::span<std::uint8_t> out) override {
    meter_.check();
    const std::size_t given = body_->read(out);
    meter_.add_bytes(static_cast<std::int64_t>(given));
    sent_ += static_cast<std::int64_t>(given);
    return given;
  }

 private:
  const std::unique_ptr<BodySource> body_;
  UploadMeter& meter_;
  std::int64_t sent_ = 0;
};

/// `work` on a thread of its own.
class Worker {
 public:
  explicit Worker(const std::function<void()>& work)
      : thread_([this, &work] {
          try {
            work();
          } catch (...) {
            failure_ = std::current_exception();
          }
          const std::lock_guard lock(mutex_);
          done_ = true;
          ended_.notify_all();
        }) {}

  /// False: it goes on.
  bool wait(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, time, [this] { return done_; });
  }

  std::exception_ptr join() {
    thread_.join();
    return failure_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace

void UploadMeter::run(const std::function<void()>& work) {
  std::exception_ptr failure;
  if (options_.progress) {
    Worker worker(work);
    while (!worker.wait(kReportEvery)) {
      if (stopped_) continue;
      try {
        report();
      } catch (...) {
        stop(std::current_exception());
      }
    }
    failure = worker.join();
  } else {
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  }
  rethrow_cause();
  if (failure) std::rethrow_exception(failure);
  if (options_.progress) report();
}

void UploadMeter::stop(std::exception_ptr cause) {
  const std::lock_guard lock(mutex_);
  if (!cause_) cause_ = std::move(cause);
  stopped_ = true;
}

void UploadMeter::rethrow_cause() const {
  const std::lock_guard lock(mutex_);
  if (cause_) std::rethrow_exception(cause_);
}

void UploadMeter::expect(std::uint64_t files, std::uint64_t bytes) {
  all_files_ = files_ + files;
  all_bytes_ = static_cast<std::uint64_t>(std::max<std::int64_t>(bytes_, 0)) + bytes;
}

void UploadMeter::check() const {
  if (stopped_) rethrow_cause();
}

std::unique_ptr<BodySource> UploadMeter::metered(std::unique_ptr<BodySource> body) {
  return std::make_unique<MeteredBody>(std::move(body), *this);
}

void UploadMeter::report() const {
  const std::uint64_t all_bytes = all_bytes_;
  const auto sent = static_cast<std::uint64_t>(std::max<std::int64_t>(bytes_, 0));
  // What a protocol adds to the content doesn't show.
  options_.progress({.files = files_,
                     .all_files = all_files_,
                     .bytes = std::min(sent, all_bytes),
                     .all_bytes = all_bytes});
}

std::function<void(const TransferProgress&)> log_upload(const std::string& name) {
  return [log = std::make_shared<TransferLog>("Uploading", name)](const TransferProgress& at) {
    log->report(at);
  };
}

}  // namespace lerobot::hub
