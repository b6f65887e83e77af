#include "tests/support/hub_faults.h"

#include <algorithm>

#include <fmt/format.h>

#include "lerobot/base/error.h"

namespace lerobot::test_server {
namespace {

constexpr std::string_view kControl = "/_test/";

Behaviour behaviour_of(const Json& fault) {
  Behaviour behaviour;
  for (const auto& [name, value] : fault.items()) {
    if (name == "status")
      behaviour.status = value.get<int>();
    else if (name == "body")
      behaviour.body = value.get<std::string>();
    else if (name == "headers")
      for (const auto& [header, text] : value.items())
        behaviour.headers.emplace_back(header, text.get<std::string>());
    else if (name == "without")
      behaviour.without = value.get<std::vector<std::string>>();
    else if (name == "delay_ms")
      behaviour.latency = std::chrono::milliseconds(value.get<int>());
    else if (name == "bytes_per_second")
      behaviour.bytes_per_second = value.get<double>();
    else if (name == "cut_after")
      behaviour.cut_after = value.get<std::uint64_t>();
    else if (name == "cut_upload_after")
      behaviour.cut_upload_after = value.get<std::uint64_t>();
    else if (name == "reset")
      behaviour.reset = value.get<bool>();
    else if (name == "stall")
      behaviour.stall = value.get<bool>();
    else if (name == "lose_answer")
      behaviour.lose_answer = value.get<bool>();
    else if (name == "ignore_range")
      behaviour.ignore_range = value.get<bool>();
    else if (name != "server" && name != "method" && name != "path" && name != "skip" &&
             name != "count")
      fail("a fault has no \"{}\"", name);
  }
  return behaviour;
}

Behaviour text_answer(int status, std::string body) {
  Behaviour behaviour = Behaviour::answer(status, {{"Content-Type", "application/json"}});
  behaviour.body = std::move(body);
  return behaviour;
}

std::string request_list(const std::vector<Request>& requests) {
  Json list = Json::array();
  for (const Request& request : requests)
    if (!request.path.starts_with(kControl))
      list.push_back({{"server", request.server},
                      {"method", request.method},
                      {"path", request.path},
                      {"query", request.query},
                      {"headers", request.headers},
                      {"body", request.body}});
  // Bodies may be any bytes.
  return list.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::optional<Behaviour> HubFaults::operator()(const Request& request) {
  if (request.path.starts_with(kControl)) return control(request);
  const auto fault = std::find_if(faults_.begin(), faults_.end(), [&](Fault& candidate) {
    return candidate.count != 0 && applies(candidate, request) && candidate.skip-- <= 0;
  });
  if (fault == faults_.end()) return std::nullopt;
  if (fault->count > 0) --fault->count;
  return fault->behaviour;
}

HubFaults::Fault HubFaults::read(const Json& fault) {
  return {fault.value("server", ""), fault.value("method", ""), std::regex(fault.value("path", "")),
          fault.value("skip", 0),    fault.value("count", 1),   behaviour_of(fault)};
}

bool HubFaults::applies(const Fault& fault, const Request& request) {
  return (fault.server.empty() || fault.server == request.server) &&
         (fault.method.empty() || fault.method == request.method) &&
         std::regex_search(request.path, fault.path);
}

Behaviour HubFaults::control(const Request& request) {
  const std::string route = request.method + " " + request.path;
  try {
    if (route == "GET /_test/requests") return text_answer(200, request_list(server_.requests()));
    if (route == "DELETE /_test/requests") {
      server_.forget_requests();
      return text_answer(200, "{}");
    }
    if (route == "POST /_test/faults") {
      std::vector<Fault> faults;
      for (const Json& fault : Json::parse(request.body)) faults.push_back(read(fault));
      faults_ = std::move(faults);
      return text_answer(200, "{}");
    }
  } catch (const std::exception& error) {
    return text_answer(400, error.what());
  }
  return text_answer(404, "no such control");
}

}  // namespace lerobot::test_server
