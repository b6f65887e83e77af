#include <string>
#include <vector>

#include "lerobot/streaming/sidecar_program.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return lerobot::streaming::sidecar_program(arguments);
}
