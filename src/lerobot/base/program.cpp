#include "lerobot/base/program.h"

#include <cstdio>
#include <exception>

#include "lerobot/base/error.h"
#include "lerobot/base/interrupt.h"
#include "lerobot/base/log.h"

namespace lerobot {

int run_program(const char* name, const std::function<int()>& run, const char* interrupted_note) {
  try {
    return run();
  } catch (const Interrupted& interrupted) {
    log::error("{}{}", interrupted.what(), interrupted_note);
    return interrupted.exit_code();
  } catch (const UsageError& error) {
    fmt::print(stderr, "{}: wrong command line (see --help)\n{}\n", name, error.what());
    return error.exit_code();
  } catch (const Error& error) {
    std::fflush(stdout);  // what was written before comes before
    log::error("{}", error.what());
    return error.exit_code();
  } catch (const InternalError& error) {
    log::error("internal error (please report it): {}", error.what());
  } catch (const std::exception& error) {
    log::error("{}", error.what());
  }
  return 1;
}

}  // namespace lerobot
