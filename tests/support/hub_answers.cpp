#include "tests/support/hub_answers.h"

#include <algorithm>

#include "lerobot/hub/url.h"

namespace lerobot::test_server {
namespace {

std::string form_decoded(std::string text) {
  std::replace(text.begin(), text.end(), '+', ' ');
  return hub::percent_decode(text);
}

}  // namespace

Answer json_answer(const Json& value, int status) {
  return {status, {{"Content-Type", "application/json; charset=utf-8"}}, value.dump()};
}

void refuse(int status, const std::string& code, const std::string& message, Headers headers) {
  Answer answer = json_answer({{"error", message}}, status);
  if (!code.empty()) answer.headers.emplace_back("X-Error-Code", code);
  answer.headers.emplace_back("X-Error-Message", message);
  for (auto& header : headers) answer.headers.push_back(std::move(header));
  throw Refusal(std::move(answer));
}

Json json_body(const Request& request) {
  Json body = Json::parse(request.content.text(), nullptr, false);
  if (!body.is_object()) refuse(400, "", "Invalid JSON");
  return body;
}

std::vector<std::pair<std::string, std::string>> form_fields(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> fields;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('&', at), text.size());
    const std::string field = text.substr(at, end - at);
    const std::size_t equals = std::min(field.find('='), field.size());
    fields.emplace_back(form_decoded(field.substr(0, equals)),
                        equals < field.size() ? form_decoded(field.substr(equals + 1)) : "");
    at = end + 1;
  }
  return fields;
}

std::string form_field(const std::string& text, const std::string& name) {
  for (auto& [key, value] : form_fields(text))
    if (key == name) return value;
  return {};
}

}  // namespace lerobot::test_server
