// What a registry says, by name and labels.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/metrics.h"

namespace idetcd::test_support {

// "name{label="value",…}", or the name alone, with the value.
inline std::map<std::string, double> valuesOf(const metrics::Registry& registry) {
  std::map<std::string, double> values;
  registry.visit([&values](const metrics::Sample& sample) {
    std::string key = sample.family.name;
    for (size_t i = 0; i < sample.label_values.size(); ++i) {
      key += (i == 0 ? "{" : ",") + sample.family.label_names[i] + "=\"" + sample.label_values[i] + "\"";
    }
    if (!sample.label_values.empty()) key += "}";
    values[key] = sample.value;
  });
  return values;
}

// Of all series of one family; 0: there is none.
inline double sumOf(const metrics::Registry& registry, std::string_view family) {
  double sum = 0;
  registry.visit([&](const metrics::Sample& sample) {
    if (sample.family.name == family) sum += sample.value;
  });
  return sum;
}

}  // namespace idetcd::test_support
