#include "lerobot/distributed/launch/line_assembler.h"

namespace lerobot::distributed {

void LineAssembler::feed(std::string_view bytes, const Take& line, const Take& bar) {
  while (!bytes.empty()) {
    if (return_pending_ && bytes.front() != '\n' && bytes.front() != '\r') {
      unfinished_.clear();
      return_pending_ = false;
    }
    const std::size_t stop = bytes.find_first_of("\r\n");
    append(bytes.substr(0, stop), line);
    if (stop == std::string_view::npos) break;
    if (bytes[stop] == '\n') {
      line(unfinished_);
      unfinished_.clear();
      is_bar_ = return_pending_ = false;
    } else {
      is_bar_ = return_pending_ = true;
    }
    bytes.remove_prefix(stop + 1);
  }
  if (is_bar_) bar(unfinished_);
}

void LineAssembler::finish(const Take& line) {
  if (!unfinished_.empty()) line(unfinished_);
  unfinished_.clear();
  is_bar_ = return_pending_ = false;
}

void LineAssembler::append(std::string_view text, const Take& line) {
  while (unfinished_.size() + text.size() > kLongestLine) {
    const std::size_t fits = kLongestLine - unfinished_.size();
    unfinished_.append(text.substr(0, fits));
    line(unfinished_);
    unfinished_.clear();
    text.remove_prefix(fits);
  }
  unfinished_.append(text);
}

}  // namespace lerobot::distributed
