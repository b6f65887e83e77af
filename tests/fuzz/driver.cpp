// Runs a fuzz target without libFuzzer: every file of some folders as it is, then mutations of
// them.
//   fuzz_NAME RUNS FOLDER...
// The mutations are the same in every run, so that a failure can be repeated. Under clang a target
// links with -fsanitize=fuzzer instead of this file.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "lerobot/base/files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

std::vector<Bytes> read_corpus(const std::vector<std::string>& folders) {
  std::vector<std::filesystem::path> paths;
  for (const std::string& folder : folders)
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const auto& path : paths) {
    const std::string text = lerobot::read_text_file(path);
    corpus.emplace_back(text.begin(), text.end());
  }
  return corpus;
}

/// One to four changes: a byte, a big number, a cut, or a piece of another file.
Bytes mutated(Bytes bytes, const std::vector<Bytes>& corpus, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  for (std::size_t changes = 1 + below(4); changes > 0 && !bytes.empty(); --changes) {
    const std::size_t at = below(bytes.size());
    const std::size_t left = bytes.size() - at;
    switch (below(5)) {
      case 0:
        bytes[at] = static_cast<std::uint8_t>(random());
        break;
      case 1:
        bytes[at] ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 2:
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), std::min<std::size_t>(left, 8),
                    below(2) == 0 ? std::uint8_t{0xff} : std::uint8_t{0});
        break;
      case 3:
        bytes.resize(at);
        break;
      default: {
        const Bytes& other = corpus[below(corpus.size())];
        const std::size_t from = below(other.size());
        const std::size_t count = std::min({left, other.size() - from, below(64) + 1});
        std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(from), count,
                    bytes.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s RUNS FOLDER...\n", argv[0]);
    return 2;
  }
  const long runs = std::strtol(argv[1], nullptr, 10);
  const std::vector<Bytes> corpus = read_corpus({argv + 2, argv + argc});
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: the folders hold no file\n", argv[0]);
    return 2;
  }
  for (const Bytes& bytes : corpus) LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  std::mt19937 random(1);
  for (long run = 0; run < runs; ++run) {
    const Bytes bytes = mutated(corpus[random() % corpus.size()], corpus, random);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%zu files and %ld mutations\n", corpus.size(), runs);
}
