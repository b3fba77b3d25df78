#include "base/json.h"

namespace idetcd {

nlohmann::json parseJson(std::string_view text) { return nlohmann::json::parse(text, nullptr, false); }

std::string toText(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string toText(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace idetcd
