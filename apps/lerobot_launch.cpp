#include <string>
#include <vector>

#include "lerobot/distributed/launch/program.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return lerobot::distributed::launch_program(arguments);
}
