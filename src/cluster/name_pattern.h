// The pattern that names a cluster's slots: a Go text/template over one value, .ID (1, 2, 3, …), for example
// `worker{{.ID}}.tf.local.` or `node{{printf "%03d" .ID}}.tf.local.`. Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "dns/name.h"

namespace idetcd::cluster {

class NamePattern {
 public:
  // Checks, for every ID from 1 to `limit`: the name parses, is a host name of at most 255 octets with labels of at
  // most 63, and is not the name of another ID. The pattern must use .ID. A missing trailing dot is added; upper case
  // is folded. Beyond ID 100,000 only the numbers around powers of 2, 8, 10 and 16 are checked, and the limit, so that
  // any limit takes bounded time. pattern_template.h says how much of Go's language there is.
  static Result<NamePattern> parse(std::string_view text, int64_t limit);

  // The name of slot `id`, which is its key in etcd: canonical, lower case, with the trailing dot. REQUIRES: 1 <= id <=
  // limit.
  std::string render(int64_t id) const;

  // The labels behind the last one that depends on .ID: the zone that the nodes are authoritative for. The root if
  // none.
  const dns::Name& zone() const;
  // What every rendered name begins with (may be empty): where the slots lie in etcd.
  std::string_view literalPrefix() const;
  // As configured.
  const std::string& text() const;

 private:
  struct Template;
  std::shared_ptr<const Template> template_;
};

}  // namespace idetcd::cluster
