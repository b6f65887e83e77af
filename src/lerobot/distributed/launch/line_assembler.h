// Lines out of the bytes that a program writes, progress bars included.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace lerobot::distributed {

/// A progress bar goes back to the beginning of its line with a carriage return and writes over
/// what stood there. So the text behind the last return of a line is the line, and until its end
/// it is only the present state of the bar.
class LineAssembler {
 public:
  /// A line that gets longer is cut into several.
  static constexpr std::size_t kLongestLine = 1 << 20;

  using Take = std::function<void(std::string_view)>;

  /// Calls `line` for every line that has become complete (without its end), then, if the
  /// unfinished line is a progress bar, `bar` with its present text.
  void feed(std::string_view bytes, const Take& line, const Take& bar);

  /// The stream has ended: what is left is the last line.
  void finish(const Take& line);

 private:
  void append(std::string_view text, const Take& line);

  std::string unfinished_;
  bool is_bar_ = false;          // a return has been seen in this line
  bool return_pending_ = false;  // the last byte was a return, which "\n" may follow
};

}  // namespace lerobot::distributed
