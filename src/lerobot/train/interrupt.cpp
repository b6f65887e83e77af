#include "lerobot/train/interrupt.h"

#include <atomic>
#include <cstring>
#include <signal.h>
#include <unistd.h>

namespace lerobot::train {
namespace {

// Signal handlers can reach nothing but globals.
std::atomic<int> received_signal{0};

void on_signal(int number) {
  int none = 0;
  if (received_signal.compare_exchange_strong(none, number)) {
    const char text[] =
        "\nStopping after this step, then saving a checkpoint. Once more to stop at once.\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, sizeof text - 1);
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

InterruptGuard::InterruptGuard() {
  received_signal = 0;
  install(on_signal);
}

InterruptGuard::~InterruptGuard() { install(SIG_DFL); }

int InterruptGuard::received() { return received_signal; }

}  // namespace lerobot::train
