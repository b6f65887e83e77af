#include "lerobot/base/utf8.h"

#include "lerobot/base/json.h"

namespace lerobot {

// nlohmann's writer is the judge: what we call UTF-8 travels as JSON.

bool is_utf8(std::string_view text) {
  try {
    (void)Json(text).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

std::string to_utf8(std::string_view text) {
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace lerobot
