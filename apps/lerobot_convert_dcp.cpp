#include <string>
#include <vector>

#include "lerobot/checkpoint/convert_program.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return lerobot::checkpoint::convert_program(arguments);
}
