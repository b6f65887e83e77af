#include "lerobot/distributed/launch/program.h"

#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <unistd.h>

#include "lerobot/base/error.h"
#include "lerobot/distributed/launch/console.h"
#include "lerobot/distributed/launch/environment.h"
#include "lerobot/distributed/launch/launcher.h"
#include "lerobot/distributed/launch/machine.h"
#include "lerobot/distributed/launch/options.h"
#include "lerobot/distributed/launch/plan.h"

namespace lerobot::distributed {
namespace {

/// Started without standard streams, the first pipes would take their numbers.
void open_standard_streams() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);
  if (fd >= 0) ::close(fd);
}

int run(std::span<const std::string> arguments) {
  const Environment environment = current_environment();
  const LaunchOptions options = parse_launch_options(arguments, environment);
  if (options.help) {
    std::fputs(kLaunchHelp, stdout);
    return 0;
  }
  const Machine machine = this_machine(environment);
  LaunchPlan plan = make_launch_plan(options, environment, machine);
  Console console(STDOUT_FILENO, STDERR_FILENO);
  return Launcher(std::move(plan), machine.host_name, console).run();
}

}  // namespace

int launch_program(std::span<const std::string> arguments) {
  open_standard_streams();
  try {
    return run(arguments);
  } catch (const UsageError& error) {
    fmt::print(stderr, "lerobot-launch: wrong command line (see --help)\n{}\n", error.what());
    return error.exit_code();
  } catch (const Error& error) {
    fmt::print(stderr, "lerobot-launch: {}\n", error.what());
    return error.exit_code();
  } catch (const InternalError& error) {
    fmt::print(stderr, "lerobot-launch: internal error (please report it): {}\n", error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "lerobot-launch: {}\n", error.what());
  }
  return 1;
}

}  // namespace lerobot::distributed
