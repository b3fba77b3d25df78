// A directive whose zones others may have copies of.
#pragma once

#include "directive/transfer/transfer_settings.h"
#include "resolve/directive.h"
#include "zones/zone_copy.h"

namespace idetcd::directive {

class PublishedZonesSource {
 public:
  virtual ~PublishedZonesSource() = default;
  // Once the directive is prepared.
  virtual std::shared_ptr<const zones::PublishedZones> publishedZones() const = 0;
};

// Whether others may have copies of zones of the block.
inline bool areTransferred(const resolve::Block& block) {
  return block.settings<std::vector<TransferSettings>>() != nullptr;
}

}  // namespace idetcd::directive
