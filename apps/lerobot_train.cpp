#include <string>
#include <vector>

#include "lerobot/train/train_program.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return lerobot::train::train_program(arguments);
}
