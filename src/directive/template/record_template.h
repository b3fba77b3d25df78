// A record of `template`: its text, as a master file has it, and its wire form. Any thread.
#pragma once

#include "directive/template/go_template.h"
#include "dns/name.h"

namespace idetcd::directive {

struct TemplateRecord {
  dns::Name owner{};
  uint16_t type = 0;
  uint32_t ttl = 0;
  std::vector<uint8_t> rdata{};
};

// `OWNER [TTL] [IN] TYPE DATA`, on one line or within parentheses; names are absolute. The TTL is 3600 where none is given, as
// in CoreDNS.
Result<TemplateRecord> parseTemplateRecord(std::string_view text);

class RecordTemplate {
 public:
  // A constant text is read at once. The error is a text without a place.
  static Result<RecordTemplate> parse(std::string_view text);

  Result<TemplateRecord> expand(const TemplateData& data) const;
  const std::vector<std::string>& groups() const { return template_.groups(); }

 private:
  explicit RecordTemplate(GoTemplate parsed) : template_(std::move(parsed)) {}

  GoTemplate template_;
  std::optional<TemplateRecord> constant_;
};

}  // namespace idetcd::directive
