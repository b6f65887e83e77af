// The answers of the test Hub, and refusals as the Hub words them.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "lerobot/base/json.h"
#include "tests/support/http_message.h"

namespace lerobot::test_server {

Answer json_answer(const Json& value, int status = 200);

/// Ends a request early with an answer.
class Refusal : public std::exception {
 public:
  explicit Refusal(Answer answer) : answer_(std::move(answer)) {}
  const Answer& answer() const { return answer_; }
  const char* what() const noexcept override { return "the test Hub refuses a request"; }

 private:
  Answer answer_;
};

/// `code` is X-Error-Code; empty: none. `headers` are added.
[[noreturn]] void refuse(int status, const std::string& code, const std::string& message,
                         Headers headers = {});
/// Throws a 400 when a request's body is no JSON object.
Json json_body(const Request& request);
/// The values of a query or a form: name -> values in order.
std::vector<std::pair<std::string, std::string>> form_fields(const std::string& text);
/// The first value of that name; empty: none.
std::string form_field(const std::string& text, const std::string& name);

}  // namespace lerobot::test_server
