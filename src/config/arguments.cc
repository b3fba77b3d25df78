#include "config/arguments.h"

namespace idetcd::config {

Result<std::vector<dns::Name>> parseZones(const DirectiveCursor& cursor, const std::vector<std::string>& arguments) {
  std::vector<dns::Name> zones;
  for (const std::string& argument : arguments) {
    const auto keys = parseServerKey(argument, 53);
    if (!keys) return cursor.error(keys.error().message);
    for (const ServerKey& key : *keys) zones.push_back(key.zone);
  }
  return zones;
}

std::vector<dns::Name> zonesOf(const std::vector<ServerKey>& keys) {
  std::vector<dns::Name> zones;
  zones.reserve(keys.size());
  for (const ServerKey& key : keys) zones.push_back(key.zone);
  return zones;
}

}  // namespace idetcd::config
