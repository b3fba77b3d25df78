// A directive whose zones others may have copies of.
#pragma once

#include "zones/zone_copy.h"

namespace idetcd::directive {

class PublishedZonesSource {
 public:
  virtual ~PublishedZonesSource() = default;
  // Once the directive is prepared.
  virtual std::shared_ptr<const zones::PublishedZones> publishedZones() const = 0;
};

}  // namespace idetcd::directive
