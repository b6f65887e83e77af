#include "lerobot/base/interrupt.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <signal.h>
#include <unistd.h>
#include <utility>

namespace lerobot {
namespace {

// Signal handlers can reach nothing but globals.
std::atomic<int> received_signal{0};
std::atomic<const char*> notice_text{""};

void on_signal(int number) {
  int none = 0;
  if (received_signal.compare_exchange_strong(none, number)) {
    const char* text = notice_text;
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text));
    return;
  }
  ::_exit(128 + number);
}

void install(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard(const char* notice) {
  received_signal = 0;
  notice_text = notice;
  install(on_signal);
}

InterruptGuard::~InterruptGuard() { install(SIG_DFL); }

int InterruptGuard::received() { return received_signal; }

Interrupted::Interrupted(int signal)
    : Error(signal == SIGINT ? "stopped by SIGINT" : "stopped by SIGTERM"), signal_(signal) {}

void throw_when_interrupted() {
  if (const int signal = InterruptGuard::received()) throw Interrupted(signal);
}

OnInterrupt::OnInterrupt(std::function<void()> action)
    : thread_([action = std::move(action)](const std::stop_token& stop) {
        constexpr std::chrono::milliseconds kInterval{50};
        std::mutex mutex;
        std::condition_variable_any wake;
        std::unique_lock lock(mutex);
        while (!stop.stop_requested()) {
          if (InterruptGuard::received() != 0) return action();
          wake.wait_for(lock, stop, kInterval, [] { return false; });
        }
      }) {}

}  // namespace lerobot
