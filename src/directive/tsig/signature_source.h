// Gives a server block's keys to its other directives.
#pragma once

#include "resolve/signed_query.h"

namespace idetcd::directive {

class SignatureSource {
 public:
  virtual ~SignatureSource() = default;
  // Null until the directive `tsig` is prepared, which it is before those that use its keys.
  virtual std::shared_ptr<const resolve::SignatureRules> signatures() const = 0;
};

}  // namespace idetcd::directive
